"""Folding and path norms of the networks of the zoo: depthwise, squeeze-excite, attention, layer norm."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from test_subject import trained_looking
from torch import nn

import genbench
from genbench.plugin.offers import BackboneRequest
from genbench.plugin.registry import load_registry
from genbench.population.networks import NetworkInNetwork
from genbench.subject.cut import cut_after_block
from genbench.subject.folding import fold_batch_norm
from genbench.subject.paths import log_path_sum


class SqueezeExcite(nn.Module):
    """Expansion, depthwise convolution, gate, projection and a skip connection, as in EfficientNet."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.bn0 = nn.Conv2d(3, 6, 1, bias=False), nn.BatchNorm2d(6)
        self.depthwise, self.bn1 = nn.Conv2d(6, 6, 3, padding=1, groups=6, bias=False), nn.BatchNorm2d(6)
        self.reduce, self.widen = nn.Conv2d(6, 2, 1), nn.Conv2d(2, 6, 1)
        self.project, self.bn2 = nn.Conv2d(6, 3, 1, bias=False), nn.BatchNorm2d(3)
        self.act, self.head = nn.SiLU(), nn.Linear(3, 4)

    def forward(self, x):
        h = self.act(self.bn0(self.expand(x)))
        h = self.act(self.bn1(self.depthwise(h)))
        gate = self.widen(self.act(self.reduce(nn.functional.adaptive_avg_pool2d(h, 1))))
        h = self.bn2(self.project(torch.sigmoid(gate) * h)) + x
        return self.head(h.mean((2, 3)))


