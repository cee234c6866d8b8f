"""Loading the embedded weights: verified, read as fp16, used as fp32."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as parse_safetensors
from torch import Tensor, nn
from torch.nn import functional as F

from genbench.errors import UserError
from genbench.plugin.offers import BackboneRequest
from genbench.zoo.loaded import LoadedBackbone
from genbench.zoo.mini.architecture import build_classifier
from genbench.zoo.mini.files import REBUILD, find_files
from genbench.zoo.mini.sizes import IMAGE_SIZE, SIZES, ClipSize, ClipVitSize
from genbench.zoo.mini.tokens import Tokenizer

__all__ = ["load", "preprocess"]

TextEncoder = Callable[[Sequence[str]], Tensor]


def load(name: str, request: BackboneRequest) -> LoadedBackbone:
    """The backbone `name` ("mini-clip:short4") with its pretrained weights, in eval mode."""
    weights, card_file = find_files(name, request.weights)
    card = _read_card(card_file)
    content = _verified(weights, card["sha256"], card_file)
    state = {key: value.float() if value.is_floating_point() else value for key, value in content.items()}
    family, key = name.split(":")
    size = SIZES[family][key]
    tower: nn.Module
    encode_text: TextEncoder | None = None
    # The initialisation is overwritten; its draws stay out of sight.
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        if isinstance(size, ClipSize | ClipVitSize):
            tower, encode_text = _clip(size, card["words"], state)
        else:
            tower = build_classifier(name)
            tower.load_state_dict(state)
    return LoadedBackbone(
        name=name,
        module=tower.eval(),
        preprocess=preprocess,
        feature_width=card["feature_width"],
        weight_count=sum(parameter.numel() for parameter in tower.parameters()),
        weights_hash=card["sha256"],
        encode_text=encode_text,
        prompt="{name}",
    )


def _clip(
    size: ClipSize | ClipVitSize, words: Sequence[str], state: dict[str, Tensor]
) -> tuple[nn.Module, TextEncoder]:
    from genbench.zoo.mini.clip import build_clip

    tokenizer = Tokenizer(words)
    model = build_clip(size, tokenizer.vocabulary_size)
    model.load_state_dict(state)
    model.eval()

    def encode_text(prompts: Sequence[str]) -> Tensor:
        with torch.no_grad():
            embeddings: Tensor = model.encode_text(tokenizer(prompts), normalize=True)
        return embeddings

    return model.visual, encode_text


def preprocess(images: Tensor) -> Tensor:
    """Raw images (n, 1 or 3, h, w) uint8 -> (n, 3, 32, 32) float32, about -2 to 2."""
    scaled = images.to(torch.float32, copy=True)
    if scaled.shape[-2:] != (IMAGE_SIZE, IMAGE_SIZE):
        scaled = F.interpolate(
            scaled, size=(IMAGE_SIZE, IMAGE_SIZE), mode="bilinear", align_corners=False, antialias=True
        )
    # In place: for networks this small every pass over the pixels counts.
    scaled.div_(255).sub_(0.5).div_(0.25)
    return scaled if scaled.shape[1] == 3 else scaled.expand(-1, 3, -1, -1)


def _read_card(path: Path) -> dict[str, Any]:
    try:
        card: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for key in ("sha256", "feature_width", "words"):
            card[key]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read ({error!r}); {REBUILD}") from error
    return card


def _verified(path: Path, sha256: str, card_file: Path) -> dict[str, Tensor]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error}); {REBUILD}") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise UserError(f"{path} is damaged: its sha256 is not the one in {card_file}; {REBUILD}")
    tensors: dict[str, Tensor] = parse_safetensors(content)
    return tensors
