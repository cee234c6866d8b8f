"""What a measure is given: private copies, shared parts, and nothing held out."""

from __future__ import annotations

import gc
import math

import numpy as np
import pytest
import torch
from torch import nn

import genbench
from genbench.population.networks import Shape, make_network
from genbench.subject.folding import fold_batch_norm


def trained_looking(model: nn.Module, seed: int = 0) -> nn.Module:
    """Batch norms with statistics and scales as after training."""
    generator = torch.Generator().manual_seed(seed)
    for part in model.modules():
        if isinstance(part, nn.BatchNorm1d | nn.BatchNorm2d):
            for tensor in (part.weight.data, part.running_var):
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
            for tensor in (part.bias.data, part.running_mean):
                tensor.copy_(torch.randn(tensor.shape, generator=generator))
    return model.eval()


@pytest.fixture
def data() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(50, 1, 8, 8, generator=generator), torch.randint(0, 10, (50,), generator=generator)


def nin(seed: int = 0) -> nn.Module:
    shape = Shape("nin", 2, 6, 0.0, channels=1, height=8, image_width=8, classes=10)
    return make_network(shape, seed)


@pytest.fixture
def subject(data) -> genbench.Subject:
    model = trained_looking(nin())
    initial = nin(seed=1)
    return genbench.Subject.from_module(model, initial=initial, data=data)


