"""The embedded glyphs: what was drawn, which letters, and that the file is what the script makes."""

from __future__ import annotations

import hashlib
import json
import lzma
import math
import shutil
import subprocess
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import ImageFont

from genbench.data.glyphs import CARD, DATASET, FILE, FOLDER
from genbench.data.glyphs.letters import all_letters, distinct_letters, pretraining_letters, suite_letters
from genbench.data.glyphs.make import split_arrays
from genbench.data.glyphs.outline import coverage
from genbench.data.glyphs.render import draw
from genbench.data.images import ImageData
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest


@pytest.fixture(scope="module")
def glyphs() -> ImageData:
    return DATASET.load(DataRequest())


@pytest.fixture(scope="module")
def card() -> dict:
    return json.loads((FOLDER / CARD).read_text(encoding="utf-8"))


def _copy(folder: Path) -> Path:
    for name in (FILE, CARD):
        shutil.copy(FOLDER / name, folder)
    return folder / FILE


def _family(name: str) -> str:
    return name.split(" with ")[0]


def _contour(points: np.ndarray) -> np.ndarray:
    return np.hstack([points, np.roll(points, -1, axis=0)])


def test_the_file_has_two_splits_of_100_balanced_classes_and_three_domains(glyphs: ImageData) -> None:
    assert DATASET.available(DataRequest()).ready
    assert glyphs.domain_names == ("sans", "mono", "serif")
    assert len(glyphs.class_names) == len(set(glyphs.class_names)) == DATASET.classes == 100
    for split in (glyphs.train, glyphs.heldout):
        assert split.images.dtype == torch.uint8
        assert split.images.shape == (len(split), 3, 32, 32)
        cells = Counter(zip(split.labels.tolist(), split.domains.tolist(), strict=True))
        assert len(cells) == 300
        assert len(set(cells.values())) == 1
    assert (FOLDER / FILE).stat().st_size <= 8_000_000


def test_the_script_draws_the_same_bytes_again(glyphs: ImageData, card: dict) -> None:
    for split, data in (("train", glyphs.train), ("heldout", glyphs.heldout)):
        per_class = len(data) // 100
        for label in (0, 23, 49, 50, 77, 99):
            code = int(card["classes"][label]["code"].removeprefix("U+"), 16)
            for i in (0, 1, 2, 17, per_class - 1):
                again = torch.from_numpy(draw(code, split, i))
                assert torch.equal(again, data.images[label * per_class + i]), (split, label, i)


def test_the_script_lays_out_a_class_as_the_file_has_it(glyphs: ImageData) -> None:
    arrays = split_arrays("heldout", suite_letters()[:1])
    n = len(glyphs.heldout) // 100
    assert np.array_equal(arrays["heldout.images"], glyphs.heldout.images[:n].numpy())
    assert np.array_equal(arrays["heldout.labels"], glyphs.heldout.labels[:n].numpy())
    assert np.array_equal(arrays["heldout.domains"], glyphs.heldout.domains[:n].numpy())


def test_the_card_tells_the_truth(glyphs: ImageData, card: dict) -> None:
    packed = (FOLDER / FILE).read_bytes()
    assert card["sha256"] == hashlib.sha256(packed).hexdigest()
    assert glyphs.content_hash == hashlib.sha256(lzma.decompress(packed)).hexdigest()
    fonts = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    assert len(card["fonts"]) == 12
    for font, digest in card["fonts"].items():
        assert hashlib.sha256((fonts / f"{font}.ttf").read_bytes()).hexdigest() == digest
    for entry in card["classes"]:
        assert entry["name"] == unicodedata.name(chr(int(entry["code"][2:], 16))).lower()
    assert tuple(entry["name"] for entry in card["classes"]) == glyphs.class_names


def test_a_damaged_file_is_named_with_the_way_to_rebuild_it(tmp_path: Path) -> None:
    path = _copy(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"glyphs\.xz is damaged.*genbench\.data\.glyphs\.make") as caught:
        DATASET.load(DataRequest(root=tmp_path))
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", ["", "{}", "[]"])
def test_a_damaged_card_is_named(tmp_path: Path, content: str) -> None:
    _copy(tmp_path)
    (tmp_path / CARD).write_text(content)
    with pytest.raises(UserError, match=r"glyphs\.json cannot be read"):
        DATASET.load(DataRequest(root=tmp_path))


