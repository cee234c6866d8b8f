"""Glyph outlines of the DejaVu fonts that matplotlib ships, and a small exact rasteriser for them.

Only the outlines, in unscaled font units, come from FreeType; the pixels come from the few lines of numpy
below. So the images do not depend on the hinting or anti-aliasing of any FreeType or Pillow version, and
any rotation or scale is drawn from the curves themselves, without resampling.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from genbench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

__all__ = ["DOMAINS", "FONTS", "SUBSAMPLES", "Segments", "coverage", "font_hashes", "outline", "supported"]

Segments = NDArray[np.float64]
"""(n, 4): line segments x0, y0, x1, y1 of closed contours, y pointing down."""

DOMAINS = ("sans", "mono", "serif")
"""Font families, recorded as the domain of each image."""

FONTS: dict[str, tuple[str, ...]] = {
    "sans": ("DejaVuSans", "DejaVuSans-Bold", "DejaVuSans-Oblique", "DejaVuSans-BoldOblique"),
    "mono": ("DejaVuSansMono", "DejaVuSansMono-Bold", "DejaVuSansMono-Oblique", "DejaVuSansMono-BoldOblique"),
    "serif": ("DejaVuSerif", "DejaVuSerif-Bold", "DejaVuSerif-Italic", "DejaVuSerif-BoldItalic"),
}
"""The four styles of each family."""

SUBSAMPLES = 4
"""Each pixel is sampled on a grid of SUBSAMPLES x SUBSAMPLES points."""

_MOVETO, _LINETO, _CURVE3 = 1, 2, 3
# Eighths are exact in binary, and a chord of an eighth of a stroke's curve is far below a subsample.
_CURVE_STEPS = np.arange(1, 9, dtype=np.float64) / 8


def _font_file(font: str) -> Path:
    try:
        import matplotlib
    except ImportError as error:
        raise UserError(
            "drawing glyphs needs the DejaVu fonts that come with matplotlib: run `pip install matplotlib`"
        ) from error
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / f"{font}.ttf"


def font_hashes() -> dict[str, str]:
    """sha256 of every font file: what the images really depend on."""
    return {
        font: hashlib.sha256(_font_file(font).read_bytes()).hexdigest()
        for fonts in FONTS.values()
        for font in fonts
    }


def supported(limit: int) -> list[int]:
    """Code points below `limit` that are in all fonts, in order."""
    charmaps = [set(_face(font).get_charmap()) for fonts in FONTS.values() for font in fonts]
    return sorted(int(code) for code in set.intersection(*charmaps) if code < limit)


@functools.cache
def _face(font: str) -> FT2Font:
    from matplotlib.ft2font import FT2Font

    return FT2Font(_font_file(font))


@functools.cache
def outline(font: str, code: int) -> Segments:
    """The contours of a letter, its bounding box centred on 0 and the box's longer side scaled to 1."""
    from matplotlib.ft2font import LoadFlags

    face = _face(font)
    face.load_char(code, flags=LoadFlags.NO_SCALE)
    vertices, codes = face.get_path()
    segments = _flatten(np.asarray(vertices, dtype=np.float64), codes)
    segments[:, 1::2] *= -1  # fonts have y up, images have it down
    points = segments.reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    points -= (low + high) / 2
    points /= (high - low).max()
    return segments


def _flatten(vertices: NDArray[np.float64], codes: NDArray[Any]) -> Segments:
    """Contours of lines and quadratic curves as line segments, in no particular order."""
    lines: list[NDArray[np.float64]] = []
    curves: list[NDArray[np.float64]] = []
    start = here = 0
    i = 0
    while i < len(codes):
        code = codes[i]
        if code == _MOVETO:
            start = here = i
        elif code == _LINETO:
            lines.append(vertices[[here, i]])
            here = i
        elif code == _CURVE3:
            curves.append(vertices[[here, i, i + 1]])
            i += 1
            here = i
        else:  # the end of a contour
            lines.append(vertices[[here, start]])
            here = start
        i += 1
    pieces = [np.stack(lines).reshape(-1, 4)]
    if curves:
        first, control, last = np.stack(curves, axis=1)[:, :, None]
        t = _CURVE_STEPS[:, None]
        points = (1 - t) * (1 - t) * first + 2 * t * (1 - t) * control + t * t * last
        before = np.concatenate([first, points[:, :-1]], axis=1)
        pieces.append(np.concatenate([before, points], axis=2).reshape(-1, 4))
    return np.vstack(pieces)


def coverage(segments: Segments, side: int) -> NDArray[np.int64]:
    """How many of a pixel's SUBSAMPLES² points lie inside the outline: (side, side) integers.

    The non-zero winding rule along each row of points. `segments` are in pixels, 0 to `side`.
    """
    n = side * SUBSAMPLES
    x0, y0, x1, y1 = (segments * SUBSAMPLES).T
    rows = np.arange(n) + 0.5
    crosses = (np.minimum(y0, y1)[:, None] <= rows) & (rows < np.maximum(y0, y1)[:, None])
    which, row = np.nonzero(crosses)
    x = x0[which] + (rows[row] - y0[which]) * ((x1[which] - x0[which]) / (y1[which] - y0[which]))
    column = np.clip(np.ceil(x - 0.5), 0, n).astype(np.int64)
    direction = np.where(y1[which] > y0[which], 1.0, -1.0)
    turns = np.bincount(row * (n + 1) + column, weights=direction, minlength=n * (n + 1))
    inside = turns.reshape(n, n + 1).cumsum(axis=1)[:, :n] != 0
    counts: NDArray[np.int64] = inside.reshape(side, SUBSAMPLES, side, SUBSAMPLES).sum(axis=(1, 3))
    return counts
