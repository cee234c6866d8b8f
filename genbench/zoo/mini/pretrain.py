"""Pretrain the embedded families: `python -m genbench.zoo.mini.pretrain [NAME ...] [--out FOLDER]`.

Every backbone sees letters of no suite only. Those whose files are already there are skipped, so the same
command goes on where it was stopped. Everything is seeded by the backbone's name; on another processor
rounding differs and the weights with it, but not what they can do. So it does with the number of threads: the
second edition (mini-clip:short, mini-clip-vit, mini-regnet) was trained with `--threads 1`.
"""

from __future__ import annotations

import genbench._torchvision  # noqa: F401  before open_clip, which imports torchvision

# isort: split
import argparse
import hashlib
import json
import math
import re
import time
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn

from genbench.data.glyphs.letters import letter_name, pretraining_letters
from genbench.data.glyphs.render import draw
from genbench.plugin.offers import BackboneRequest
from genbench.zoo.mini import BACKBONES
from genbench.zoo.mini.files import FOLDER
from genbench.zoo.mini.lessons import Lesson, classification, imitation
from genbench.zoo.mini.load import load, preprocess
from genbench.zoo.mini.muon import Muon
from genbench.zoo.mini.sizes import SIZES, Size
from genbench.zoo.mini.tokens import Tokenizer

__all__ = ["PretrainingRecipe", "pretrain"]

IMAGES_PER_LETTER = 200

_OUTSIDE = re.compile("embedding|^1\\.")
"""Names of matrices that are tables, and of heads: the second part of a lesson's model."""


@dataclass(frozen=True)
class PretrainingRecipe:
    """How backbones are trained: AdamW, a linear warm-up, then a cosine down to nothing."""

    images: int
    """Images shown in all."""
    batch: int
    """Images in a batch, no two of one letter."""
    learning_rate: float
    weight_decay: float
    clip_norm: float
    """Longest gradient that is not cut."""
    bfloat16: bool
    """Whether forward passes run in bfloat16; depthwise convolutions gain nothing from it."""
    warm_up: float = 0.08
    muon: float | None = None
    """Learning rate of the matrices inside the network, which Muon moves then; AdamW moves tables, heads
    and vectors."""
    teacher: str | None = None
    """A backbone that was trained before, whose view of the images is imitated."""


_GUIDED = PretrainingRecipe(
    64_000, 64, 2e-3, 0.0, clip_norm=1.0, bfloat16=False, muon=0.02, teacher="mini-regnet:x6"
)

_TWICE, _FOUR_TIMES = replace(_GUIDED, images=128_000), replace(_GUIDED, images=256_000)
"""For towers that learn slowly. From 64,000 images the smallest learn too little to be adapted, from 256,000
the largest convolutions learn so much that 50 letters are no task any more: a linear probe on short9 errs on
one image of 175. So the smaller see more, and size alone does not say which network does better."""

RECIPES = {
    "mini-clip:short2": _FOUR_TIMES,
    "mini-clip:short3": _FOUR_TIMES,
    "mini-clip:short4": _TWICE,
    "mini-clip:short5": _TWICE,
    "mini-clip:short": _GUIDED,
    "mini-clip-vit:w56": _TWICE,
    "mini-clip-vit:w64": _TWICE,
    "mini-clip-vit:w96": _TWICE,
    "mini-clip-vit:": _FOUR_TIMES,
    "mini-efficientnet:": PretrainingRecipe(100_000, 64, 4e-3, 0.05, clip_norm=5.0, bfloat16=False),
    "mini-regnet:x6": PretrainingRecipe(100_000, 64, 4e-3, 0.05, clip_norm=5.0, bfloat16=False, muon=0.02),
    "mini-regnet:": _GUIDED,
}
"""How the names begin of those that a recipe is for; the first that fits."""


def pretrain(name: str, letters: tuple[int, ...], pool: Tensor, folder: Path) -> None:
    """Train one backbone and write its weights and card."""
    family, key = name.split(":")
    size = SIZES[family][key]
    recipe = _recipe(name)
    seed = zlib.crc32(name.encode())
    torch.manual_seed(seed)
    names = [letter_name(code) for code in letters]
    lesson = _lesson(name, size, names, recipe.teacher, folder)
    start = time.process_time()
    log = _train(name, lesson, recipe, _batches(pool, recipe.batch, np.random.default_rng(seed)))
    content = save(
        {
            key: value.half().contiguous() if value.is_floating_point() else value
            for key, value in lesson.saved.state_dict().items()
        }
    )
    card: dict[str, Any] = {
        "name": name,
        "sha256": hashlib.sha256(content).hexdigest(),
        "weight_count": sum(parameter.numel() for parameter in lesson.tower.parameters()),
        "feature_width": size.feature_width,
        "minutes": round((time.process_time() - start) / 60, 2),
        "seed": seed,
        "recipe": asdict(recipe),
        "letters": len(letters),
        "images_per_letter": IMAGES_PER_LETTER,
        "torch": torch.__version__,
        "words": lesson.words,
        "log": log,
    }
    stem = name.replace(":", "-")
    (folder / f"{stem}.safetensors").write_bytes(content)
    (folder / f"{stem}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")


