"""What `genbench doctor` looks at."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from genbench.engine.devices import Devices
from genbench.plugin.registry import load_registry

__all__ = ["Finding", "examine"]

_PACKAGES = (
    "torch", "torchvision", "numpy", "scikit-learn", "safetensors", "timm", "open-clip-torch",
    "efficientnet-pytorch", "click", "pluggy", "rich", "psutil",
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One thing looked at."""

    what: str
    status: str
    """ok, note or problem."""
    detail: str


def examine(store: Path) -> Iterator[Finding]:
    """Look at everything that a run needs."""
    yield _python()
    yield _platform()
    yield _machine()
    yield _sandbox()
    yield from _packages()
    yield from _libraries()
    yield from _plugins()
    yield _store(store)


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _platform() -> Finding:
    if not hasattr(os, "fork"):
        return Finding(
            "platform", "problem", f"{platform.system()} cannot fork processes; use Linux, macOS or WSL"
        )
    if not sys.platform.startswith("linux"):
        detail = f"{platform.platform()}: memory limits are watched, not enforced by the kernel"
        return Finding("platform", "note", detail)
    return Finding("platform", "ok", platform.platform())


def _machine() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    detail = (
        f"{os.cpu_count()} cores, {memory.total / 2**30:.0f} GiB of memory "
        f"({memory.available / 2**30:.0f} GiB free)"
    )
    return Finding("machine", "ok" if memory.available > 2**31 else "note", detail)


def _sandbox() -> Finding:
    from genbench.engine.sandbox import SEALED
    from genbench.sealing.landlock import abi
    from genbench.sealing.seal import missing, unsealed_signals

    if lacking := missing():
        detail = f"none: {lacking}; readings see this user's files, and no board calls them reproduced"
        return Finding("sandbox of readings", "note", detail)
    detail = f"{SEALED}, Landlock version {abi()}"
    if unsealed_signals():
        # Readings cannot, by seccomp.
        detail += "; a plugin could send signals while it is imported (Linux 6.12 or later prevents it)"
        return Finding("sandbox of readings", "note", detail)
    return Finding("sandbox of readings", "ok", detail)


def _packages() -> Iterator[Finding]:
    for name in _PACKAGES:
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "problem", f"not installed; run: pip install {name}")


_COMPUTES = (
    "import torch; torch.ones(2).sum().item(); from genbench.engine.devices import write_devices as w; w()"
)
_AS_A_USERS_FILE = (
    "import sys, pathlib, genbench.plugin.registry as r; r.load_file(pathlib.Path(sys.argv[1]))"
)


def _libraries() -> Iterator[Finding]:
    """That torch computes, and that a file of the user's, run as genbench runs it, can import timm."""
    problem, said = _run(_COMPUTES)
    if problem:
        yield Finding("torch works", "problem", f"{problem}; reinstall torch")
        return
    yield Finding("torch works", "ok", "imports and computes")
    yield _devices(said)
    with tempfile.TemporaryDirectory(prefix="genbench-") as folder:
        file = Path(folder) / "network.py"
        file.write_text("import timm\nimport torchvision\n")
        problem, _ = _run(_AS_A_USERS_FILE, str(file))
    remedy = "reinstall torch, torchvision and timm so that they fit each other"
    detail = f"{problem}; {remedy}" if problem else "import in a file such as genbench read takes"
    yield Finding("timm and torchvision work", "problem" if problem else "ok", detail)


def _devices(said: str) -> Finding:
    devices = msgspec.json.decode(said, type=Devices)
    names = [
        f"{one}, {one.free / 2**30:.0f} GiB free" if one.free is not None else str(one)
        for one in devices.found
    ]
    note = f"; {devices.problem}" if devices.problem else ""
    return Finding("devices", "note" if note else "ok", f"{'; '.join(names)}; torch {devices.torch}{note}")


def _run(code: str, *arguments: str) -> tuple[str, str]:
    """What went wrong with `code` in a process of its own, and what it said.

    A broken library may crash the interpreter.
    """
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    if not done.returncode:
        return "", done.stdout
    problem = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return problem, done.stdout


def _plugins() -> Iterator[Finding]:
    for report in load_registry().plugins:
        if report.ok:
            offered = sum(len(names) for names in report.offers.values())
            yield Finding(f"plugin {report.source.plugin}", "ok", f"{report.source}, offers {offered}")
        else:
            yield Finding(f"plugin {report.source.plugin}", "problem", "; ".join(report.problems))


def _store(store: Path) -> Finding:
    folder = next(path for path in (store.absolute(), *store.absolute().parents) if path.exists())
    if not os.access(folder, os.W_OK):
        return Finding("store", "problem", f"{folder} cannot be written to; choose another with --store")
    free = shutil.disk_usage(folder).free
    detail = f"{store}, {free / 2**30:.1f} GiB free"
    return Finding("store", "ok" if free > 2**30 else "problem", detail)
