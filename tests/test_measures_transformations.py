"""Response curves of turned, shifted and recoloured images, and of blocks beyond the first."""

from __future__ import annotations

import inspect
import itertools
import math

import pytest
import torch
from torch import Tensor, nn

import genbench
from genbench.errors import UserError
from genbench.measures.transformations import perturbation_measure
from genbench.plugin.registry import load_registry
from genbench.subject.cut import cut_after_block
from genbench.subject.folding import fold_batch_norm
from genbench.subject.transformations import TRANSFORMATIONS

CHANGES = ("rotation", "horizontal", "vertical", "colour")
BLACK = torch.tensor([-1.0, -2.0, 0.5], dtype=torch.float64)


@pytest.fixture
def images() -> Tensor:
    return BLACK[:, None, None] + torch.rand(4, 3, 8, 8, dtype=torch.float64)


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """By whole pixels, black coming in; written out."""
    out = BLACK[:, None, None].expand_as(images).clone()
    for row in range(8):
        for column in range(8):
            if 0 <= row - down < 8 and 0 <= column - right < 8:
                out[:, :, row, column] = images[:, :, row - down, column - right]
    return out


@pytest.mark.parametrize("share", [-1.0, -0.5, 0.25, 1.0])
def test_a_shift_is_a_share_of_half_the_side(images, share) -> None:
    pixels = round(4 * share)
    torch.testing.assert_close(
        TRANSFORMATIONS["horizontal"](images, share, BLACK), shifted(images, 0, pixels)
    )
    torch.testing.assert_close(TRANSFORMATIONS["vertical"](images, share, BLACK), shifted(images, pixels, 0))


def test_the_largest_rotation_is_a_quarter_turn(images) -> None:
    for share, turns in ((1.0, 1), (-1.0, -1)):
        found = TRANSFORMATIONS["rotation"](images, share, BLACK)
        torch.testing.assert_close(found, images.rot90(turns, (2, 3)), rtol=1e-6, atol=1e-6)
    # Half of it takes the corners out of the image and black in.
    half = TRANSFORMATIONS["rotation"](images, 0.5, BLACK)
    torch.testing.assert_close(half[:, :, 0, 0], BLACK.expand(4, 3))
    # And in an oblong image a disk stays round: what was above the centre is then beside it.
    spot = torch.zeros(1, 1, 9, 13, dtype=torch.float64)
    spot[0, 0, 1, 6] = 1.0
    turned = TRANSFORMATIONS["rotation"](spot, 1.0, torch.zeros(1, dtype=torch.float64))
    assert float(turned[0, 0, 4, 3]) == pytest.approx(1.0, abs=1e-6)


def test_two_thirds_of_the_hues_exchange_the_channels_and_brightness_is_kept(images) -> None:
    once = TRANSFORMATIONS["colour"](images, 2 / 3, BLACK)
    torch.testing.assert_close(once, images.roll(1, dims=1))
    for share in (-1.0, 0.3, 1.0):
        changed = TRANSFORMATIONS["colour"](images, share, BLACK)
        torch.testing.assert_close(changed.mean(1), images.mean(1))
        # Standardising before or after is the same.
        torch.testing.assert_close(
            TRANSFORMATIONS["colour"]((images - 3) / 7, share, BLACK), (changed - 3) / 7
        )


@pytest.mark.parametrize("change", CHANGES)
def test_no_change_is_none(images, change) -> None:
    torch.testing.assert_close(TRANSFORMATIONS[change](images, 0.0, BLACK), images)


def areas(curve: list[float]) -> list[float]:
    """Below a curve on 21 points from 0 to 1, up to each of them."""
    return list(itertools.accumulate(((a + b) / 40 for a, b in itertools.pairwise(curve)), initial=0.0))


def plain_gi(accuracy: list[float]) -> float:
    """003 Algorithm 2 on such a curve."""
    return areas([i / 20 - area for i, area in enumerate(areas(accuracy))])[-1] / 0.5


