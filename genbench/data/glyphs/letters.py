"""Which letters there are, which of them look the same, and which make the suite.

All decisions are functions of the fonts and of `SEED`; the outcome is stored beside the images, so only the
scripts that draw ever come here.
"""

from __future__ import annotations

import functools
import unicodedata
from collections import Counter

import numpy as np
from numpy.typing import NDArray

from genbench.data.glyphs.outline import FONTS, coverage, outline, supported

__all__ = ["all_letters", "distinct_letters", "letter_name", "pretraining_letters", "suite_letters"]

SEED = 3
SEEN = UNSEEN = 50

SAME = 0.96
"""Two letters look the same if the cosine between their renderings, averaged over the fonts, reaches this:
Latin and Cyrillic a (1.00), and also alpha with psili and with dasia (0.98), which differ in two pixels."""

_LIMIT = 0x2000
_SIDE = 32
_LETTER_SIZE = 28
_FAMILY_MEMBERS = 4
_FAMILY_SHARE = 0.45
_FAMILY_MOST = 6
_WORD_IN_PRETRAINING = 3


def letter_name(code: int) -> str:
    """The Unicode name in lower case, the class name: "latin small letter j with circumflex"."""
    return unicodedata.name(chr(code)).lower()


def all_letters() -> list[int]:
    """Lower-case letters below U+2000 that are in all 12 fonts."""
    return [code for code in supported(_LIMIT) if unicodedata.category(chr(code)) == "Ll"]


def similarity(codes: list[int]) -> NDArray[np.float64]:
    """Cosine between upright renderings of each pair of letters, averaged over the 12 fonts."""
    fonts = [font for styles in FONTS.values() for font in styles]
    total = np.zeros((len(codes), len(codes)))
    for font in fonts:
        drawn = np.stack(
            [coverage(outline(font, code) * _LETTER_SIZE + _SIDE / 2, _SIDE).ravel() for code in codes]
        )
        # Products of small integers, so that the float sums are exact in any order of summation.
        products = drawn.astype(np.float64) @ drawn.T.astype(np.float64)
        norms = np.sqrt(np.diag(products))
        total += products / (norms[:, None] * norms)
    return total / len(fonts)


@functools.cache
def distinct_letters() -> tuple[int, ...]:
    """All letters without look-alikes: of letters that look the same, the lowest code point is kept."""
    codes = all_letters()
    same = similarity(codes) >= SAME
    kept: list[int] = []
    for i in range(len(codes)):
        if not same[i, kept].any():
            kept.append(i)
    return tuple(codes[i] for i in kept)


@functools.cache
def suite_letters() -> tuple[int, ...]:
    """The suite's 100 letters: 50 seen, then 50 unseen.

    Letters come from families (one base letter with several diacritics). A family gives an even number of
    letters, half of them to each side, and keeps more than half of its members for pretraining. Every word
    of a chosen name is left in at least `_WORD_IN_PRETRAINING` pretraining names, so that a text tower can
    compose the name of a letter it never met.
    """
    rng = np.random.default_rng(SEED)
    letters = distinct_letters()
    words = Counter(word for code in letters for word in letter_name(code).split())
    families: dict[str, list[int]] = {}
    for code in letters:
        families.setdefault(letter_name(code).split(" with ")[0], []).append(code)
    eligible = [name for name in families if len(families[name]) >= _FAMILY_MEMBERS]

    seen: list[int] = []
    unseen: list[int] = []
    for name in rng.permutation(eligible):
        members = families[name]
        most = min(_FAMILY_MOST, int(_FAMILY_SHARE * len(members)) // 2 * 2, 2 * (SEEN - len(seen)))
        chosen: list[int] = []
        for code in rng.permutation(members).tolist():
            after = words - Counter(letter_name(code).split())
            if len(chosen) < most and all(
                after[w] >= _WORD_IN_PRETRAINING for w in letter_name(code).split()
            ):
                words = after
                chosen.append(code)
        if len(chosen) % 2:
            words += Counter(letter_name(chosen.pop()).split())
        seen += chosen[::2]
        unseen += chosen[1::2]
    if (len(seen), len(unseen)) != (SEEN, UNSEEN):
        raise RuntimeError(f"the families give {len(seen)} + {len(unseen)} letters, not {SEEN} + {UNSEEN}")
    return (*rng.permutation(seen).tolist(), *rng.permutation(unseen).tolist())


def pretraining_letters() -> tuple[int, ...]:
    """The letters that are not in the suite and do not look like one that is."""
    suite = set(suite_letters())
    return tuple(code for code in distinct_letters() if code not in suite)
