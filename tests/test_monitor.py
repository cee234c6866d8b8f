"""Measures while a network trains, and of networks by name."""

from __future__ import annotations

import csv
import json
import sys
import types

import pytest
import torch
from torch import nn

import genbench
from genbench.errors import UserError

GENERATOR = torch.Generator().manual_seed(0)
DATA = torch.randn(64, 6, generator=GENERATOR), torch.arange(64) % 3


class Net(nn.Module):
    passes = 0

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layers = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 3))

    def forward(self, x):
        Net.passes += 1
        return self.layers(x)


def trained(monitor: genbench.Monitor | None, epochs: int = 4) -> nn.Module:
    model = Net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(2)
    if monitor is not None:
        monitor.start(model)
    for epoch in range(epochs):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(DATA[0]), DATA[1]).backward()
        optimizer.step()
        if monitor is not None:
            before = model.layers[0].weight.grad.clone()
            monitor.step(model, epoch)
            assert model.training
            assert torch.equal(model.layers[0].weight.grad, before)
    return model


def test_training_goes_the_same_way_with_and_without() -> None:
    """Dropout draws from the global generator, which measures with noise of their own must leave alone."""
    with_ = trained(genbench.Monitor(["sharpness", "param_norm"], DATA))
    without = trained(None)
    for one, other in zip(with_.parameters(), without.parameters(), strict=True):
        assert torch.equal(one, other)


def test_the_last_point_of_a_curve_is_the_reading_of_the_trained_network() -> None:
    monitor = genbench.Monitor(["param_norm", "fro_dist", "inverse_margin"], DATA, every=3)
    model = trained(monitor)
    assert list(monitor.frame.index) == [0, 3]
    subject = genbench.Subject.from_module(model, data=DATA, initial=Net())
    for name in monitor.frame:
        assert monitor.frame[name].iloc[-1] == float(genbench.read(name, subject, threads=None))
    assert len(monitor.plot().axes) == 3
    assert "<svg" in monitor._repr_html_()


def test_a_step_costs_what_the_reading_costs() -> None:
    """In passes through the network: one more, which finds out how many classes there are."""
    monitor = genbench.Monitor("sharpness", DATA)
    model = Net()
    subject = genbench.Subject.from_module(model, data=DATA, classes=3)
    Net.passes = 0
    genbench.read("sharpness", subject)
    alone, Net.passes = Net.passes, 0
    monitor.step(model, 0)
    assert alone > 10
    assert Net.passes <= alone + 1


class Writer:
    def __init__(self) -> None:
        self.seen: list[tuple[str, float, int]] = []

    def add_scalar(self, tag, scalar_value, global_step) -> None:
        self.seen.append((tag, scalar_value, global_step))


def test_readings_go_to_a_file_a_writer_and_a_function(tmp_path) -> None:
    writer, told = Writer(), []
    file = tmp_path / "curves.csv"
    log = [str(file), writer, lambda epoch, row: told.append((epoch, dict(row)))]
    monitor = genbench.Monitor(["param_norm", "gradient_noise_var"], DATA, log=log)
    trained(monitor, 2)
    assert [epoch for epoch, _ in told] == [0, 1]
    values = [row["param_norm"] for _, row in told]
    assert writer.seen == [("genbench/param_norm", value, epoch) for epoch, value in enumerate(values)]
    rows = list(csv.DictReader(file.open()))
    assert [float(row["param_norm"]) for row in rows] == values
    assert {row["gradient_noise_var"] for row in rows} == {""}, "it needs a trace, which nobody kept"
    assert "trace" in monitor.reasons["gradient_noise_var"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"every": 0}, "every=0"),
        ({"log": "curves.txt"}, "ends in .csv"),
        ({"log": 5}, "give a CSV file, a SummaryWriter or a function"),
        ({"measures": []}, "say what to read"),
        ({"measures": "path_nrom"}, "did you mean"),
    ],
)
def test_what_a_monitor_refuses(arguments, said) -> None:
    with pytest.raises(UserError, match=said):
        genbench.Monitor(**{"measures": "params", "data": DATA, **arguments})


# -- Lightning ----------------------------------------------------------------------------------------------


