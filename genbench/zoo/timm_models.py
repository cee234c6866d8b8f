"""Any image network of timm: `timm:NAME`, with NAME as timm spells it, tag included or not.

The weight count is that of the published network with its classifier, if it has one; the loaded module
is without it (timm's `num_classes=0`).
"""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.errors import UserError
from genbench.keys import file_hash
from genbench.plugin.offers import Availability, Backbone, BackboneRequest
from genbench.zoo.weights import (
    WeightSource,
    download_checkpoint,
    download_from_hub,
    hub_cached,
    import_library,
    on_cpu,
    published_size,
    read_state,
    torch_checkpoint,
)

if TYPE_CHECKING:
    from genbench.zoo.features import Preprocess
    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES"]

_FILES = ("model.safetensors", "pytorch_model.bin")


def _local_names(name: str) -> tuple[str, ...]:
    return (f"{name}.safetensors", f"{name}.pth", *(f"{name}/{file}" for file in _FILES))


def _source(name: str, pretrained: Any) -> WeightSource:
    """Where the weights of timm's pretrained configuration lie; a few old models have only an address."""
    repository, _, _ = (pretrained.hf_hub_id or "").partition("@")
    if repository:
        files = (pretrained.hf_hub_filename,) if pretrained.hf_hub_filename else _FILES
        return WeightSource(
            backbone=f"timm:{name}",
            package="timm",
            fetch=f"fetch {files[0]} from {repository} (timm lists its address as {name})",
            local_names=_local_names(name),
            cached=partial(hub_cached, repository, files),
            download=partial(download_from_hub, repository, files),
        )
    file = torch_checkpoint(str(pretrained.url).rpartition("/")[2])
    return WeightSource(
        backbone=f"timm:{name}",
        package="timm",
        fetch=f"fetch {file.name} (timm lists its address as {name}) to {file.parent}",
        local_names=(*_local_names(name), file.name),
        cached=lambda: [file],
        download=partial(download_checkpoint, str(pretrained.url), file),
    )


def _load(request: BackboneRequest) -> LoadedBackbone:
    from genbench.zoo.loaded import LoadedBackbone

    timm = import_library("timm")
    name = request.argument
    pretrained = timm.get_pretrained_cfg(name, allow_unregistered=False) if timm.is_model(name) else None
    if pretrained is None or not pretrained.has_weights:
        raise UserError(
            f"timm has no pretrained model {name!r}; Python's timm.list_pretrained() lists what it has."
        )
    path = _source(name, pretrained).obtain(request)
    network = _with_weights(name, path)
    weight_count = published_size(network)
    with on_cpu():
        network.reset_classifier(0)
    network.eval()
    preprocess = _preprocess(name, timm.data.resolve_model_data_config(network))
    return LoadedBackbone(
        name=f"timm:{name}",
        module=network,
        preprocess=preprocess,
        feature_width=_feature_width(name, network, preprocess.side),
        weight_count=weight_count,
        weights_hash=file_hash(path),
    )


def _with_weights(name: str, path: Path) -> Any:
    """The network with its classifier: only then does timm insist that every name and shape fits.

    timm gets the tensors, not the file, so that its converters for old checkpoints run while reading
    stays with `read_state`.
    """
    timm = import_library("timm")
    overlay = {"state_dict": read_state(path)}
    try:
        with on_cpu():
            network = timm.create_model(name, pretrained=True, pretrained_cfg_overlay=overlay)
    except (RuntimeError, KeyError) as error:
        problems = [line.strip() for line in str(error).split("\n")[1:] if line.strip()]
        first = problems[0][:200] if problems else str(error)
        raise UserError(f"{path} does not hold the weights of timm:{name}: {first}") from error
    network.pretrained_cfg.pop("state_dict")  # timm keeps a second copy of all the weights there
    return network


def _preprocess(name: str, config: dict[str, Any]) -> Preprocess:
    from genbench.zoo.features import Preprocess

    channels, height, width = config["input_size"]
    mode, crop = config["interpolation"], config["crop_mode"]
    if channels != 3 or height != width or mode not in ("bicubic", "bilinear") or crop == "border":
        raise UserError(
            f"timm:{name} takes {channels}x{height}x{width} images with {mode} resizing and {crop} crops; "
            "genbench prepares square RGB images with bicubic or bilinear resizing and centre crops, so "
            "choose another model."
        )
    return Preprocess(
        height,
        mean=config["mean"],
        std=config["std"],
        resize=math.floor(height / config["crop_pct"]),
        mode=mode,
        squash=crop == "squash",
    )


def _feature_width(name: str, network: Any, side: int) -> int:
    """Asked of the network itself: timm's attributes for it differ between its model families."""
    import torch

    with torch.inference_mode():
        shape: tuple[int, ...] = tuple(network(torch.zeros(1, 3, side, side, device="cpu")).shape)
    if len(shape) != 2:
        raise UserError(
            f"timm:{name} gives features of shape {shape} without its head; choose another model."
        )
    return shape[1]


def _available(request: BackboneRequest) -> Availability:
    """Looks without timm, which imports torch: by file name, and in the cache by timm's usual repository."""
    name = request.argument
    if not name:
        return Availability(False, "timm:NAME takes any pretrained model of timm, as timm:resnet18.a1_in1k.")
    source = WeightSource(
        backbone=f"timm:{name}",
        package="timm",
        fetch=f"fetch {_FILES[0]} of {name} (timm lists its address)",
        local_names=_local_names(name),
        cached=partial(_cached_under_any_tag, name),
    )
    return source.availability(request)


def _cached_under_any_tag(name: str) -> list[Path]:
    from huggingface_hub.constants import HF_HUB_CACHE

    folders = [f"models--timm--{name}"] + ([] if "." in name else [f"models--timm--{name}.*"])
    return [
        path
        for folder in folders
        for file in _FILES
        for path in sorted(Path(HF_HUB_CACHE).glob(f"{folder}/snapshots/*/{file}"))
    ]


BACKBONES = [
    Backbone(
        name="timm:",
        family="timm",
        summary="any pretrained image network of timm, as timm:resnet18.a1_in1k",
        weight_count=None,
        feature_width=None,
        image_size=None,
        source="timm",
        load=_load,
        available=_available,
    )
]