def _recipe(name: str) -> PretrainingRecipe:
    return next(recipe for start, recipe in RECIPES.items() if name.startswith(start))


def _lesson(name: str, size: Size, names: list[str], teacher: str | None, folder: Path) -> Lesson:
    tokenizer = Tokenizer(sorted({word for letter in names for word in letter.split()}))
    if teacher is not None:
        return imitation(name, size, names, tokenizer, load(teacher, BackboneRequest(weights=folder)).module)
    return classification(name, size, len(names))


def _batches(pool: Tensor, size: int, rng: np.random.Generator) -> Iterator[tuple[Tensor, Tensor]]:
    """Images and letters, for ever; no letter twice in a batch, no image twice before all were shown."""
    letters, images = pool.shape[:2]
    while True:
        order = rng.permuted(np.tile(np.arange(images), (letters, 1)), axis=1)
        for turn in range(images):
            for part in np.array_split(rng.permutation(letters), max(1, round(letters / size))):
                which = torch.from_numpy(part)
                yield pool[which, torch.from_numpy(order[part, turn])], which


def _optimizers(model: nn.Module, recipe: PretrainingRecipe) -> list[tuple[torch.optim.Optimizer, float]]:
    """With their learning rates."""
    matrices = {name: p for name, p in model.named_parameters() if p.ndim > 1}
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    inside = [] if recipe.muon is None else [name for name in matrices if not _OUTSIDE.search(name)]
    rest = [p for name, p in matrices.items() if name not in inside]
    adam = torch.optim.AdamW(
        [{"params": rest, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}],
        lr=recipe.learning_rate,
        betas=(0.9, 0.98),
    )
    if recipe.muon is None:
        return [(adam, recipe.learning_rate)]
    muon = Muon((matrices[name] for name in inside), lr=recipe.muon)
    return [(adam, recipe.learning_rate), (muon, recipe.muon)]


def _train(
    name: str,
    lesson: Lesson,
    recipe: PretrainingRecipe,
    batches: Iterator[tuple[Tensor, Tensor]],
) -> list[dict[str, float]]:
    model = lesson.model
    model.train().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizers = _optimizers(model, recipe)
    steps = recipe.images // recipe.batch
    start, shown, recent = time.process_time(), 0, list[float]()
    log = []
    for step, (images, letters) in zip(range(1, steps + 1), batches, strict=False):
        rate = min(1.0, step / (recipe.warm_up * steps)) * (1 + math.cos(math.pi * step / steps)) / 2
        for optimizer, learning_rate in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = learning_rate * rate
        inputs = preprocess(images).contiguous(memory_format=torch.channels_last)
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bfloat16):
            value = lesson.loss(inputs, letters)
        model.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), recipe.clip_norm)
        for optimizer, _ in optimizers:
            optimizer.step()
        shown += len(letters)
        recent.append(value.item())
        if step % max(1, steps // 20) == 0:
            seconds = round(time.process_time() - start, 1)
            entry = {"step": step, "images": shown, "loss": round(sum(recent) / len(recent), 4)}
            log.append({**entry, "seconds": seconds})
            print(f"{name}: step {step} of {steps}, loss {entry['loss']:.3f}, {seconds:.0f} s", flush=True)
            recent.clear()
    return log


def _render(letters: tuple[int, ...]) -> Tensor:
    """The pool of pretraining images, (letters, IMAGES_PER_LETTER, 3, 32, 32) uint8."""
    pool: list[NDArray[np.uint8]] = []
    for done, code in enumerate(letters, 1):
        pool.append(np.stack([draw(code, "pretrain", i) for i in range(IMAGES_PER_LETTER)]))
        if done % 50 == 0 or done == len(letters):
            print(f"drew {done} of {len(letters)} letters", flush=True)
    return torch.from_numpy(np.stack(pool))


def _kept(file: Path, letters: tuple[int, ...]) -> Tensor:
    """The pool from a file, which is written first if it is not there."""
    if not file.exists():
        np.save(file, _render(letters).numpy())
    pool = torch.from_numpy(np.load(file))
    assert pool.shape[:2] == (len(letters), IMAGES_PER_LETTER), f"{file} holds another pool of images"
    return pool


def main() -> None:
    """Train every backbone that has no files yet."""
    known = [backbone.name for backbone in BACKBONES]
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"which ones (default: all): {', '.join(known)}"
    )
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write (default: %(default)s)")
    parser.add_argument("--pool", type=Path, help="keep the images that are drawn in this .npy file")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(known))
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; choose from {', '.join(known)}")
    torch.set_num_threads(arguments.threads)
    arguments.out.mkdir(parents=True, exist_ok=True)
    wanted = [
        name
        for name in sorted(arguments.names or known, key=lambda name: _recipe(name).teacher is not None)
        if not (arguments.out / f"{name.replace(':', '-')}.json").exists()
    ]
    if not wanted:
        print("nothing to do: every backbone asked for is there")
        return
    letters = pretraining_letters()
    pool = _render(letters) if arguments.pool is None else _kept(arguments.pool, letters)
    for name in wanted:
        pretrain(name, letters, pool, arguments.out)


if __name__ == "__main__":
    main()
