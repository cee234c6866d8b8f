"""OpenAI's CLIP models through open_clip: image tower, text tower and tokenizer.

The weight count is that of the image tower up to the joint embedding (Table 1 of paper 004).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from genbench.keys import file_hash
from genbench.plugin.offers import Availability, Backbone, BackboneRequest
from genbench.zoo.weights import (
    WeightSource,
    download_from_hub,
    fit_state,
    hub_cached,
    import_library,
    on_cpu,
    published_size,
    read_state,
)

if TYPE_CHECKING:
    from torch import Tensor

    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES", "build"]

_FILES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
"""What open_clip looks for in a model's repository, in its order."""
_TEXT_BATCH = 256


@dataclass(frozen=True)
class _Size:
    name: str
    """open_clip's name of the architecture."""
    repository: str
    """Where open_clip's list has the OpenAI weights; a test compares it with the list."""
    weight_count: int
    feature_width: int
    image_size: int


_SIZES = (
    _Size("RN50", "timm/resnet50_clip.openai", 38_316_896, 1024, 224),
    _Size("RN101", "timm/resnet101_clip.openai", 56_259_936, 512, 224),
    _Size("RN50x4", "timm/resnet50x4_clip.openai", 87_137_080, 640, 288),
    _Size("RN50x16", "timm/resnet50x16_clip.openai", 167_328_912, 768, 384),
    _Size("RN50x64", "timm/resnet50x64_clip.openai", 420_380_352, 1024, 448),
    _Size("ViT-B-32", "timm/vit_base_patch32_clip_224.openai", 87_849_216, 512, 224),
    _Size("ViT-B-16", "timm/vit_base_patch16_clip_224.openai", 86_192_640, 512, 224),
    _Size("ViT-L-14", "timm/vit_large_patch14_clip_224.openai", 303_966_208, 768, 224),
)


def build(name: str) -> Any:
    """open_clip's CLIP of that name with random weights, on torch's current default device.

    OpenAI trained with the QuickGELU activation; open_clip's plain configurations use GELU, which runs
    with OpenAI's weights and gives wrong features without a word.
    """
    open_clip = import_library("open_clip")
    return open_clip.CLIP(**{**open_clip.get_model_config(name), "quick_gelu": True})


def _source(size: _Size) -> WeightSource:
    folder = size.repository.rpartition("/")[2]
    return WeightSource(
        backbone=f"clip:{size.name}",
        package="open_clip",
        fetch=f"fetch {_FILES[0]} from {size.repository} (open_clip lists it as {size.name}, openai)",
        local_names=(
            f"{size.name}.safetensors",
            f"{size.name}.pt",
            *(f"{parent}/{file}" for parent in (size.name, folder) for file in _FILES),
        ),
        cached=partial(hub_cached, size.repository, _FILES),
        download=partial(download_from_hub, size.repository, _FILES),
    )


def _load(size: _Size, request: BackboneRequest) -> LoadedBackbone:
    import torch

    from genbench.zoo.features import Preprocess
    from genbench.zoo.loaded import LoadedBackbone

    path = _source(size).obtain(request)
    open_clip = import_library("open_clip")
    with on_cpu():
        model = build(size.name)
    state = read_state(path)
    # OpenAI's own files carry these three beside the weights; open_clip drops them too.
    for extra in ("input_resolution", "context_length", "vocab_size"):
        state.pop(extra, None)
    fit_state(model, state, path, f"clip:{size.name}")
    model.eval()
    tokenizer = open_clip.get_tokenizer(size.name)

    def encode_text(prompts: Sequence[str]) -> Tensor:
        with torch.no_grad():
            with on_cpu():
                batches = tokenizer(list(prompts)).split(_TEXT_BATCH)
            return torch.cat([model.encode_text(batch, normalize=True) for batch in batches])

    return LoadedBackbone(
        name=f"clip:{size.name}",
        module=model.visual,
        preprocess=Preprocess(
            size.image_size, mean=open_clip.OPENAI_DATASET_MEAN, std=open_clip.OPENAI_DATASET_STD
        ),
        feature_width=size.feature_width,
        weight_count=published_size(model.visual),
        weights_hash=file_hash(path),
        encode_text=encode_text,
        prompt="a photo of a {name}.",
    )


def _available(size: _Size, request: BackboneRequest) -> Availability:
    return _source(size).availability(request)


def _backbone(size: _Size) -> Backbone:
    return Backbone(
        name=f"clip:{size.name}",
        family="clip",
        summary=f"OpenAI CLIP {size.name}, image tower to the joint embedding",
        weight_count=size.weight_count,
        feature_width=size.feature_width,
        image_size=size.image_size,
        source="open_clip, OpenAI weights",
        load=partial(_load, size),
        available=partial(_available, size),
    )


BACKBONES = [_backbone(size) for size in _SIZES]
