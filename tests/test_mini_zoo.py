"""The embedded families: they load, they are what they say they are, and there is something to predict."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor
from torch.nn import functional as F

from genbench.data.glyphs import DATASET
from genbench.data.images import ImageData
from genbench.errors import UserError
from genbench.plugin.offers import BackboneRequest, DataRequest
from genbench.zoo.loaded import LoadedBackbone
from genbench.zoo.mini import BACKBONES, pretrain
from genbench.zoo.mini.files import FOLDER
from genbench.zoo.mini.lessons import imitation
from genbench.zoo.mini.muon import Muon, orthogonal
from genbench.zoo.mini.sizes import SIZES
from genbench.zoo.mini.tokens import Tokenizer

CLIP = [f"mini-clip:short{width}" for width in range(2, 10)]
VIT = [f"mini-clip-vit:w{width}" for width in (24, 32, 40, 48, 64, 56, 96)]
EFFICIENTNET = [f"mini-efficientnet:b{k}" for k in range(8)]
REGNET = [f"mini-regnet:x{k}" for k in range(1, 7)]
WITH_TEXT = CLIP + VIT
ALL = WITH_TEXT + EFFICIENTNET + REGNET
FAMILIES = {
    "clip": CLIP,
    "vit": VIT,
    "efficientnet": EFFICIENTNET,
    "regnet": REGNET,
}
"""Backbones that are compared with each other, smallest first."""
BY_NAME = {backbone.name: backbone for backbone in BACKBONES}

# Depth coefficients of b0 to b7, as Tan and Le released them in 2019.
DEPTH = (1.0, 1.1, 1.2, 1.4, 1.8, 2.2, 2.6, 3.1)
STAGES = 5


@pytest.fixture(scope="module", autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def glyphs() -> ImageData:
    return DATASET.load(DataRequest())


@pytest.fixture(scope="module")
def loaded() -> dict[str, LoadedBackbone]:
    return {backbone.name: backbone.load(BackboneRequest()) for backbone in BACKBONES}


def _files(name: str) -> tuple[Path, Path]:
    stem = FOLDER / name.replace(":", "-")
    return stem.with_suffix(".safetensors"), stem.with_suffix(".json")


def _features(backbone: LoadedBackbone, images: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.cat([backbone.module(backbone.preprocess(part)) for part in images.split(600)])


def _text_accuracy(backbone: LoadedBackbone, glyphs: ImageData) -> float:
    """50-way accuracy on the unseen classes, from their names alone: of every fourth image."""
    unseen = torch.nonzero(glyphs.heldout.labels >= 50).flatten()[::4]
    prompts = [backbone.prompt.format(name=name) for name in glyphs.class_names[50:]]
    images = F.normalize(_features(backbone, glyphs.heldout.images[unseen]), dim=-1)
    guesses = (images @ backbone.encode_text(prompts).T).argmax(dim=1) + 50
    return (guesses == glyphs.heldout.labels[unseen]).float().mean().item()


def _probe_error(backbone: LoadedBackbone, glyphs: ImageData) -> float:
    """Held-out error of a linear probe on the clean seen classes, every other image of each."""
    features, labels = [], []
    for split in (glyphs.train, glyphs.heldout):
        seen = torch.nonzero(split.labels < 50).flatten()[::2]
        features.append(_features(backbone, split.images[seen]))
        labels.append(split.labels[seen].numpy())
    mean, scale = features[0].mean(dim=0), features[0].std(dim=0) + 1e-6
    train, heldout = (((f - mean) / scale).numpy() for f in features)
    probe = LogisticRegression(C=0.1, tol=1e-3, max_iter=300).fit(train, labels[0])
    return 1 - float(probe.score(heldout, labels[1]))


def test_there_are_four_families() -> None:
    assert [backbone.name for backbone in BACKBONES] == ALL
    for backbone in BACKBONES:
        assert backbone.family == backbone.name.split(":")[0]
        assert backbone.available(BackboneRequest()).ready


@pytest.mark.parametrize("name", ALL)
def test_a_backbone_is_what_its_record_says(name: str, loaded: dict[str, LoadedBackbone]) -> None:
    record, backbone = BY_NAME[name], loaded[name]
    assert backbone.name == name
    assert not any(module.training for module in backbone.module.modules())
    parameters = list(backbone.module.parameters())
    assert backbone.weight_count == record.weight_count == sum(p.numel() for p in parameters)
    assert all(p.dtype == torch.float32 and torch.equal(p, p.half().float()) for p in parameters)
    raw = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = backbone.module(backbone.preprocess(raw))
    assert features.shape == (3, backbone.feature_width) == (3, record.feature_width)
    assert features.isfinite().all()
    assert (backbone.encode_text is None) == (name not in WITH_TEXT)


@pytest.mark.parametrize("name", ALL)
def test_hash_and_training_log_are_kept_beside_the_weights(
    name: str, loaded: dict[str, LoadedBackbone]
) -> None:
    weights, card_file = _files(name)
    card = json.loads(card_file.read_text())
    assert loaded[name].weights_hash == hashlib.sha256(weights.read_bytes()).hexdigest() == card["sha256"]
    assert card["weight_count"] == loaded[name].weight_count
    assert len(card["log"]) >= 10
    assert card["log"][-1]["loss"] < 0.75 * card["log"][0]["loss"]


@pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES.keys())
def test_the_largest_has_at_least_12_times_the_weights_of_the_smallest(
    family: list[str], loaded: dict[str, LoadedBackbone]
) -> None:
    counts = [loaded[name].weight_count for name in family]
    assert counts == sorted(counts)
    assert counts[-1] >= 12 * counts[0]


def test_all_files_together_are_at_most_25_mb_and_pretraining_at_most_2_hours() -> None:
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= 25_000_000
    minutes = [json.loads(_files(name)[1].read_text())["minutes"] for name in ALL]
    assert all(m > 0 for m in minutes)
    assert sum(minutes) <= 120


def test_the_towers_are_made_of_the_libraries_own_classes(loaded: dict[str, LoadedBackbone]) -> None:
    from efficientnet_pytorch import EfficientNet
    from efficientnet_pytorch.model import MBConvBlock
    from open_clip.modified_resnet import ModifiedResNet
    from open_clip.transformer import VisionTransformer
    from timm.models.regnet import RegNet

    assert all(type(loaded[name].module) is ModifiedResNet for name in CLIP)
    assert all(type(loaded[name].module) is VisionTransformer for name in VIT)
    assert all(type(loaded[name].module) is RegNet for name in REGNET)
    for name, depth in zip(EFFICIENTNET, DEPTH, strict=True):
        modules = list(loaded[name].module.modules())
        assert sum(type(module) is EfficientNet for module in modules) == 1
        assert sum(type(module) is MBConvBlock for module in modules) == STAGES * math.ceil(depth)


def test_a_damaged_weights_file_is_named(tmp_path: Path) -> None:
    for path in _files(CLIP[0]):
        shutil.copy(path, tmp_path)
    request = BackboneRequest(weights=tmp_path)
    BY_NAME[CLIP[0]].load(request)
    copy = tmp_path / "mini-clip-short2.safetensors"
    content = bytearray(copy.read_bytes())
    content[-5] ^= 1
    copy.write_bytes(content)
    with pytest.raises(UserError, match=r"is damaged.*genbench\.zoo\.mini\.pretrain") as caught:
        BY_NAME[CLIP[0]].load(request)
    assert str(copy) in str(caught.value)
    card = tmp_path / "mini-clip-short2.json"
    card.write_text("{")
    with pytest.raises(UserError, match=r"mini-clip-short2\.json cannot be read"):
        BY_NAME[CLIP[0]].load(request)
    card.unlink()
    found = BY_NAME[CLIP[0]].available(request)
    assert not found.ready
    assert str(card) in found.detail


def test_loading_leaves_the_global_random_state_alone() -> None:
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    for name in (CLIP[0], VIT[0], EFFICIENTNET[0], REGNET[0]):
        BY_NAME[name].load(BackboneRequest())
    assert torch.equal(torch.rand(3), expected)


def test_preprocessing_takes_grey_images_of_any_size(loaded: dict[str, LoadedBackbone]) -> None:
    grey = torch.full((2, 1, 28, 40), 255, dtype=torch.uint8)
    prepared = loaded[CLIP[0]].preprocess(grey)
    assert prepared.shape == (2, 3, 32, 32)
    assert prepared.dtype == torch.float32
    assert torch.allclose(prepared, torch.full((2, 3, 32, 32), 2.0))  # (1 - 1/2) / (1/4)


def test_names_become_unit_vectors_in_which_a_letter_counts_more_than_its_accent(
    loaded: dict[str, LoadedBackbone],
) -> None:
    names = ["latin small letter a with acute", "latin small letter a with grave", "greek small letter omega"]
    for name in WITH_TEXT:
        embeddings = loaded[name].encode_text(names)
        assert embeddings.shape == (3, loaded[name].feature_width)
        assert torch.allclose(embeddings.norm(dim=1), torch.ones(3), atol=1e-5)
        acute_grave, acute_omega = (embeddings[0] @ embeddings[1:].T).tolist()
        # Towers that were taught by another look at its stages more than at names, and may not tell accents.
        assert acute_omega < acute_grave


def test_words_nobody_was_taught_are_left_out() -> None:
    tokenizer = Tokenizer(["acute", "latin", "letter"])
    assert torch.equal(tokenizer(["latin letter"]), tokenizer(["a photo of Latin letter"]))
    row = tokenizer(["letter acute"])[0].tolist()
    assert row.index(max(row)) == 3  # start, two words, end: the end is where the tower reads
    assert tokenizer(["acute " * 40]).shape == tokenizer(["acute"]).shape


def test_a_letter_is_never_twice_in_a_batch_and_every_image_is_shown() -> None:
    pool = torch.arange(10 * 3).reshape(10, 3)
    batches = pretrain._batches(pool, 5, np.random.default_rng(0))
    shown: list[int] = []
    for _ in range(6):
        images, letters = next(batches)
        assert len(set(letters.tolist())) == len(letters) == 5
        assert torch.equal(images // 3, letters)
        shown += images.tolist()
    assert sorted(shown) == list(range(30))


def test_muon_moves_a_matrix_equally_in_all_directions() -> None:
    left, right = (torch.linalg.qr(torch.randn(n, 6))[0] for n in (20, 6))
    gradient = left @ torch.diag(torch.logspace(0, -1.5, 6)) @ right.T
    for matrix, u, v in ((gradient, left, right), (gradient.T, right, left)):
        moved = u.T @ orthogonal(matrix) @ v
        assert 0.6 < moved.diagonal().min() <= moved.diagonal().max() < 1.3
        assert (moved - moved.diagonal().diag()).abs().max() < 1e-4


@pytest.mark.parametrize("start", pretrain.RECIPES)
def test_every_parameter_has_one_optimizer(start: str) -> None:
    tower = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4))
    model = torch.nn.Sequential(tower, torch.nn.Linear(4, 5))
    model.register_parameter("positional_embedding", torch.nn.Parameter(torch.zeros(5, 4)))
    optimizers = [optimizer for optimizer, _ in pretrain._optimizers(model, pretrain.RECIPES[start])]
    moved = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    assert sorted(map(id, moved)) == sorted(map(id, model.parameters()))
    by_muon = [group["params"] for o in optimizers if isinstance(o, Muon) for group in o.param_groups]
    assert by_muon in ([], [[tower[0].weight]])


@pytest.mark.parametrize("name", [CLIP[0], VIT[0], REGNET[0]])
def test_a_teacher_is_looked_at_and_not_trained(name: str, loaded: dict[str, LoadedBackbone]) -> None:
    teacher = loaded[REGNET[-1]].module
    before = {key: value.clone() for key, value in teacher.state_dict().items()}
    names = ["latin small letter a", "greek small letter omega"]
    family, key = name.split(":")
    torch.manual_seed(0)
    lesson = imitation(name, SIZES[family][key], names, Tokenizer(["latin", "greek"]), teacher)
    own = {id(parameter) for parameter in lesson.model.parameters()}
    assert own.isdisjoint(id(parameter) for parameter in teacher.parameters())
    lesson.model.train()
    lesson.loss(torch.randn(2, 3, 32, 32), torch.tensor([0, 1])).backward()
    assert all(torch.equal(before[key], value) for key, value in teacher.state_dict().items())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    reached = [parameter for parameter in lesson.tower.parameters() if parameter.grad is not None]
    assert len(reached) == len(list(lesson.tower.parameters()))


@pytest.mark.parametrize("name", [CLIP[0], VIT[0], EFFICIENTNET[0], REGNET[0]])
def test_the_pretraining_script_learns_and_repeats_itself(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from genbench.data.glyphs.letters import pretraining_letters
    from genbench.data.glyphs.render import draw

    letters = pretraining_letters()[:12]
    pool = torch.stack(
        [torch.stack([torch.from_numpy(draw(c, "pretrain", i)) for i in range(6)]) for c in letters]
    )
    start = next(start for start in pretrain.RECIPES if name.startswith(start))
    short = replace(pretrain.RECIPES[start], images=720, batch=12)
    monkeypatch.setitem(pretrain.RECIPES, start, short)
    contents = []
    for folder in (tmp_path / "one", tmp_path / "two"):
        folder.mkdir()
        pretrain.pretrain(name, letters, pool, folder)
        contents.append((folder / f"{name.replace(':', '-')}.safetensors").read_bytes())
    assert contents[0] == contents[1]
    log = json.loads((tmp_path / "one" / f"{name.replace(':', '-')}.json").read_text())["log"]
    assert log[-1]["loss"] < 0.9 * log[0]["loss"]
    again = BY_NAME[name].load(BackboneRequest(weights=tmp_path / "one"))
    assert again.weights_hash == hashlib.sha256(contents[0]).hexdigest()


def test_the_pretraining_script_skips_what_is_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path: path.stat().st_mtime_ns for path in FOLDER.iterdir()}
    monkeypatch.setattr("sys.argv", ["pretrain", "--threads", "1"])
    pretrain.main()
    assert "nothing to do" in capsys.readouterr().out
    assert before == {path: path.stat().st_mtime_ns for path in FOLDER.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", [CLIP, VIT, EFFICIENTNET, REGNET], ids=["clip", "vit", "efficientnet", "regnet"]
)
def test_towers_know_much_and_not_all(
    family: list[str], loaded: dict[str, LoadedBackbone], glyphs: ImageData
) -> None:
    """The smallest, one between, the largest; random weights have a probe error of .98, of 50 classes."""
    errors = {name: _probe_error(loaded[name], glyphs) for name in (family[0], family[4], family[-1])}
    print({name: round(error, 4) for name, error in errors.items()})
    assert all(0.01 <= error <= 0.45 for error in errors.values())


@pytest.mark.parametrize("family", [CLIP, VIT], ids=["clip", "vit"])
def test_names_alone_classify_unseen_letters(
    family: list[str], loaded: dict[str, LoadedBackbone], glyphs: ImageData
) -> None:
    accuracies = [_text_accuracy(loaded[name], glyphs) for name in family]
    print({name: round(accuracy, 4) for name, accuracy in zip(family, accuracies, strict=True)})
    assert min(accuracies) >= 5 / 50


def test_names_of_other_letters_do_not_classify_unseen_letters(
    loaded: dict[str, LoadedBackbone], glyphs: ImageData
) -> None:
    """The text head reads the names: with the names of the wrong classes it is at chance."""
    unseen = glyphs.heldout.labels >= 50
    names = glyphs.class_names[50:]
    images = F.normalize(_features(loaded[CLIP[-1]], glyphs.heldout.images[unseen]), dim=-1)
    shifted = loaded[CLIP[-1]].encode_text(names[25:] + names[:25])
    guesses = (images @ shifted.T).argmax(dim=1) + 50
    assert (guesses == glyphs.heldout.labels[unseen]).float().mean() < 0.06