class Transformer(nn.Module):
    """Patches, a position table, one block of attention and perceptron, a projection matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.position = nn.Parameter(torch.randn(4, 8))
        self.norm, self.attention = nn.LayerNorm(8), nn.MultiheadAttention(8, 2, batch_first=True)
        self.up, self.act, self.down = nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)
        self.projection = nn.Parameter(torch.randn(8, 5))

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        h = self.norm(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        x = x + self.down(self.act(self.up(x)))
        return x.mean(1) @ self.projection


def mini(name: str) -> nn.Module:
    backbone = load_registry().backbones[name].item.load(BackboneRequest())
    torch.manual_seed(0)
    return nn.Sequential(backbone.module, nn.Linear(backbone.feature_width, 50)).eval()


def images(n: int = 6, side: int = 8) -> torch.Tensor:
    return torch.randn(n, 3, side, side, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("make", [SqueezeExcite, Transformer])
def test_folding_leaves_the_function_as_it_was(make) -> None:
    torch.manual_seed(0)
    model = trained_looking(make())
    folded = fold_batch_norm(model, images())
    torch.testing.assert_close(folded.module(images()), model(images()), rtol=1e-4, atol=1e-5)
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.module.modules())


@pytest.mark.parametrize(
    "name", [name for name in load_registry().backbones if name.startswith("mini-") and name[-1] != ":"]
)
def test_every_mini_network_folds_to_the_same_function(name) -> None:
    model = trained_looking(mini(name))
    folded = fold_batch_norm(model)
    x = images(3, 32)
    with torch.no_grad():
        torch.testing.assert_close(folded.module(x), model(x), rtol=1e-3, atol=1e-3 * model(x).abs().max())
    assert not any(isinstance(part, nn.BatchNorm2d) for part in folded.module.modules())
    # Vectors are biases and norms; what else is no weight of a layer is added to activations.
    matrices = {name: part for name, part in model.named_parameters() if part.ndim > 1}
    added = [name for name in matrices if name.endswith("positional_embedding")]
    layers = sum(part.numel() for name, part in matrices.items() if name not in added)
    assert sum(w.numel() for w in folded.weights()) == layers


def test_attention_and_matrix_products_are_linear_layers() -> None:
    """q, k, v and the output of attention, and the projection: every matrix that multiplies activations."""
    model = Transformer().eval()
    weights = fold_batch_norm(model, images()).weights()
    assert sorted(tuple(w.shape) for w in weights) == sorted(
        [(8, 3, 4, 4), (8, 8), (8, 8), (8, 8), (8, 8), (16, 8), (8, 16), (5, 8)]
    )
    torch.testing.assert_close(torch.cat(weights[1:4]), model.attention.in_proj_weight.detach())


def test_what_is_no_plain_layer_is_refused_not_folded_wrongly() -> None:
    class Standardised(nn.Conv2d):
        """Scaling its weights does nothing: batch norm must not be folded into it."""

        def forward(self, x):
            weight = self.weight / self.weight.norm()
            return nn.functional.conv2d(x, weight, self.bias)

    model = trained_looking(nn.Sequential(Standardised(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten()))
    subject = genbench.Subject.from_module(model, data=(images(20), torch.zeros(20)))
    with pytest.raises(genbench.NotApplicable, match="outside any layer"):
        subject.weights()


def path_sum(model: nn.Module, shape: tuple[int, ...], examples: torch.Tensor | None = None) -> float:
    examples = torch.zeros(1, *shape) if examples is None else examples
    return math.exp(log_path_sum(fold_batch_norm(model.eval(), examples), shape, examples))


def test_gates_are_identities_and_smooth_activations_relu() -> None:
    """Without its gate and with ReLU for SiLU, the squared network has only plain layers: run it as it is."""
    torch.manual_seed(0)
    model = trained_looking(SqueezeExcite())

    plain = copy.deepcopy(fold_batch_norm(model).module).double()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter.square_()
        x = torch.ones(1, 3, 8, 8, dtype=torch.float64)
        h = plain.depthwise(plain.expand(x).relu()).relu()
        expected = plain.head((plain.project(h) + x).mean((2, 3))).sum()
    assert path_sum(model, (3, 8, 8)) == pytest.approx(float(expected), rel=1e-9)


def test_attention_acts_as_the_mean_over_tokens() -> None:
    torch.manual_seed(0)

    class Attended(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x, need_weights=False)[0].mean(1)

    model = Attended()
    nn.init.normal_(model.attention.in_proj_bias)
    value = model.attention.in_proj_weight[8:].detach().double() ** 2
    bias = model.attention.in_proj_bias[8:].detach().double() ** 2
    out = model.attention.out_proj.weight.detach().double() ** 2
    expected = (out @ (value.sum(1) + bias)).sum()
    assert path_sum(model, (5, 4)) == pytest.approx(float(expected), rel=1e-6)


def test_a_layer_norm_acts_with_its_spread_on_the_training_set() -> None:
    """Per token, (x − mean)·scale/spread + shift is linear: enumerate the entries of that matrix."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.LayerNorm(3), nn.Linear(3, 2, bias=False))
    nn.init.normal_(model[0].weight)
    nn.init.normal_(model[0].bias)
    examples = torch.randn(50, 3)
    spread = math.sqrt(float(examples.double().var(1, unbiased=False).mean()) + model[0].eps)
    scale, shift = model[0].weight.detach().double(), model[0].bias.detach().double()
    matrix = torch.diag(scale / spread) @ (torch.eye(3) - torch.ones(3, 3) / 3).double()
    squared = matrix.square().sum(1) + shift.square()
    expected = (model[1].weight.detach().double().square() @ squared).sum()
    assert path_sum(model, (3,), examples) == pytest.approx(float(expected), rel=1e-6)


def test_an_unfolded_batch_norm_is_a_scale_and_a_shift() -> None:
    torch.manual_seed(0)
    model = trained_looking(nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)))
    norm, linear = model
    scale = (norm.weight / (norm.running_var + norm.eps).sqrt()).detach().double()
    shift = norm.bias.detach().double() - scale * norm.running_mean.double()
    hidden = scale.square() + shift.square()
    expected = (linear.weight.double().square() @ hidden + linear.bias.double().square()).sum()
    assert path_sum(model, (3,)) == pytest.approx(float(expected), rel=1e-6)


