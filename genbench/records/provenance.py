"""Where a result comes from: code, data, packages and machine, without a time stamp."""

from __future__ import annotations

import contextlib
import inspect
import platform
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from genbench._version import __version__
from genbench.keys import file_hash
from genbench.plugin.contract import Measure
from genbench.plugin.registry import BUILT_IN, Entry
from genbench.records.record import Git, Platform, Plugin, Provenance, Seeds
from genbench.runs.plan import Plan, measure_fingerprint
from genbench.suites.kind import kind_of

__all__ = ["CHECKOUT", "PACKAGES", "package_versions", "plugin_record", "processor", "provenance"]

PACKAGES = (
    "efficientnet-pytorch", "numpy", "open-clip-torch", "safetensors", "scikit-learn", "scipy", "timm",
    "torch", "torchvision", "xarray",
)  # fmt: skip
"""Those whose version can change a reading or a score."""

CHECKOUT = Path(__file__).parent.parent.parent


def provenance(plan: Plan, measure: str) -> Provenance:
    """What the readings of one measure of a run were made from."""
    pack = plan.evidence.pack
    return Provenance(
        genbench=__version__,
        suite_sha256=file_hash(plan.suite.path),
        evidence=None if pack is None else pack.version,
        data_sha256=None if pack is None else pack.manifest.data_hash,
        networks={}
        if pack is None
        else kind_of(plan.suite).weight_hashes(pack, [one.label for one in plan.evidence.networks]),
        packages=package_versions(),
        platform=Platform(
            system=platform.system(),
            machine=platform.machine(),
            libc=" ".join(platform.libc_ver()),
            python=platform.python_version(),
            processor=processor(),
        ),
        seeds=Seeds(bootstrap=plan.suite.bootstrap_seed),
        git=_git(),
        command=f"genbench run --suite {plan.suite.name} --measure {measure}",
    )


@cache
def processor() -> str:
    """What the maker of this machine's processor calls it, where the system knows: bits depend on it."""
    with contextlib.suppress(OSError):
        for text in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = text.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor()


def package_versions() -> dict[str, str]:
    """Name to version of the packages that can change a number; those not installed are left out."""
    return dict(_package_versions())


@cache
def _package_versions() -> Mapping[str, str]:
    # Once: it reads a file of every package, and each recomputed reading asks.
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def plugin_record(entry: Entry[Measure]) -> Plugin:
    """Who offers a measure, and the hash of its code."""
    source = entry.source
    built_in = source.kind == BUILT_IN
    code = Path(inspect.getfile(entry.item.function)) if built_in else None
    return Plugin(
        kind=source.kind,
        # The path of a single file is of no use to anyone else.
        name=Path(source.plugin).name if source.kind == "file" else source.plugin,
        distribution="genbench" if built_in else source.distribution,
        version=__version__ if built_in else source.version,
        sha256=measure_fingerprint(entry) if code is None else file_hash(code),
    )


def _git() -> Git | None:
    """Commit of the checkout and whether anything but boards was changed; None where there is none."""
    if not (CHECKOUT / ".git").exists():
        return None
    commit = _asked("rev-parse", "HEAD")
    # Records lie in leaderboards/: writing one must not make the next one dirty.
    changes = _asked("status", "--porcelain", "--", ".", ":(exclude)leaderboards")
    return None if commit is None or changes is None else Git(commit=commit, dirty=bool(changes))


def _asked(*words: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True, timeout=20
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
