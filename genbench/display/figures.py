"""What all matplotlib figures have in common: their style, and how they get onto a page or into a file.

`write_png` saves a figure on white; `inline_svg` gives it as an SVG element whose ink is the colour of the
text around it, so that it can be read on a light and on a dark page.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from genbench.errors import UserError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GROUPS", "GROUP_MARKERS", "INK", "inline_svg", "styled", "write_pdf", "write_png"]

F = TypeVar("F", bound=Callable[..., Any])

INK = "#1f2731"
"""Text and axes; `inline_svg` hands it over to the page."""
GROUPS = ("#2b8cc4", "#d55e00", "#009e73", "#cc79a7", "#e0a000", "#7f7f7f")
"""Okabe and Ito's colours, told apart by colour-blind eyes; mid-tones, seen on white and on black."""
GROUP_MARKERS = "osD^vP"

_STYLE: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # comes with matplotlib, so figures look alike everywhere
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "lines.linewidth": 1.4,
    "lines.markersize": 4,
    "text.parse_math": False,  # names may hold a dollar
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color", "grid.color"), INK
    ),
}


def styled(function: F) -> F:
    """Draw in the house style, whatever the user's own settings are."""

    @wraps(function)
    def wrapped(*args: Any, **options: Any) -> Any:
        import matplotlib

        # Starting from the defaults: a user's own matplotlibrc must not change a report.
        settings: Any = {**dict(matplotlib.rcParamsDefault), "backend": "agg", **_STYLE}
        with matplotlib.rc_context(settings):
            return function(*args, **options)

    return wrapped  # type: ignore[return-value]


@styled
def write_png(figure: Figure, path: Path, dpi: int = 180) -> None:
    """Save a figure on white."""
    try:
        # The same bytes for the same figure: no creation date, no version.
        figure.savefig(path, format="png", dpi=dpi, facecolor="white", metadata={"Software": None})
    except OSError as problem:
        raise UserError(f"{path} cannot be written: {problem.strerror or problem}") from None


@styled
def inline_svg(figure: Figure, description: str) -> str:
    """A figure as an SVG element for an HTML page, in the page's own font and text colour.

    Parameters
    ----------
    description : what a screen reader says; also keeps the ids of two figures apart.
    """
    import html

    import matplotlib

    buffer = io.StringIO()
    nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
    with matplotlib.rc_context({"svg.hashsalt": description}):
        figure.savefig(buffer, format="svg", transparent=True, metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    # Names of parts, alike in every figure; rules for lines that would hold for the whole page.
    text = re.sub(r'<g id="[^"]*"(/?)>', r"<g\1>", text)
    text = re.sub(r"<style[^>]*>.*?</style>\s*", "", text, flags=re.DOTALL)
    text = text.replace(INK, "currentColor").replace("'DejaVu Sans'", "inherit")
    size = re.search(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', text)
    assert size is not None
    head = (
        f'<svg viewBox="0 0 {size[1]} {size[2]}" style="max-width: {float(size[1]) * 4 / 3:.0f}px; '
        f'stroke-linejoin: round; stroke-linecap: butt" '
        f'role="img" aria-label="{html.escape(description)}">'
    )
    return head + text[text.index(">") + 1 :]


def write_pdf(figure: Figure, path: Path) -> None:
    """Save a figure for a paper; without a creation date, so that the same figure gives the same bytes."""
    figure.savefig(
        path, format="pdf", metadata={"CreationDate": None, "Creator": "genbench", "Producer": None}
    )
