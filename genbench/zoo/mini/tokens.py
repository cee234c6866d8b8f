"""The tokenizer of mini-clip: a token for each word of the Unicode names that pretraining used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

__all__ = ["CONTEXT", "Tokenizer"]

CONTEXT = 12
"""Tokens of the longest name with its two ends, and a little room."""

_PAD, _START, _FIRST_WORD = 0, 1, 2


class Tokenizer:
    """Names to token ids: start, one id per known word, end, padding.

    The end has the highest id, because open_clip's text tower reads its output where the id is largest.
    Words outside the vocabulary are left out: they were never trained and could only add noise.
    """

    def __init__(self, words: Sequence[str]) -> None:
        self.words = tuple(words)
        self._ids = {word: _FIRST_WORD + i for i, word in enumerate(words)}
        self._end = _FIRST_WORD + len(words)
        self.vocabulary_size = self._end + 1

    def __call__(self, names: Iterable[str]) -> Tensor:
        """(number of names, CONTEXT) int64."""
        rows = []
        for name in names:
            words = [self._ids[word] for word in name.lower().split() if word in self._ids]
            row = [_START, *words[: CONTEXT - 2], self._end]
            rows.append(row + [_PAD] * (CONTEXT - len(row)))
        return torch.tensor(rows, dtype=torch.int64, device="cpu").reshape(-1, CONTEXT)
