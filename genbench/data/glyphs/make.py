"""Build the suite's file: `python -m genbench.data.glyphs.make [--out FOLDER]`.

The images depend on the fonts' bytes (their hashes are in the card) and on this package alone; the same fonts
give the same file, bit for bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
from pathlib import Path
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from genbench.data.glyphs import CARD, FILE, FOLDER
from genbench.data.glyphs.letters import SEEN, all_letters, distinct_letters, letter_name, suite_letters
from genbench.data.glyphs.outline import DOMAINS, font_hashes
from genbench.data.glyphs.render import domain_of, draw

__all__ = ["IMAGES_PER_CLASS", "build", "split_arrays"]

IMAGES_PER_CLASS = {"train": 54, "heldout": 42}
"""Multiples of three, so that each class has as many images in each font family."""


def split_arrays(split: str, codes: tuple[int, ...]) -> dict[str, NDArray[Any]]:
    """Images, labels and domains of one split, class after class."""
    count = IMAGES_PER_CLASS[split]
    domains = np.array([domain_of(i) for i in range(count)], dtype=np.int64)
    return {
        f"{split}.images": np.stack([draw(code, split, i) for code in codes for i in range(count)]),
        f"{split}.labels": np.repeat(np.arange(len(codes), dtype=np.int64), count),
        f"{split}.domains": np.tile(domains, len(codes)),
    }


class Card(TypedDict):
    """What is said beside the file."""

    file: str
    sha256: str
    content_sha256: str
    images_per_class: dict[str, int]
    domains: tuple[str, ...]
    letters: dict[str, int]
    seen: int
    classes: list[dict[str, str]]
    fonts: dict[str, str]


def build() -> tuple[bytes, Card]:
    """The compressed file, and the card that describes it."""
    codes = suite_letters()
    content = save({**split_arrays("train", codes), **split_arrays("heldout", codes)})
    packed = lzma.compress(content, format=lzma.FORMAT_XZ, check=lzma.CHECK_CRC32, preset=9)
    return packed, {
        "file": FILE,
        "sha256": hashlib.sha256(packed).hexdigest(),
        "content_sha256": hashlib.sha256(content).hexdigest(),
        "images_per_class": IMAGES_PER_CLASS,
        "domains": DOMAINS,
        "letters": {"in all fonts": len(all_letters()), "without look-alikes": len(distinct_letters())},
        "seen": SEEN,
        "classes": [{"code": f"U+{code:04X}", "name": letter_name(code)} for code in codes],
        "fonts": font_hashes(),
    }


def main() -> None:
    """Write the file and its card, and say whether they changed."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--out", type=Path, default=FOLDER, help="where to write (default: %(default)s)")
    folder: Path = parser.parse_args().out
    folder.mkdir(parents=True, exist_ok=True)
    packed, card = build()
    before = folder / FILE
    same = before.exists() and before.read_bytes() == packed
    before.write_bytes(packed)
    (folder / CARD).write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"{before}: {len(packed) / 1e6:.2f} MB, sha256 {card['sha256']}, {'as before' if same else 'new'}")


if __name__ == "__main__":
    main()
