"""The sandbox of readings: a measure sees its network, its training data and its own code, and nothing else.

On Linux the kernel holds it, whoever genbench runs as: Landlock takes the files away, seccomp the network,
other processes and memory that nobody counts. A process is sealed before the first line of a plugin runs in
it, for good, and so is all that comes of it. What a sealed process may see of a run lies in two folders of a
worker: `given`, where the host puts its network and shared parts, and a private one, the only place it can
write to.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from genbench.engine.compute import Compute
from genbench.engine.guarded import Sealing
from genbench.plugin.source import plugin_homes
from genbench.sealing.seal import Seal
from genbench.sealing.visible import visible
from genbench.zoo.weights import remember_places, weight_folders

__all__ = ["NOT_SEALED", "SEALED", "close_plugin", "emptied", "reading_seal", "sealing_of", "size_of"]

SEALED = "landlock+seccomp"
NOT_SEALED = "none"
"""What readings say of the sandbox that they were taken in."""


def reading_seal(
    given: Path, private: Path, store: Path, compute: Compute, code: Sequence[Path] = ()
) -> Seal:
    """What readings of one worker may see.

    Parameters
    ----------
    given : the worker's folder with the network and its shared parts.
    private : the folder that sealed processes may write to.
    store : where results are kept, to be hidden wherever it lies.
    code : files of a plugin that lie on no search path.
    """
    around = visible(store.resolve(), frozenset(plugin_homes()), tuple(weight_folders()))
    return Seal([*around.read, *code, given], private, _devices(compute), around.listed)


def sealing_of(seal: Seal) -> Sealing:
    """For a child that takes readings."""
    return Sealing(partial(_close, seal), seal.private, seal.descriptor)


def _close(seal: Seal) -> None:
    remember_places()
    seal.close("reading")


def close_plugin(seal: Seal) -> None:
    """Seal the process that a plugin is imported in, which may still fork readings and end them."""
    remember_places()
    seal.close("plugin")


_ACCELERATORS = ("nvidia", "dri", "kfd")


def _devices(compute: Compute) -> list[Path]:
    """Of a GPU, what its driver opens."""
    if compute.device == "cpu":
        return []
    drivers = [entry for entry in Path("/dev").iterdir() if entry.name.startswith(_ACCELERATORS)]
    return [*drivers, Path("/proc/driver/nvidia"), Path("/dev/shm")]


def emptied(folder: Path) -> bool:
    """Whether all that a sealed process left in its private folder could be removed."""
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    Path(entry.path).unlink()
    except (OSError, RecursionError):
        return False
    return True


def size_of(folder: Path) -> int:
    """Bytes of all files in a private folder, as far as they take room."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                about = (Path(place) / name).lstat()
                total += about.st_blocks * 512 if stat.S_ISREG(about.st_mode) else 0
    return total
