"""Stacked training against a plain loop over single networks with torch's own layers and optimizers."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import nn

from genbench.data.digits import DATASET
from genbench.errors import UserError
from genbench.plugin.offers import DataRequest
from genbench.population.layers import convolve, max_pool
from genbench.population.networks import ARCHITECTURES, Shape, make_network
from genbench.population.optimizers import StackedOptimizer
from genbench.population.stacked import StackedNetworks
from genbench.population.stacked_training import BlockRecipe, NetworkRecipe, train_stacked
from genbench.suites import load_suite


@pytest.fixture(scope="module")
def digits() -> tuple[torch.Tensor, torch.Tensor]:
    data = DATASET.load(DataRequest()).train
    raw = data.batch(range(200)).float() / 255
    return (raw - raw.mean()) / raw.std(), data.labels[:200]


def shape(architecture: str, *, depth: int = 0, width: int = 8, dropout: float = 0.0) -> Shape:
    depth = depth or {"simplecnn": 3, "resnetv2": 8}.get(architecture, 2)
    return Shape(architecture, depth, width, dropout, channels=1, height=8, image_width=8, classes=10)


def block(**changes: object) -> BlockRecipe:
    plain = {
        "optimizer": "sgd", "batch_size": 64, "stop": "epochs", "stop_cross_entropy": 0.01, "max_epochs": 4,
    }  # fmt: skip
    return BlockRecipe(**{**plain, **changes})


def loop(
    model: nn.Module,
    images: torch.Tensor,
    labels: torch.Tensor,
    optimizer: torch.optim.Optimizer,
    seed: int,
    epochs: int,
    batch_size: int = 64,
) -> list[float]:
    """Loss curve of one network, written as anyone would."""
    generator = torch.Generator().manual_seed(seed)
    losses = []
    for _ in range(epochs):
        model.train()
        for rows in torch.randperm(len(labels), generator=generator).split(batch_size):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(images[rows]), labels[rows]).backward()
            optimizer.step()
        model.eval()
        with torch.no_grad():
            losses.append(float(nn.functional.cross_entropy(model(images), labels)))
    return losses


OPTIMIZERS = {
    "sgd": lambda p, r: torch.optim.SGD(p, r.learning_rate, r.momentum, weight_decay=r.weight_decay),
    "adam": lambda p, r: torch.optim.Adam(p, r.learning_rate, weight_decay=r.weight_decay),
    "rmsprop": lambda p, r: torch.optim.RMSprop(
        p, r.learning_rate, momentum=r.momentum, weight_decay=r.weight_decay
    ),
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_network_has_the_loss_curve_of_a_single_loop(digits, architecture, optimizer) -> None:
    """In double precision, where rounding does not grow to something: all that differs would be a mistake."""
    images, labels = digits[0].double(), digits[1]
    rate = 0.05 if optimizer == "sgd" else 0.003
    recipes = [
        NetworkRecipe(rate, 0.9, 0.0, order_seed=11),
        NetworkRecipe(rate / 3, 0.5, 0.001, order_seed=12),
        NetworkRecipe(rate / 10, 0.0, 0.01, order_seed=13),
    ]
    networks = [make_network(shape(architecture), seed).double() for seed in (1, 2, 3)]
    stacked = train_stacked(networks, images, labels, block(optimizer=optimizer), recipes)
    for network, recipe, found in zip(networks, recipes, stacked, strict=True):
        single = copy.deepcopy(network)
        chosen = OPTIMIZERS[optimizer](single.parameters(), recipe)
        curve = loop(single, images, labels, chosen, recipe.order_seed, epochs=4)
        # Adam divides by gradients that are nothing but rounding (of biases before a batch norm).
        assert found.loss == pytest.approx(curve, abs=1e-9 if optimizer == "sgd" else 1e-4)


@pytest.mark.parametrize(("depth", "train_size"), [(1, 128), (2, 64)])
def test_whole_trainings_of_nin_digits_have_the_loss_curves_of_single_loops(depth, train_size) -> None:
    """From the first epoch to a cross-entropy of .01, with the recipe and the learning rates of the suite."""
    suite = load_suite("nin-digits")
    data = DATASET.load(DataRequest()).train
    raw, labels = data.batch(range(train_size)).double() / 255, data.labels[:train_size]
    images = (raw - raw.mean()) / raw.std()
    networks = [make_network(shape("nin", depth=depth, width=16), seed).double() for seed in range(3)]
    rates = suite.grid["learning_rate"]
    recipes = [NetworkRecipe(rate, 0.9, 0.0, order_seed=i) for i, rate in enumerate(rates)]
    recipe = BlockRecipe("sgd", 32, "cross_entropy", 0.01, 160)
    stacked = train_stacked(networks, images, labels, recipe, recipes)
    for network, own, found in zip(networks, recipes, stacked, strict=True):
        single = copy.deepcopy(network)
        chosen = OPTIMIZERS["sgd"](single.parameters(), own)
        curve = loop(single, images, labels, chosen, own.order_seed, len(found.loss), batch_size=32)
        assert found.loss == pytest.approx(curve, abs=1e-4)
    assert any(found.converged for found in stacked)


def test_in_single_precision_it_is_as_near_to_the_exact_curve_as_a_single_loop(digits) -> None:
    """fp32 training of small batch-normed networks is chaotic; a stable stretch agrees to 1e-4 and better."""
    images, labels = digits
    network = make_network(shape("nin", width=16), 0)
    recipe = NetworkRecipe(0.02, 0.9, 0.0, order_seed=3)
    curves = {}
    for name, dtype in (("exact", torch.float64), ("single", torch.float32)):
        model = copy.deepcopy(network).to(dtype)
        chosen = OPTIMIZERS["sgd"](model.parameters(), recipe)
        curves[name] = loop(model, images.to(dtype), labels, chosen, 3, epochs=6)
    (stacked,) = train_stacked([network], images, labels, block(max_epochs=6), [recipe])
    assert stacked.loss == pytest.approx(curves["single"], abs=1e-4)
    assert stacked.loss == pytest.approx(curves["exact"], abs=1e-4)


def test_it_stops_where_a_single_loop_meets_the_rule(digits) -> None:
    images, labels = digits[0].double(), digits[1]
    networks = [make_network(shape("nin", width=16), seed).double() for seed in (0, 1)]
    recipes = [NetworkRecipe(rate, 0.9, 0.0, order_seed=5 + i) for i, rate in enumerate((0.1, 0.05))]
    stacked = train_stacked(
        networks,
        images,
        labels,
        block(stop="cross_entropy", stop_cross_entropy=0.1, max_epochs=60, batch_size=50),
        recipes,
    )
    for network, recipe, found in zip(networks, recipes, stacked, strict=True):
        single = copy.deepcopy(network)
        chosen = OPTIMIZERS["sgd"](single.parameters(), recipe)
        curve = loop(single, images, labels, chosen, recipe.order_seed, len(found.loss), batch_size=50)
        assert found.converged
        assert [loss <= 0.1 for loss in curve] == [False] * (len(curve) - 1) + [True]
        assert len(curve) < 60
        with torch.no_grad():
            right = (single(images).argmax(1) == labels).double().mean().item()
        assert found.accuracy[-1] == right
        for name, value in single.state_dict().items():
            torch.testing.assert_close(found.state[name], value, rtol=1e-6, atol=1e-8)
    assert len({len(found.loss) for found in stacked}) == 2


@pytest.mark.parametrize("stop", ["cross_entropy", "accuracy", "epochs"])
def test_stopping_rules(digits, stop) -> None:
    images, labels = digits
    networks = [make_network(shape("fcn", width=64), seed) for seed in range(3)]
    recipes = [NetworkRecipe(0.1 / 3**i, 0.9, 0.0, order_seed=i) for i in range(3)]
    recipe = block(stop=stop, stop_cross_entropy=0.3, max_epochs=25)
    for found in train_stacked(networks, images, labels, recipe, recipes):
        met = {
            "cross_entropy": [loss <= 0.3 for loss in found.loss],
            "accuracy": [accuracy == 1.0 for accuracy in found.accuracy],
            "epochs": [epoch == 25 for epoch in range(1, len(found.loss) + 1)],
        }[stop]
        assert not any(met[:-1])
        assert met[-1] == found.converged
        assert found.converged or len(found.loss) == 25


def test_a_diverged_network_leaves_and_the_others_go_on(digits) -> None:
    images, labels = digits
    networks = [make_network(shape("fcn"), seed) for seed in range(2)]
    recipes = [NetworkRecipe(rate, 0.9, 0.0, order_seed=1) for rate in (1e20, 0.05)]
    wild, tame = train_stacked(networks, images, labels, block(max_epochs=6), recipes)
    assert not wild.converged
    assert not math.isfinite(wild.loss[-1])
    assert len(tame.loss) == 6
    (alone,) = train_stacked(networks[1:], images, labels, block(max_epochs=6), recipes[1:])
    assert tame.loss == pytest.approx(alone.loss, abs=1e-6)


def test_gradient_statistics_are_those_of_the_batch_gradients(digits) -> None:
    images, labels = digits[0].double(), digits[1]
    model = make_network(shape("fcn"), 0).double()
    # With a learning rate of 0 every batch gradient is taken at the initial weights.
    (found,) = train_stacked(
        [model], images, labels, block(max_epochs=1), [NetworkRecipe(0.0, 0.0, 0.0, order_seed=4)]
    )
    gradients = []
    for rows in torch.randperm(200, generator=torch.Generator().manual_seed(4)).split(64):
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        parts = torch.autograd.grad(loss, list(model.parameters()))
        gradients.append(torch.cat([p.flatten() for p in parts]))
    stacked = torch.stack(gradients)
    trace = found.trace()
    assert set(trace) == {"loss", "accuracy", "gradient_norm", "gradient_variance"}
    assert trace["gradient_norm"].tolist() == pytest.approx([float(stacked.norm(dim=1).mean())])
    assert trace["gradient_variance"].tolist() == pytest.approx(
        [float(stacked.var(dim=0, correction=0).mean())]
    )


def test_cosine_schedule_scales_the_learning_rate(digits) -> None:
    images, labels = digits[0].double(), digits[1]
    network = make_network(shape("fcn"), 0).double()
    recipe = NetworkRecipe(0.1, 0.9, 0.0, order_seed=2)
    (found,) = train_stacked([network], images, labels, block(schedule="cosine"), [recipe])
    single = copy.deepcopy(network)
    optimizer = OPTIMIZERS["sgd"](single.parameters(), recipe)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=4)
    generator, curve = torch.Generator().manual_seed(2), []
    for _ in range(4):
        for rows in torch.randperm(200, generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(single(images[rows]), labels[rows]).backward()
            optimizer.step()
        schedule.step()
        curve.append(nn.functional.cross_entropy(single(images), labels).item())
    assert found.loss == pytest.approx(curve, abs=1e-9)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropout_drops_in_training_only_and_by_the_networks_own_seed(digits, architecture) -> None:
    images, labels = digits
    networks = [make_network(shape(architecture, dropout=0.5), seed) for seed in (0, 1)]
    recipes = [NetworkRecipe(0.01, 0.9, 0.0, order_seed=seed) for seed in (7, 8)]
    both = train_stacked(networks, images, labels, block(max_epochs=2), recipes)
    (alone,) = train_stacked(networks[:1], images, labels, block(max_epochs=2), recipes[:1])
    assert both[0].loss == pytest.approx(alone.loss, abs=1e-5)
    stack = StackedNetworks(networks)
    expected = torch.stack([network.eval()(images[:8]) for network in networks])
    torch.testing.assert_close(stack.evaluate(images[:8]), expected, rtol=1e-4, atol=1e-5)
    batch = images[:8].permute(1, 2, 3, 0).expand(2, -1, -1, -1, -1).contiguous()
    generators = [torch.Generator().manual_seed(3) for _ in range(2)]
    calm = stack.logits(stack.theta, batch, training=False)
    dropped = stack.logits(stack.theta, batch, training=True, generators=generators)
    assert not torch.allclose(calm, dropped)


@pytest.mark.parametrize(
    ("side", "stride", "padding"), [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1), (5, 2, 0)]
)
def test_convolutions_and_their_gradients_are_torchs(side, stride, padding) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, 7, 9, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2, 5, 3, side, side, generator=generator, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(2, 5, generator=generator, dtype=torch.float64, requires_grad=True)
    found = convolve(images, weight, bias, stride, padding)
    expected = torch.stack(
        [
            nn.functional.conv2d(images[i].permute(3, 0, 1, 2), weight[i], bias[i], stride, padding)
            for i in range(2)
        ]
    ).permute(0, 2, 3, 4, 1)
    torch.testing.assert_close(found, expected)
    given = (images, weight, bias)
    ours = torch.autograd.grad(found.sin().sum(), given)
    theirs = torch.autograd.grad(expected.sin().sum(), given)
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def simple_cnn(state: dict[str, torch.Tensor], x: torch.Tensor, depth: int) -> torch.Tensor:
    """002's three-layer CNN in torch's functions."""
    for i in range(depth):
        x = nn.functional.conv2d(x, state[f"convs.{i}.weight"], state[f"convs.{i}.bias"], padding=1)
        x = nn.functional.max_pool2d(x.clamp(min=0), 2)
    return x.reshape(len(x), -1) @ state["head.weight"].T + state["head.bias"]


def resnet_v2(state: dict[str, torch.Tensor], x: torch.Tensor, depth: int) -> torch.Tensor:
    """He et al. 2016b, figure 4 (e), in torch's functions; batch norms in eval mode."""

    def active(x: torch.Tensor, name: str) -> torch.Tensor:
        names = ("running_mean", "running_var", "weight", "bias")
        return nn.functional.batch_norm(x, *(state[f"{name}.{n}"] for n in names)).relu()

    x = nn.functional.conv2d(x, state["stem.weight"], padding=1)
    for i in range((depth - 2) // 2):
        stride = 2 if i in ((depth - 2) // 6, (depth - 2) // 3) else 1
        before = active(x, f"blocks.{i}.bn1")
        y = nn.functional.conv2d(before, state[f"blocks.{i}.conv1.weight"], stride=stride, padding=1)
        y = nn.functional.conv2d(active(y, f"blocks.{i}.bn2"), state[f"blocks.{i}.conv2.weight"], padding=1)
        shortcut = state.get(f"blocks.{i}.shortcut.weight")
        x = y + (x if shortcut is None else nn.functional.conv2d(before, shortcut, stride=stride))
    return active(x, "bn").mean(dim=(2, 3)) @ state["head.weight"].T + state["head.bias"]


@pytest.mark.parametrize(
    ("architecture", "plain", "depth", "width"),
    [("simplecnn", simple_cnn, 3, 32), ("resnetv2", resnet_v2, 32, 16), ("resnetv2", resnet_v2, 8, 4)],
)
def test_the_networks_of_002_are_those_that_torchs_functions_give(architecture, plain, depth, width) -> None:
    chosen = Shape(architecture, depth, width, 0.0, channels=3, height=32, image_width=32, classes=10)
    network = make_network(chosen, 0).double().eval()
    for name, value in network.state_dict().items():
        if value.is_floating_point():
            # Batch norms that do something: weights and variances that are positive and not 1.
            value.copy_(torch.rand_like(value) + 0.5 if "bn" in name else torch.randn_like(value) / 8)
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = plain(network.state_dict(), images, depth)
    torch.testing.assert_close(network(images), expected)
    torch.testing.assert_close(StackedNetworks([network]).evaluate(images)[0], expected)


def test_the_networks_of_002_have_the_parameters_of_their_layers() -> None:
    """Counted by hand from the widths on CIFAR-10."""
    simple = make_network(Shape("simplecnn", 3, 32, 0.5, 3, 32, 32, 10), 0)
    convolutions = sum(9 * a * b + b for a, b in ((3, 32), (32, 64), (64, 128)))
    assert sum(p.numel() for p in simple.parameters()) == convolutions + 128 * 16 * 10 + 10
    deep = make_network(Shape("resnetv2", 32, 16, 0.5, 3, 32, 32, 10), 0)
    stages = sum(
        # The first block comes from the stage before: another first convolution, batch norm and shortcut.
        (9 * a * b + 9 * b * b + 2 * a + 2 * b + (a * b if a != b else 0)) + 4 * (18 * b * b + 4 * b)
        for a, b in ((16, 16), (16, 32), (32, 64))
    )
    assert sum(p.numel() for p in deep.parameters()) == 27 * 16 + stages + 2 * 64 + 64 * 10 + 10
    layers = [m for m in deep.modules() if isinstance(m, (nn.Conv2d, nn.Linear)) and m.weight.shape[-1] != 1]
    assert len(layers) == 32


@pytest.mark.parametrize("size", [(6, 8), (7, 9)])
def test_pooling_and_its_gradient_are_torchs(size) -> None:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(2, 3, *size, 4, generator=generator, dtype=torch.float64, requires_grad=True)
    found = max_pool(images.relu())
    expected = torch.stack(
        [nn.functional.max_pool2d(images[i].relu().permute(3, 0, 1, 2), 2) for i in range(2)]
    ).permute(0, 2, 3, 4, 1)
    torch.testing.assert_close(found, expected)
    ours, theirs = (torch.autograd.grad(one.sin().sum(), images)[0] for one in (found, expected))
    torch.testing.assert_close(ours, theirs)


def test_initial_weights_depend_on_shape_and_seed_alone() -> None:
    torch.manual_seed(123)
    first = make_network(shape("resnet"), 5).state_dict()
    torch.manual_seed(456)
    second = make_network(shape("resnet"), 5).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_what_cannot_be_made_gets_a_sentence() -> None:
    with pytest.raises(UserError, match="unknown architecture 'vgg'"):
        make_network(shape("vgg"), 0)
    with pytest.raises(UserError, match=r"6·n \+ 2 layers: depth 8, 14, 20, 26, 32, …, not 18"):
        make_network(shape("resnetv2", depth=18), 0)
    with pytest.raises(UserError, match=r"a simplecnn of depth 4 .* nothing is left of 8 × 8 pixels"):
        make_network(shape("simplecnn", depth=4), 0)
    with pytest.raises(UserError, match="unknown optimizer 'lion'"):
        StackedOptimizer("lion", torch.zeros(1, 2), *(torch.zeros(1) for _ in range(3)))
    with pytest.raises(UserError, match="Sigmoid, which cannot be stacked"):
        StackedNetworks([nn.Sequential(nn.Conv2d(1, 1, 1), nn.Sigmoid())]).evaluate(torch.zeros(1, 1, 2, 2))