class Residual(nn.Module):
    """Folding must follow the graph: the second batch norm's layer has a branch beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1, groups=4), nn.BatchNorm2d(4)
        self.alone = nn.BatchNorm2d(4)
        self.fc, self.bn3 = nn.Linear(4, 5), nn.BatchNorm1d(5)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        x = self.alone(x + self.bn2(self.conv2(x)))
        return self.bn3(self.fc(x.mean((2, 3))))


@pytest.mark.parametrize("make", [nin, Residual])
def test_folding_leaves_the_function_as_it_was(make, data) -> None:
    model = trained_looking(make())
    folded = fold_batch_norm(model)
    torch.testing.assert_close(folded.module(data[0]), model(data[0]), rtol=1e-4, atol=1e-5)
    left = [name for name, part in folded.module.named_modules() if isinstance(part, nn.BatchNorm2d)]
    assert left == (["alone"] if isinstance(model, Residual) else [])


def test_folded_weights_are_the_scaled_ones() -> None:
    model = trained_looking(nn.Sequential(nn.Linear(3, 2, bias=False), nn.BatchNorm1d(2)))
    linear, norm = model
    scale = norm.weight / torch.sqrt(norm.running_var + norm.eps)
    (weight,) = fold_batch_norm(model).weights()
    torch.testing.assert_close(weight, scale[:, None].detach() * linear.weight.detach())


@pytest.mark.parametrize(
    "model",
    [
        nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4, affine=False), nn.ReLU(), nn.Linear(4, 2)),
        nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4, affine=False), nn.Flatten(), nn.Linear(4, 2)),
    ],
    ids=["linear", "convolution"],
)
def test_a_batch_norm_without_weights_folds_as_one_of_weight_1_and_bias_0(model) -> None:
    layer, norm = model.eval()[0], model[1]
    norm.running_mean.fill_(0.5)
    norm.running_var.copy_(torch.tensor([0.25, 1.0, 4.0, 9.0]))
    folded = fold_batch_norm(model)
    x = torch.randn(5, 3) if isinstance(layer, nn.Linear) else torch.randn(5, 3, 1, 1)
    torch.testing.assert_close(folded.module(x), model(x))
    expected = layer.weight.flatten(1) / torch.tensor([0.5, 1.0, 2.0, 3.0])[:, None]
    torch.testing.assert_close(folded.weights()[0].flatten(1), expected.detach(), rtol=1e-4, atol=1e-5)


def test_a_network_that_cannot_be_traced_is_not_applicable(data) -> None:
    class Dynamic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(64, 10)

        def forward(self, x):
            x = x.flatten(1)
            return self.fc(x if x.sum() > 0 else -x)

    subject = genbench.Subject.from_module(Dynamic(), data=data)
    with pytest.raises(genbench.NotApplicable, match="cannot be traced"):
        subject.weights()
    assert subject.logits().shape == (50, 10)


def test_weights_outside_known_layers_are_refused_not_skipped() -> None:
    class Bare(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.matrix = nn.Parameter(torch.ones(3, 3))

        def forward(self, x):
            return torch.einsum("ni,ij->nj", x, self.matrix)

    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mix = nn.Bilinear(4, 4, 2)

        def forward(self, x):
            return self.mix(x, x)

    for model, width in ((Bare(), 3), (Other(), 4)):
        subject = genbench.Subject.from_module(model, data=(torch.ones(10, width), torch.zeros(10)))
        with pytest.raises(genbench.NotApplicable, match=r"matrix|Bilinear"):
            subject.weights()


def test_a_single_layer_is_a_network_too() -> None:
    model = nn.Linear(3, 2)
    subject = genbench.Subject.from_module(model, data=(torch.ones(10, 3), torch.zeros(10)))
    (weight,) = subject.weights()
    assert torch.equal(weight, model.weight.detach())


def test_shared_parts_are_computed_once_however_many_ask(subject) -> None:
    # Labels that the network gets right, so that there is an accuracy for noise to cost.
    subject = genbench.Subject.from_module(
        subject.model, data=(torch.cat([x for x, _ in subject.batches()]), subject.logits().argmax(1))
    )
    for _ in range(3):
        view = subject.fresh()
        view.margins(), view.logits(), view.margin(), view.spectral_norms(), view.sigma()
    assert set(subject._parts.computations.values()) == {1}
    assert len(subject._parts.computations) == 4


def test_changing_a_copy_changes_no_other_reading(subject) -> None:
    before = (subject.fresh().logits(), subject.fresh().weights()[0], next(iter(subject.fresh().batches())))
    vandal = subject.fresh()
    with torch.no_grad():
        for parameter in [*vandal.model.parameters(), *vandal.initial_model.parameters()]:
            parameter.zero_()
        for tensor in [*vandal.weights(), vandal.logits(), vandal.margins(), vandal.labels()]:
            tensor.zero_()
        for inputs, labels in vandal.batches():
            inputs.zero_()
            labels.zero_()
        vandal.folded().module.conv.weight.zero_()
    after = (subject.fresh().logits(), subject.fresh().weights()[0], next(iter(subject.fresh().batches())))
    assert torch.equal(before[0], after[0])
    assert torch.equal(before[1], after[1])
    assert torch.equal(before[2][0], after[2][0])
    assert subject.fresh().model.conv.weight.abs().sum().item() > 0


def test_margins_by_hand() -> None:
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.eye(2))
    inputs = torch.tensor([[float(i), 0.0] for i in range(1, 21)])
    labels = torch.tensor([0] * 19 + [1])
    subject = genbench.Subject.from_module(model, data=(inputs, labels))
    assert sorted(subject.margins().tolist()) == [-20.0, *map(float, range(1, 20))]
    assert subject.margin() == 1.0  # rank floor(20/10) = 2 from below


def test_fewer_than_ten_examples_have_no_tenth_percentile() -> None:
    subject = genbench.Subject.from_module(nn.Linear(2, 2), data=(torch.ones(9, 2), torch.zeros(9)))
    with pytest.raises(genbench.NotApplicable, match="at least 10"):
        subject.margin()


def test_spectral_norm_of_a_convolution_is_that_of_its_circulant_matrix() -> None:
    """A dense reference: the circular convolution written out as a matrix."""
    torch.manual_seed(0)
    side, channels_in, channels_out = 5, 2, 3
    conv = nn.Conv2d(channels_in, channels_out, 3, padding=1, padding_mode="circular", bias=False).double()
    basis = torch.eye(channels_in * side * side, dtype=torch.float64).view(-1, channels_in, side, side)
    with torch.no_grad():
        matrix = conv(basis).flatten(1).numpy()
    expected = np.linalg.svd(matrix, compute_uv=False)[0]
    from genbench.subject.spectral import spectral_norm

    assert spectral_norm(conv, conv.weight, side) == pytest.approx(expected, rel=1e-9)


def test_spectral_norm_of_grouped_and_oversized_kernels() -> None:
    from genbench.subject.spectral import spectral_norm

    torch.manual_seed(1)
    grouped = nn.Conv2d(4, 4, 3, groups=2, bias=False)
    halves = [nn.Conv2d(2, 2, 3, bias=False) for _ in range(2)]
    for half, weight in zip(halves, grouped.weight.chunk(2), strict=True):
        half.weight.data.copy_(weight.data)
    expected = max(spectral_norm(half, half.weight, 6) for half in halves)
    assert spectral_norm(grouped, grouped.weight, 6) == pytest.approx(expected, rel=1e-12)
    # On a 1 × 1 grid every tap falls on the same pixel.
    ones = nn.Conv2d(1, 1, 3, bias=False)
    ones.weight.data.fill_(0.5)
    assert spectral_norm(ones, ones.weight, 1) == pytest.approx(4.5)


def test_hessian_product_against_autograd() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2).double()
    inputs, labels = torch.randn(12, 3, dtype=torch.float64), torch.randint(0, 2, (12,))
    subject = genbench.Subject.from_module(model, data=(inputs, labels), batch_size=5)

    def loss(flat: torch.Tensor) -> torch.Tensor:
        weight, bias = flat[:6].view(2, 3), flat[6:]
        return nn.functional.cross_entropy(inputs @ weight.T + bias, labels)

    flat = torch.cat([p.detach().flatten() for p in model.parameters()])
    hessian = torch.autograd.functional.hessian(loss, flat)
    vector = torch.randn(8, dtype=torch.float64)
    product = subject.hessian_product([vector[:6].view(2, 3), vector[6:]])
    torch.testing.assert_close(torch.cat([p.flatten() for p in product]), hessian @ vector)


def test_sigma_of_a_linear_classifier_in_closed_form() -> None:
    """Two classes with rows ±(½, 0) and the input (3, 0): under noise the margin is N(3, 18 sigma²).

    Its accuracy is .9 where Phi(3 / (sigma·sqrt(18))) = .9, that is at sigma = 1 / (sqrt(2)·1.28155).
    """
    model = nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.5, 0.0], [-0.5, 0.0]]))
    data = torch.tensor([[3.0, 0.0]]).expand(20, 2), torch.zeros(20)
    sigmas = [genbench.Subject.from_module(model, data=data, seed=seed).sigma() for seed in range(60)]
    # Ten draws of an accuracy that is 0 or 1 make a single search coarse; the median of many is not.
    assert np.median(sigmas) == pytest.approx(1 / (math.sqrt(2) * 1.2815515655446004), rel=0.15)


def test_nothing_held_out_can_be_reached(tmp_path, data) -> None:
    """Walk every object that a subject of a run refers to; the held-out images are not among them."""
    from genbench.data.digits import DATASET
    from genbench.engine.cells import Cell, Outcome, Status, make_cell
    from genbench.engine.steps import load_step
    from genbench.engine.store import Store, read_manifest
    from genbench.plugin.offers import DataRequest
    from genbench.population.blocks import load_member
    from genbench.population.plan import BLOCK, TRAINING
    from genbench.population.step_types import PoolInputs
    from genbench.subject.parts import LocalParts

    def stored(store: Store, cell: Cell, **parents: Cell) -> Cell:
        folders = {name: store.folder(parent.key) for name, parent in parents.items()}
        result = load_step(cell.step.function, cell.inputs)(cell.inputs, folders, store.stage(cell.key))
        store.commit(cell, Outcome(Status.OK, result=result), {})
        return cell

    images = PoolInputs(
        step=1, datasets=["digits"], versions=[""], content=[""], domains=False, classes=None, seed=0,
        quick=False,
    )  # fmt: skip
    settings = {
        "step": 1,
        "shape": {"architecture": "nin", "depth": 1, "width": 4, "dropout": 0.0},
        "choice": {
            "dataset": "digits", "train_size": 60, "label_noise": 0.0, "heldout_domain": "", "seed": 0,
        },
        "recipe": {
            "optimizer": "sgd", "batch_size": 32, "stop": "epochs", "stop_cross_entropy": 1.0,
            "max_epochs": 1,
        },
        "networks": [
            {"learning_rate": 0.1, "momentum": 0.9, "weight_decay": 0.0, "init_seed": 0, "order_seed": 0}
        ],
    }  # fmt: skip
    with Store(tmp_path / "store") as store:
        pool = stored(store, make_cell(TRAINING, "images", images))
        block = stored(store, make_cell(BLOCK, "block", settings), training=pool)
        loaded = load_member("it", store.folder(block.key), store.folder(pool.key), place=0)
        trained = read_manifest(store.folder(block.key))["result"]
    subject = genbench.Subject(loaded, LocalParts(loaded, 0))
    assert subject.provides == {"weights", "training_data", "gradients", "initial_weights", "trace"}

    held = DATASET.load(DataRequest()).heldout
    mean, std = trained["mean"], trained["std"]

    def forms(image: torch.Tensor) -> set[bytes]:
        """As bytes, which is how they are kept, and as the network takes them."""
        return {image.numpy().tobytes(), ((image.float() / 255 - mean) / std).numpy().tobytes()}

    heldout_rows = set().union(*map(forms, held.images))
    seen = DATASET.load(DataRequest()).train.images
    taken = {image.numpy().tobytes() for image in loaded.inputs}
    training_rows = set().union(*(forms(image) for image in seen if forms(image) & taken))
    # Digits holds a few exact duplicates; what counts is that nothing but training images is there.
    reached = set()
    for tensor in _reachable_tensors(subject):
        if tensor.ndim == 4 and tensor.shape[1:] == (1, 8, 8):
            reached |= {image.numpy().tobytes() for image in tensor}
    assert len(reached & training_rows) >= len(taken) > 0
    assert not (reached - training_rows) & heldout_rows


def _reachable_tensors(root: object) -> list[torch.Tensor]:
    seen: dict[int, object] = {}
    queue = [root]
    while queue:
        item = queue.pop()
        if id(item) in seen or isinstance(item, type) or type(item).__name__ == "module":
            continue
        seen[id(item)] = item
        if callable(item) and hasattr(item, "__globals__"):
            continue  # code, which refers to all of Python
        queue += gc.get_referents(item)
    return [item for item in seen.values() if isinstance(item, torch.Tensor)]


def test_data_may_come_in_batches_and_must_fit(data) -> None:
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch_size=7)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    assert genbench.Subject.from_module(model, data=loader).m == 50
    with pytest.raises(ValueError, match="50 inputs but 49 labels"):
        genbench.Subject.from_module(model, data=(data[0], data[1][:-1]))
    with pytest.raises(ValueError, match="empty"):
        genbench.Subject.from_module(model, data=[])
