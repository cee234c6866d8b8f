"""EfficientNet b0 to b7 through efficientnet_pytorch; features are the pooled ones before the classifier.

The weight count is that of the published network with its ImageNet classifier, because that is what
Table 1 of paper 004 counts (b0 5.3 M; 4.0 M without). The loaded module leaves the classifier out.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from genbench.keys import file_hash
from genbench.plugin.offers import Availability, Backbone, BackboneRequest
from genbench.zoo.weights import (
    WeightSource,
    download_checkpoint,
    fit_state,
    on_cpu,
    published_size,
    read_state,
    torch_checkpoint,
)

if TYPE_CHECKING:
    from genbench.zoo.features import Preprocess
    from genbench.zoo.loaded import LoadedBackbone

__all__ = ["BACKBONES", "build", "with_weights"]


@dataclass(frozen=True)
class _Size:
    name: str
    file: str
    """Name of the published checkpoint; a test compares it with efficientnet_pytorch's list."""
    weight_count: int
    feature_width: int
    image_size: int

    @property
    def library_name(self) -> str:
        return f"efficientnet-{self.name}"


_SIZES = (
    _Size("b0", "efficientnet-b0-355c32eb.pth", 5_288_548, 1280, 224),
    _Size("b1", "efficientnet-b1-f1951068.pth", 7_794_184, 1280, 240),
    _Size("b2", "efficientnet-b2-8bb594d6.pth", 9_109_994, 1408, 260),
    _Size("b3", "efficientnet-b3-5fb5a3c3.pth", 12_233_232, 1536, 300),
    _Size("b4", "efficientnet-b4-6ed6700e.pth", 19_341_616, 1792, 380),
    _Size("b5", "efficientnet-b5-b6417697.pth", 30_389_784, 2048, 456),
    _Size("b6", "efficientnet-b6-c76e70fd.pth", 43_040_704, 2304, 528),
    _Size("b7", "efficientnet-b7-dcc49843.pth", 66_347_960, 2560, 600),
)


def build(name: str) -> Any:
    """efficientnet_pytorch's network of that name ("b0") with random weights and its classifier.

    Its swish activations are replaced by `torch.nn.SiLU`, the same function: the library's own version is
    a custom autograd function that `torch.func` cannot differentiate, and slower.
    """
    from efficientnet_pytorch import EfficientNet
    from torch import nn

    network = EfficientNet.from_name(f"efficientnet-{name}")
    for module in network.modules():
        if hasattr(module, "_swish"):
            module._swish = nn.SiLU()
    return network


def _download(size: _Size) -> Path:
    from efficientnet_pytorch.utils import url_map

    return download_checkpoint(url_map[size.library_name], torch_checkpoint(size.file))


def _source(size: _Size) -> WeightSource:
    return WeightSource(
        backbone=f"efficientnet:{size.name}",
        package="efficientnet_pytorch",
        fetch=f"fetch {size.file} (efficientnet_pytorch's url_map has its address) to {torch_checkpoint('')}",
        local_names=(size.file, f"{size.library_name}.safetensors", f"{size.library_name}.pth"),
        cached=lambda: [torch_checkpoint(size.file)],
        download=partial(_download, size),
    )


def with_weights(network: Any, path: Path, about: Backbone, preprocess: Preprocess) -> LoadedBackbone:
    """`network`, of this library or the lite one, with the weights in `path` and without its classifier."""
    from torch import nn

    from genbench.zoo.loaded import LoadedBackbone

    fit_state(network, read_state(path), path, about.name)
    weight_count = published_size(network)
    network._fc = nn.Identity()
    assert about.feature_width is not None
    return LoadedBackbone(
        name=about.name,
        module=network.eval(),
        preprocess=preprocess,
        feature_width=about.feature_width,
        weight_count=weight_count,
        weights_hash=file_hash(path),
    )


def _load(size: _Size, request: BackboneRequest) -> LoadedBackbone:
    from genbench.zoo.features import Preprocess

    path = _source(size).obtain(request)
    preprocess = Preprocess(size.image_size, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    with on_cpu():
        network = build(size.name)
    return with_weights(network, path, _backbone(size), preprocess)


def _available(size: _Size, request: BackboneRequest) -> Availability:
    return _source(size).availability(request)


def _backbone(size: _Size) -> Backbone:
    return Backbone(
        name=f"efficientnet:{size.name}",
        family="efficientnet",
        summary=f"EfficientNet {size.name}, pooled features before the ImageNet classifier",
        weight_count=size.weight_count,
        feature_width=size.feature_width,
        image_size=size.image_size,
        source="efficientnet_pytorch, ImageNet weights",
        load=partial(_load, size),
        available=partial(_available, size),
    )


BACKBONES = [_backbone(size) for size in _SIZES]