def test_a_missing_card_makes_the_data_unavailable(tmp_path: Path) -> None:
    _copy(tmp_path)
    (tmp_path / CARD).unlink()
    found = DATASET.available(DataRequest(root=tmp_path))
    assert not found.ready
    assert str(tmp_path / CARD) in found.detail


def test_a_folder_without_glyphs_falls_back_on_the_package(tmp_path: Path) -> None:
    assert DATASET.available(DataRequest(root=tmp_path)) == DATASET.available(DataRequest())


def test_no_held_out_image_is_a_training_image(glyphs: ImageData) -> None:
    train, heldout = ({bytes(image.numpy()) for image in s.images} for s in (glyphs.train, glyphs.heldout))
    assert len(train) == len(glyphs.train)
    assert len(heldout) == len(glyphs.heldout)
    assert not train & heldout


def test_759_letters_are_in_all_fonts_and_look_alikes_are_kept_once() -> None:
    letters = all_letters()
    assert len(letters) == 759
    kept = set(distinct_letters())
    assert kept < set(letters)
    for one, other in (("a", "а"), ("o", "ο"), ("ö", "ӧ"), ("w", "ԝ")):  # Latin and its twin elsewhere
        assert ord(one) in kept
        assert ord(other) not in kept


def test_no_two_letters_that_pillow_draws_the_same_in_every_font_are_left(card: dict) -> None:
    """Pillow's renderer knows nothing of ours: cropped bitmaps that agree in all 12 fonts are one class."""
    folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
    fonts = [ImageFont.truetype(str(folder / f"{font}.ttf"), 28) for font in card["fonts"]]

    def bitmaps(code: int) -> tuple[bytes, ...]:
        masks = [font.getmask(chr(code)) for font in fonts]
        return tuple(repr(mask.size).encode() + bytes(mask) for mask in masks)

    drawn = {code: bitmaps(code) for code in all_letters()}
    assert len(set(drawn.values())) < len(drawn)  # the test can see twins
    assert len({drawn[code] for code in distinct_letters()}) == len(distinct_letters())


def test_no_suite_class_is_pretrained_on(glyphs: ImageData) -> None:
    suite, pretraining = set(suite_letters()), set(pretraining_letters())
    assert {unicodedata.name(chr(code)).lower() for code in suite} == set(glyphs.class_names)
    assert len(suite) == 100
    assert not suite & pretraining
    assert suite | pretraining == set(distinct_letters())


def test_every_word_of_a_class_name_is_in_the_pretraining_names(glyphs: ImageData) -> None:
    known = Counter(w for code in pretraining_letters() for w in unicodedata.name(chr(code)).lower().split())
    assert all(known[word] >= 3 for name in glyphs.class_names for word in name.split())


def test_fine_grained_neighbours_are_on_both_sides(glyphs: ImageData) -> None:
    seen, unseen = (
        Counter(map(_family, names)) for names in (glyphs.class_names[:50], glyphs.class_names[50:])
    )
    assert seen == unseen
    assert len(seen) >= 15
    assert sum(count >= 2 for count in seen.values()) >= 10


def test_coverage_of_a_rectangle_with_a_hole_is_exact() -> None:
    box = np.array([[4.0, 6.0], [20.0, 6.0], [20.0, 26.5], [4.0, 26.5]])
    hole = np.array([[8.0, 10.0], [8.0, 12.0], [12.0, 12.0], [12.0, 10.0]])  # the other way round
    counts = coverage(np.vstack([_contour(box), _contour(hole)]), 32)
    expected = np.zeros((32, 32), dtype=int)
    expected[6:26, 4:20] = 16
    expected[26, 4:20] = 8
    expected[10:12, 8:12] = 0
    assert np.array_equal(counts, expected)


def test_coverage_of_a_disc_has_its_area() -> None:
    angles = np.linspace(0, 2 * math.pi, 400, endpoint=False)
    disc = 16.3 + 11 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert coverage(_contour(disc), 32).sum() / 16 == pytest.approx(math.pi * 121, rel=5e-3)


def test_listing_the_embedded_data_and_zoo_does_not_import_torch() -> None:
    code = (
        "import sys\n"
        "from genbench.plugin.offers import BackboneRequest, DataRequest\n"
        "from genbench.data.glyphs import DATASET\n"
        "from genbench.zoo.mini import BACKBONES\n"
        "DATASET.available(DataRequest())\n"
        "[backbone.available(BackboneRequest()) for backbone in BACKBONES]\n"
        "print('torch' in sys.modules, 'matplotlib' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
