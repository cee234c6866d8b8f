"""Where pretrained weights come from: a local folder, a library's cache, or a download with a progress bar.

A weight file is read as safetensors or with `torch.load(weights_only=True)`, so nothing in it can run.
Looking for a file imports neither torch nor the library that publishes it.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.plugin.offers import Availability, BackboneRequest
from genbench.sealing.visible import is_there

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = [
    "WeightSource",
    "at_remembered_places",
    "download_checkpoint",
    "download_from_hub",
    "fit_state",
    "hub_cached",
    "import_library",
    "on_cpu",
    "published_size",
    "read_state",
    "remember_places",
    "torch_checkpoint",
    "weight_folders",
]


@dataclass(frozen=True)
class WeightSource:
    """The published weight file of one backbone, and the places it may lie."""

    backbone: str
    """The name a user writes, as "clip:RN50"."""
    package: str
    """The Python package that builds the network; without it the weights are of no use."""
    fetch: str
    """What to fetch, as the end of "to use it, ..."; names the file and who knows its address."""
    local_names: tuple[str, ...]
    """Paths under a `--weights` folder, best first."""
    cached: Callable[[], Iterable[Path]] = field(repr=False)
    """Full paths where the library itself keeps the file."""
    download: Callable[[], Path] | None = field(default=None, repr=False)
    """Fetches the file into the library's cache; None where only pip can bring it."""

    def find(self, folder: Path | None) -> Path | None:
        """The file in `folder`, else in the library's cache, else None."""
        local = [folder / name for name in self.local_names] if folder is not None else []
        return next((path for path in [*local, *self.cached()] if path.is_file()), None)

    def availability(self, request: BackboneRequest) -> Availability:
        """Whether the file is on this machine; looks only, never fetches."""
        if importlib.util.find_spec(self.package) is None:
            return Availability(False, f"{self.backbone} needs the Python package {self.package}.")
        path = self.find(request.weights)
        if path is None:
            return Availability(False, self._missing(request.weights))
        return Availability(True, str(path))

    def obtain(self, request: BackboneRequest) -> Path:
        """The file, fetched if it is nowhere and `request` allows it.

        Raises
        ------
        UserError
            If the file is nowhere and may not or cannot be fetched; says what to put where.
        """
        if request.weights is not None and not request.weights.is_dir():
            raise UserError(
                f"the weights folder {request.weights} does not exist; create it or name another."
            )
        if importlib.util.find_spec(self.package) is None:
            raise UserError(self.availability(request).detail)
        path = self.find(request.weights)
        if path is not None:
            return path
        if not request.download or self.download is None:
            raise UserError(self._missing(request.weights))
        try:
            return self.download()
        except Exception as error:  # each library has its own exceptions for a network that is not there
            reason = str(error).strip().split("\n")[0].rstrip(".") or type(error).__name__
            raise UserError(
                f"the download failed ({reason}), and {self._missing(request.weights)}"
            ) from error

    def _missing(self, folder: Path | None) -> str:
        where = f"{folder}/{self.local_names[0]}" if folder else f"DIR/{self.local_names[0]} (--weights DIR)"
        return f"{self.backbone} has no weights on this machine: {self.fetch}, or put the file at {where}."


def import_library(name: str) -> Any:
    """Import open_clip or timm, even beside a torchvision whose compiled operators cannot load."""
    importlib.import_module("genbench._torchvision")
    return importlib.import_module(name)


def on_cpu() -> AbstractContextManager[object]:
    """Around the code of a library that makes tensors: on the CPU, whatever torch's default device."""
    import torch

    return torch.device("cpu")


def torch_checkpoint(name: str) -> Path:
    """Where torch.hub keeps the checkpoint `name`; torch.hub's own rule, without importing torch."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    home = Path(os.environ.get("TORCH_HOME") or cache / "torch")
    return home.expanduser() / "hub" / "checkpoints" / name


_PLACES = ("HOME", "XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE")
"""Variables that say where libraries keep weights."""
_remembered: dict[str, str] = {}


def remember_places() -> None:
    """Remember where libraries keep weights, before the environment of this process is emptied."""
    _remembered.update({name: os.environ[name] for name in _PLACES if name in os.environ})


@contextmanager
def at_remembered_places() -> Iterator[None]:
    """Around what looks for weights in a process whose environment may have been emptied."""
    lost = {name: value for name, value in _remembered.items() if name not in os.environ}
    os.environ.update(lost)
    try:
        yield
    finally:
        for name in lost:
            os.environ.pop(name, None)


def weight_folders() -> list[Path]:
    """Where libraries keep weights on this machine."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser())
    hub = Path(os.environ.get("HF_HOME") or cache / "huggingface") / "hub"
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    folders = [torch_checkpoint("any").parent, Path(named or hub)]
    return [folder for folder in (one.expanduser() for one in folders) if is_there(folder)]


def hub_cached(repository: str, names: Iterable[str]) -> list[Path]:
    """Those files of a model-hub repository that the hub's cache on this machine holds."""
    from huggingface_hub import try_to_load_from_cache

    found = (try_to_load_from_cache(repository, name) for name in names)
    return [Path(path) for path in found if isinstance(path, str)]


def download_from_hub(repository: str, names: Sequence[str]) -> Path:
    """Fetch the first of `names` that the repository has; huggingface_hub shows the progress bar."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    for name in names[:-1]:
        try:
            return Path(hf_hub_download(repository, name))
        except LocalEntryNotFoundError:  # no network, and a kind of EntryNotFoundError
            raise
        except EntryNotFoundError:
            continue
    return Path(hf_hub_download(repository, names[-1]))


def download_checkpoint(address: str, target: Path) -> Path:
    """Fetch `address` to `target`; torch.hub shows the progress bar and checks the hash in the name."""
    import torch

    target.parent.mkdir(parents=True, exist_ok=True)
    published = torch.hub.HASH_REGEX.search(target.name)
    torch.hub.download_url_to_file(address, str(target), published.group(1) if published else None)
    return target


def read_state(path: Path) -> dict[str, Tensor]:
    """Read a state dict; a file that holds anything but tensors is refused, not run."""
    import torch
    from safetensors.torch import load_file

    try:
        with on_cpu():
            if path.suffix == ".safetensors":
                content: object = load_file(path)
            else:
                content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file can fail in any layer below
        reason = str(error).strip().split("\n")[0].rstrip(".")
        raise UserError(
            f"{path} cannot be read as plain weights ({reason}); genbench reads safetensors files and "
            "PyTorch state dicts, never TorchScript or pickled objects."
        ) from error
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(torch.is_tensor(value) for value in content.values()):
        raise UserError(f"{path} is no state dict: expected names mapped to tensors.")
    return {str(name).removeprefix("module."): value for name, value in content.items()}


def fit_state(module: nn.Module, state: dict[str, Tensor], path: Path, backbone: str) -> None:
    """Copy `state` into `module`; every name and shape must agree."""
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        problems = [line.strip() for line in str(error).split("\n")[1:] if line.strip()]
        first = problems[0][:200] if problems else "another layout"
        raise UserError(f"{path} does not hold the weights of {backbone}: {first}") from error


def published_size(module: nn.Module) -> int:
    """Number of weights as the papers count them: every parameter, running statistics left out."""
    return sum(parameter.numel() for parameter in module.parameters())