def test_a_path_norm_beyond_double_precision_is_computed_in_logarithms() -> None:
    depth, weight = 40, 1e9
    layers = []
    for _ in range(depth):
        layers += [nn.Linear(2, 2, bias=False), nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    for parameter in model.parameters():
        nn.init.constant_(parameter, weight)
    folded = fold_batch_norm(model)
    # 2 inputs · 2 outputs · 2^(depth − 1) hidden units on the way, each path weight^(2·depth)
    expected = math.log(2) * (depth + 1) + 2 * depth * math.log(weight)
    assert expected > 709
    assert log_path_sum(folded, (2,), torch.zeros(1, 2)) == pytest.approx(expected, rel=1e-12)
    subject = genbench.Subject.from_module(model, data=(torch.ones(20, 2), torch.zeros(20)))
    with pytest.raises(genbench.NotApplicable, match="beyond the range"):
        load_registry().measures["path_norm"].item(subject)


@pytest.mark.parametrize("name", ["mini-clip:short4", "mini-efficientnet:b0"])
def test_path_norm_of_mini_networks_ignores_rescaling(name) -> None:
    """Scale a convolution up and the next down, with a positively homogeneous path between them."""
    model = mini(name)
    folded = fold_batch_norm(model)
    before = log_path_sum(folded, (3, 32, 32), images(4, 32))
    first, second = ("0.layer1.0.conv1", "0.layer1.0.conv2")
    if name.startswith("mini-eff"):
        first, second = ("0.network._blocks.1._expand_conv", "0.network._blocks.1._depthwise_conv")
    with torch.no_grad():
        for parameter in folded.module.get_submodule(first).parameters():
            parameter.mul_(8)
        folded.module.get_submodule(second).weight.div_(8)
    assert log_path_sum(folded, (3, 32, 32), images(4, 32)) == pytest.approx(before, rel=1e-5)


def test_a_layer_that_is_called_twice_is_squared_once() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(self.layer(x).relu())

    torch.manual_seed(0)
    model = Twice()
    weight, bias = (p.detach().double().square() for p in model.layer.parameters())
    expected = (weight @ (weight.sum(1) + bias) + bias).sum()
    assert path_sum(model, (3,)) == pytest.approx(float(expected), rel=1e-6)


def test_multiplied_activations_have_no_path_norm() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

        def forward(self, x):
            return self.a(x) * self.b(x)

    with pytest.raises(genbench.NotApplicable, match="multiplies activations"):
        path_sum(Product(), (3,))


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (lambda: mini("mini-clip:short4"), "0.layer1"),
        (lambda: mini("mini-clip-vit:w24"), "0.transformer.resblocks.0"),
        (lambda: mini("mini-efficientnet:b0"), "0.network._blocks.0"),
        (lambda: mini("mini-regnet:x1"), "0.s1"),
        (lambda: NetworkInNetwork(depth=2, width=4, channels=3, classes=5).eval(), "blocks.0"),
    ],
)
def test_the_first_block_and_the_rest_make_the_network(make, where) -> None:
    model, x = make(), images(3, 32)
    cut = cut_after_block(fold_batch_norm(model))
    assert cut.where == where
    torch.testing.assert_close(cut.rest(cut.first(x)), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mini-clip:short2", "mini-clip-vit:w24", "mini-regnet:x1"])
def test_every_measure_reads_the_networks_of_the_zoo(name: str) -> None:
    """On few examples, with the labels that the network gives them."""
    model = mini(name)
    x = images(24, 32)
    labels = model(x).argmax(1)  # so that the network fits its data
    if len(labels.unique()) < 2:
        labels[::2] = (labels[0] + 1) % 50
    subject = genbench.Subject.from_module(model, initial=mini(name), data=(x, labels))
    refusals = {}
    for measure, entry in load_registry().measures.items():
        if entry.source.kind == "built-in":
            try:
                assert math.isfinite(entry.item(subject.fresh())), measure
            except genbench.NotApplicable as refusal:
                refusals[measure] = str(refusal)
    assert set(refusals) <= {
        "gradient_noise_var", "log_spec_init_main", "pac_bayes_magnitude_init", "compression_bound",
    }, refusals  # fmt: skip