def test_the_callback_starts_with_the_fit_and_reads_after_epochs(monkeypatch) -> None:
    """With the two hooks that Lightning calls; the test below has the real thing."""
    lightning, pytorch = types.ModuleType("lightning"), types.ModuleType("lightning.pytorch")
    pytorch.Callback = object  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lightning", lightning)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", pytorch)
    monitor = genbench.Monitor(["param_norm", "fro_dist"], DATA)
    module = Net()
    module._trainer = threads = iter([])  # what cannot be copied, as a trainer
    callback = monitor.callback()
    callback.on_fit_start(None, module)
    for epoch in range(3):
        callback.on_train_epoch_end(types.SimpleNamespace(current_epoch=epoch), module)
    assert list(monitor.frame.index) == [0, 1, 2]
    assert (monitor.frame["fro_dist"] == 0).all(), "it did not train"
    assert module._trainer is threads


@pytest.mark.parametrize("chosen", ["its network", "the module itself"])
def test_a_real_lightning_training(chosen: str) -> None:
    """Three epochs, with the curves that a plain loop over the same batches gives, and no pass through the
    network more than those of the training and of the readings alone."""
    import lightning.pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = Net()

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, _):
            return nn.functional.cross_entropy(self(batch[0]), batch[1])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    names = ["param_norm", "fro_dist", "inverse_margin"]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*DATA), batch_size=16)
    subject = genbench.Subject.from_module(Net(), data=DATA, initial=Net(), classes=3)
    Net.passes = 0
    for name in names:
        genbench.read(name, subject)
    alone = Net.passes

    monitor = genbench.Monitor(names, DATA, classes=3)
    callback = monitor.callback(lambda module: module.net) if chosen == "its network" else monitor.callback()
    trainer = lightning.Trainer(
        max_epochs=3, callbacks=[callback], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, accelerator="cpu",
    )  # fmt: skip
    module = Module()
    torch.manual_seed(2)
    Net.passes = 0
    trainer.fit(module, loader)
    assert Net.passes <= 3 * len(loader) + 3 * alone
    assert module.trainer is trainer

    plain, curve = Net(), genbench.Monitor(names, DATA, classes=3)
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    torch.manual_seed(2)
    curve.start(plain)
    for epoch in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(plain(x), y).backward()
            optimizer.step()
        curve.step(plain, epoch)
    assert list(monitor.frame.index) == [0, 1, 2]
    assert (monitor.frame["fro_dist"] > 0).all()
    assert monitor.frame.equals(curve.frame)


def test_without_lightning_the_callback_says_what_to_install(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "lightning", None)
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(UserError, match=r"genbench\[lightning\]"):
        genbench.Monitor("params", DATA).callback()


# -- networks by name ---------------------------------------------------------------------------------------


def test_the_head_of_a_named_network_is_scikit_learns_regression() -> None:
    from sklearn.linear_model import LogisticRegression

    from genbench.api.named import named_subject

    subject = named_subject("mini-efficientnet:b0", "digits", images=120)
    assert (subject.m, subject.classes) == (120, 10)
    assert torch.bincount(subject.labels()).tolist() == [12] * 10, "of every class as many"
    tower = subject.model[0]
    with torch.no_grad():
        features = torch.cat([tower(x) for x, _ in subject.batches()]).double()
    spread, mean = torch.std_mean(features, dim=0, correction=0)
    z = ((features - mean) / spread.clamp(min=1e-3 * spread.square().mean().sqrt())).numpy()
    reference = LogisticRegression(C=1 / 10, max_iter=5000, tol=1e-8).fit(z, subject.labels().numpy())
    probabilities = torch.from_numpy(reference.predict_proba(z))
    assert torch.allclose(subject.logits().double().softmax(1), probabilities, atol=2e-3)
    assert subject.hyperparameters["backbone"] == "mini-efficientnet:b0"
    assert subject.provides == {"weights", "training_data", "gradients"}


def test_a_named_network_is_read(run) -> None:
    arguments = ("read", "mini-efficientnet:b0", "--dataset", "digits", "--images", "60", "--json")
    done = run(*arguments, "--measure", "params", "--measure", "fro_dist")
    rows = {row["measure"]: row for row in json.loads(done.stdout)}
    assert rows["params"]["status"] == "ok", done.stderr
    assert rows["fro_dist"]["status"] == "not_applicable", "what it was before is not known"
    again = json.loads(run(*arguments, "--measure", "params").stdout)
    assert again[0]["stored"], "kept as any reading"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("timm:resnet18",), "needs a --dataset"),
        (("mini-clip:short1", "--dataset", "digits"), "did you mean 'mini-clip:short"),
        (("mini-clip:short4", "--dataset", "digitz"), "did you mean 'digits'"),
        (("net.py:build", "--dataset", "digits"), "brings its own data"),
    ],
)
def test_what_cannot_be_read_by_name(run, words, said) -> None:
    done = run("read", *words, "--measure", "params")
    assert done.returncode == 2
    assert said in done.stderr