class WhichHalf(nn.Module):
    """Class 1 if the right half is brighter than the left one, class 0 otherwise."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[3] // 2
        difference = x[..., half:].sum((1, 2, 3)) - x[..., :half].sum((1, 2, 3))
        return torch.stack([torch.zeros_like(difference), difference - 1e-3], 1)


def halves(m: int) -> genbench.Subject:
    """A bright line 4½ pixels to the left or right of the centre of 20 × 20 black ones."""
    labels = torch.arange(m) % 2
    x = torch.zeros(m, 3, 20, 20)
    column = torch.where(labels == 1, 14, 5)
    x[torch.arange(m), 0, :, column] = 1.0
    return genbench.Subject.from_module(WhichHalf(), data=(x, labels))


def read(name: str, subject: genbench.Subject) -> genbench.Estimate:
    return load_registry().measures[name].item(subject.fresh())


def test_the_score_of_a_network_that_looks_left_and_right_in_closed_form() -> None:
    subject = halves(40)
    alpha, right = subject.transformed_curve("horizontal")
    assert (float(alpha[0]), float(alpha[-1]), len(alpha)) == (0.0, 1.0, 21)
    # Points are half a pixel apart. The line of class 1 is half across the middle after 4½ pixels one way,
    # and gone from the image after 6 the other way; that of class 0 is across after 5, and gone it is none.
    points = [i / 20 for i in range(21)]
    one = [1.0 if a < 0.45 else 0.5 if a < 0.6 else 0.0 for a in points]
    other = [1.0 if a < 0.5 else 0.5 for a in points]
    assert sorted(right.tolist()) == sorted([one, other] * 20)  # examples come in an order of their own
    accuracy = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
    assert read("gi_horizontal_l0", subject) == pytest.approx(plain_gi(accuracy))
    # Up and down makes no difference until black covers the line, which never is darker than nothing.
    assert read("gi_vertical_l0", subject) == 0.0
    assert read("gi_colour_l0", subject) == 0.0
    pal = perturbation_measure("pal", "horizontal")
    assert pal(subject.fresh()) == pytest.approx(areas(accuracy)[12] / areas(accuracy)[2])
    assert perturbation_measure("pal", "vertical")(subject.fresh()) == pytest.approx(6.0)


def test_examples_of_a_large_training_set_are_changed_one_way_at_a_point_and_the_other_at_the_next() -> None:
    _, right = halves(600).transformed_curve("horizontal")
    assert set(right.unique().tolist()) == {0.0, 1.0}
    # Lines at alpha = .5 and .55 are lost one way and kept the other: by every example at one of the two.
    torch.testing.assert_close(right[:, 10] + right[:, 11], torch.ones(256).double())
    _, both_ways = halves(40).transformed_curve("horizontal")
    torch.testing.assert_close(right.mean(0), both_ways.mean(0), rtol=0, atol=0.1)


def test_a_signed_sweep_goes_from_one_way_to_the_other() -> None:
    subject = halves(4)
    alpha, right = subject.transformed_curve("horizontal", "signed")
    # Class 0 lies to the left: shifts to the right, the second half of the sweep, lose it.
    ways = (2 * alpha - 1) * 10
    torch.testing.assert_close(right[0], (ways < 4.5 - 1e-6).double())
    torch.testing.assert_close(right[1], ((ways > -4.5) & (ways < 5.5)).double())
    signed = perturbation_measure("pal", "horizontal", sweep="signed")
    assert (signed.name, signed.higher_means) == ("pal_horizontal_signed_l0", "worse")
    # Half of the examples are right at the start: twice as much comes later.
    assert signed(subject.fresh()) > 6


def test_the_error_is_that_of_choosing_examples_and_none_where_all_are_seen() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 4))
    x = torch.rand(1500, 3, 8, 8)
    labels = model(x).argmax(1)
    few = read("gi_rotation_l0", genbench.Subject.from_module(model, data=(x[:200], labels[:200])))
    assert few.standard_error == 0
    some = read("gi_rotation_l0", genbench.Subject.from_module(model, data=(x, labels)))
    assert some.samples == 256
    accuracy = []
    black = x.amin(dim=(0, 2, 3))
    for a in torch.linspace(0, 1, 21).tolist():
        ways = [model(TRANSFORMATIONS["rotation"](x, s * a, black)).argmax(1) == labels for s in (-1, 1)]
        accuracy.append(torch.stack(ways).double().mean().item())
    lost = plain_gi(accuracy)
    assert 0 < some.standard_error < 0.1 * lost
    assert abs(some - lost) < 3 * some.standard_error


def test_what_has_no_such_change_says_why() -> None:
    labels = torch.arange(40) % 2
    grey = torch.rand(40, 1, 6, 6)
    flat = nn.Sequential(nn.Flatten(), nn.Linear(36, 2))
    with pytest.raises(genbench.NotApplicable, match="the images are grey"):
        read("gi_colour_l0", genbench.Subject.from_module(flat, data=(grey, labels)))
    tripled = nn.Sequential(nn.Flatten(), nn.Linear(108, 2))
    with pytest.raises(genbench.NotApplicable, match="the images are grey"):
        read("gi_colour_l0", genbench.Subject.from_module(tripled, data=(grey.repeat(1, 3, 1, 1), labels)))
    numbers = genbench.Subject.from_module(nn.Linear(5, 2), data=(torch.rand(40, 5), labels))
    for change in CHANGES:
        with pytest.raises(genbench.NotApplicable, match=r"inputs of shape \(5,\) are not images"):
            read(f"gi_{change}_l0", numbers)
    wrong = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    with torch.no_grad():
        wrong[1].weight.zero_()
        wrong[1].bias.copy_(torch.tensor([0.0, 0.0, 9.0]))
    with pytest.raises(genbench.NotApplicable, match="none of the training examples"):
        perturbation_measure("pal", "rotation")(genbench.Subject.from_module(wrong, data=(grey, labels)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (("gini", "rotation", 0), "no statistic 'gini'"),
        (("gi", "shear", 0), "no perturbation 'shear'; use one of 'intra', 'inter', 'rotation'"),
        (("gi", "rotation", 1), "not what block 1 gives; use layer=0"),
    ],
)
def test_a_measure_that_does_not_exist_gets_a_sentence(given, words) -> None:
    with pytest.raises(UserError) as problem:
        perturbation_measure(*given[:2], layer=given[2])
    assert words in str(problem.value)


def test_every_combination_is_a_measure_that_documents_itself() -> None:
    made = [
        one
        for statistic in ("gi", "pal")
        for one in (
            *(perturbation_measure(statistic, c, sweep=s) for c in CHANGES for s in ("folded", "signed")),
            *(perturbation_measure(statistic, p, layer=n) for p in ("intra", "inter") for n in range(4)),
        )
    ]
    assert len({one.name for one in made}) == len(made) == 32
    registered = load_registry().measures
    for one in made:
        assert len(one.summary) <= 100
        assert "Algorithm" in one.paper
        assert max(map(len, inspect.getdoc(one.function).splitlines())) <= 110
        if one.name in registered:
            assert registered[one.name].item.description == one.description
    assert perturbation_measure("gi", "intra", layer=1).summary.endswith("behind the first block.")
    assert perturbation_measure("gi", "intra", layer=3).summary.endswith("behind block 3.")


# -- blocks beyond the first -------------------------------------------------------------------------


def test_each_block_of_a_plain_network_is_a_layer_and_its_activation() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 2)
    )
    x = torch.randn(9, 3)
    for number, end in ((1, 2), (2, 4), (3, 6)):
        cut = cut_after_block(fold_batch_norm(model, x), number)
        torch.testing.assert_close(cut.first(x), model[:end](x))
        torch.testing.assert_close(cut.rest(cut.first(x)), model(x))
    with pytest.raises(genbench.NotApplicable, match="no block 4 at whose end all paths meet"):
        cut_after_block(fold_batch_norm(model, x), 4)


def test_the_curve_of_a_later_block_is_taken_there() -> None:
    """A network of one dimension whose second block folds the line: between two points of class 1 lies 0."""
    model = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    with torch.no_grad():
        for layer, weight in (
            (0, [[1.0], [-1.0]]),
            (2, [[1.0, 0.0], [0.0, 1.0]]),
            (4, [[0.0, 0.0], [1.0, 1.0]]),
        ):
            model[layer].weight.copy_(torch.tensor(weight))
            model[layer].bias.zero_()
        model[4].bias.copy_(torch.tensor([0.5, 0.0]))
    x = torch.where(torch.arange(80) % 2 == 0, -1.0, 1.0)[:, None]  # |x| = 1, class 1: |x| > ½
    subject = genbench.Subject.from_module(model, data=(x, torch.ones(80)))
    # At the input lines between −1 and 1 pass through 0; behind a block (0, 1) and (1, 0) they do not.
    assert perturbation_measure("gi", "intra", layer=0)(subject.fresh()) > 0
    for layer in (1, 2):
        assert perturbation_measure("gi", "intra", layer=layer)(subject.fresh()) == 0.0
        assert math.isclose(perturbation_measure("pal", "intra", layer=layer)(subject.fresh()), 6.0)
    with pytest.raises(genbench.NotApplicable, match="no block 3"):
        perturbation_measure("gi", "intra", layer=3)(subject.fresh())
