"""Figures of pages are drawn once for the same inputs, and anew for others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
import xarray as xr

from genbench.display import kept_figures
from genbench.display.kept_figures import figures_kept_in, inlined

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWINGS: list[Any] = []


@dataclass(frozen=True)
class Bar:
    height: float


class Label(msgspec.Struct):
    text: str


def draw(*inputs: Any, **options: Any) -> Figure:
    from matplotlib.figure import Figure

    DRAWINGS.append(inputs)
    figure = Figure(figsize=(1, 1))
    figure.subplots().set_title(f"drawing {len(DRAWINGS)}")
    return figure


@pytest.fixture(autouse=True)
def forgotten(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Nothing is drawn yet, nothing is in memory; calling it empties the memory, as a new process would."""
    DRAWINGS.clear()
    monkeypatch.setattr(kept_figures, "_DRAWN", {})
    return lambda: monkeypatch.setattr(kept_figures, "_DRAWN", {})


def test_drawn_once_for_all_processes(tmp_path: Path, forgotten: Callable[[], None]) -> None:
    with figures_kept_in(tmp_path):
        first = inlined("a bar", draw, [Bar(1.0)], scale="log")
        forgotten()
        assert inlined("a bar", draw, [Bar(1.0)], scale="log") == first
    assert len(DRAWINGS) == 1
    assert "drawing 1" in first
    assert 'aria-label="a bar"' in first


def test_in_memory_without_a_folder() -> None:
    assert inlined("a bar", draw, 1) == inlined("a bar", draw, 1)
    assert len(DRAWINGS) == 1


DATA = xr.Dataset({"error": ("model", [0.1, 0.2])}, coords={"model": ["a", "b"]}, attrs={"kappa": "linear"})
DIFFERENT: list[tuple[Any, Any]] = [
    (Bar(1.0), Bar(1.0 + 1e-15)),
    (Label("a"), Label("b")),
    (1, 1.0),
    (True, 1),
    ("1", 1),
    (None, "None"),
    ([1, 2], [2, 1]),
    ([[1], 2], [[1, 2]]),
    ([["a"], []], [[], ["a"]]),
    (["ab", "c"], ["a", "bc"]),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}),  # the order of groups is that of colours
    (np.arange(4), np.arange(4.0)),
    (np.arange(4), np.arange(4).reshape(2, 2)),
    (np.array([0.0]), np.array([-0.0])),
    (np.array(["a"], dtype=object), np.array(["b"], dtype=object)),
    (DATA, DATA.assign(error=("model", [0.1, 0.3]))),
    (DATA, DATA.assign_coords(model=["a", "c"])),
    (DATA, DATA.assign_attrs(kappa="quadratic")),
]


@pytest.mark.parametrize("number", range(len(DIFFERENT)))
def test_other_inputs_are_drawn_anew(number: int, tmp_path: Path) -> None:
    one, other = DIFFERENT[number]
    with figures_kept_in(tmp_path):
        assert inlined("x", draw, one) != inlined("x", draw, other)
        inlined("x", draw, one)
    assert len(DRAWINGS) == 2


def test_what_cannot_be_told_apart_is_refused() -> None:
    with pytest.raises(TypeError, match="may not be a object"):
        inlined("x", draw, object())


def test_other_code_draws_anew(tmp_path: Path, forgotten: Callable[[], None], monkeypatch: Any) -> None:
    monkeypatch.setattr(kept_figures, "_PACKAGE", tmp_path)
    source = tmp_path / "colours.py"
    source.write_text("INK = 1")
    with figures_kept_in(tmp_path / "kept"):
        kept_figures._code.cache_clear()
        inlined("x", draw)
        source.write_text("INK = 22")
        kept_figures._code.cache_clear()
        inlined("x", draw)
    kept_figures._code.cache_clear()
    assert len(DRAWINGS) == 2


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"0" * 64 + b"\n<svg></svg>"])
def test_a_damaged_file_is_drawn_anew(content: bytes, tmp_path: Path, forgotten: Callable[[], None]) -> None:
    with figures_kept_in(tmp_path):
        inlined("x", draw)
        (file,) = tmp_path.iterdir()
        file.write_bytes(content)
        forgotten()
        assert "drawing 2" in inlined("x", draw)
        forgotten()
        assert "drawing 2" in inlined("x", draw)


def test_a_folder_that_cannot_be_written_does_not_matter(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with figures_kept_in(tmp_path / "file" / "figures"):
        assert "drawing 1" in inlined("x", draw)


def test_the_oldest_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_figures, "_MOST_KEPT", 3)
    with figures_kept_in(tmp_path):
        for number in range(5):
            inlined("x", draw, number)
    assert len(list(tmp_path.iterdir())) == 3
