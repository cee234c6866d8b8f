"""Which devices this machine has, as torch sees them.

Asked of a process of its own: no driver is loaded in one that others are forked from, nor torch in a command.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Sequence

import msgspec

from genbench.engine.ask import ProcessEnded, answers_of
from genbench.engine.guarded import die_with_parent
from genbench.errors import UserError, one_line

__all__ = [
    "Device",
    "Devices",
    "at_once",
    "choose_device",
    "device_elsewhere",
    "find_devices",
    "main",
    "write_devices",
]

CONTEXT_BYTES = 2**29
"""Of a GPU, for every process that uses it: what its libraries load there."""


class Device(msgspec.Struct, frozen=True):
    """A place for tensors."""

    name: str
    """As torch has it on tensors: "cuda:0"."""
    title: str = ""
    """What its maker calls it."""
    free: int | None = None
    """Bytes of a GPU's own memory that nothing uses now."""

    @property
    def kind(self) -> str:
        """cpu, cuda or mps."""
        return self.name.partition(":")[0]

    def __str__(self) -> str:
        return f"{self.name} ({self.title})" if self.title else self.name


class Devices(msgspec.Struct, frozen=True):
    """What there is."""

    found: list[Device]
    """Accelerators, then the CPU."""
    torch: str
    """Version of torch, and what it was built for."""
    problem: str = ""
    """What a driver said when it could not be used."""


def find_devices() -> Devices:
    """All devices of this machine."""
    try:
        (devices,) = answers_of("genbench.engine.devices", Devices)
    except ProcessEnded as end:
        raise UserError(
            f"torch cannot say which devices there are: {end}; `genbench doctor` looks for the cause"
        ) from end
    return devices


def choose_device(name: str, devices: Devices | None = None) -> Device:
    """The device that a person named, or the best for "auto"; a `UserError` if it is not there.

    Parameters
    ----------
    devices : those of this machine, which are looked for unless given or of no importance.
    """
    if name == "cpu":
        return Device("cpu")
    if not re.fullmatch(r"auto|mps|cuda(:\d+)?", name):
        raise UserError(f"--device {name!r} is no device; write cpu, cuda, cuda:1, mps or auto")
    devices = devices or find_devices()
    if name == "auto":
        return devices.found[0]
    wanted = name if ":" in name else f"{name}:0"
    for device in devices.found:
        if device.name == wanted:
            return device
    alike = _words([one for one in devices.found if one.kind == wanted.partition(":")[0]])
    if alike:
        raise UserError(f"--device {name}: torch sees only {alike}; choose one of these")
    why = f" ({devices.problem})" if devices.problem else ""
    remedy = {
        "cuda": "install the driver of your GPU and a torch that is built for it",
        "mps": "use a Mac with a processor of Apple's",
    }[wanted.partition(":")[0]]
    raise UserError(
        f"--device {name}: torch {devices.torch} sees only {_words(devices.found)}{why}; "
        f"{remedy}, or leave --device out"
    )


def device_elsewhere(name: str) -> Device:
    """The device of machines that cannot be asked from here; each worker there is given a GPU of its own."""
    if name == "cpu":
        return Device("cpu")
    if name == "cuda":
        return Device("cuda:0")
    raise UserError(f"--device {name}: workers on other machines are given a GPU each; write cpu or cuda")


def _words(devices: Sequence[Device]) -> str:
    return ", ".join(str(device) for device in devices)


def at_once(jobs: int, free: int, cell: int) -> int:
    """Processes of `jobs` that may use a GPU at the same time: as many as its memory holds, at least one.

    Parameters
    ----------
    free : bytes of the GPU that nothing uses now.
    cell : bytes that one process may need there, beside the libraries it loads.
    """
    return max(1, min(jobs, free // (cell + CONTEXT_BYTES)))


def main(parent: int) -> None:
    """Write one line: the devices."""
    die_with_parent(parent)
    write_devices()


def write_devices() -> None:
    """Write the devices to standard output, as one line of JSON; loads drivers."""
    import torch

    found = []
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if torch.cuda.is_available():
            for place in range(torch.cuda.device_count()):
                free, _ = torch.cuda.mem_get_info(place)
                found.append(Device(f"cuda:{place}", torch.cuda.get_device_name(place), free))
    if torch.backends.mps.is_available():
        found.append(Device("mps:0", "Metal"))
    problem = one_line(str(said[0].message), 200) if said and not found else ""
    built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
    devices = Devices([*found, Device("cpu")], f"{torch.__version__} (built {built})", problem)
    sys.stdout.buffer.write(msgspec.json.encode(devices) + b"\n")


if __name__ == "__main__":
    main(int(sys.argv[1]))
