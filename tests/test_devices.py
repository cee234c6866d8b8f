"""No tensor is made without saying where: measures read the same where the default device is none.

`torch.set_default_device("meta")` turns every tensor that does not follow its subject into one without
values, so that what uses it fails at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import genbench
from genbench.conformance import networks
from genbench.engine.value import result_record
from genbench.plugin.registry import find_measure_here, load_registry
from genbench.subject import precision
from genbench.subject.part_messages import PartReply
from genbench.subject.parts import LocalParts, asked, compute_part, save_part

MEASURES = load_registry().measures
BUILT_IN = [name for name, entry in MEASURES.items() if entry.source.kind == "built-in"]
PLUGINS = [name for name, entry in MEASURES.items() if entry.source.kind != "built-in"]


class Residual(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.short = nn.Conv2d(before, width, 1, stride, bias=False)
        self.relu = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(y + self.short(x))


class Tokens(nn.Module):
    """A vision transformer of one block, its attention torch's own, and a layer norm at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, stride=4)
        self.position = nn.Parameter(0.02 * torch.randn(1, 4, 8))
        self.norm1, self.norm2, self.norm3 = nn.LayerNorm(8), nn.LayerNorm(8), nn.LayerNorm(8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.position
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.mlp(self.norm2(x))
        out: Tensor = self.head(self.norm3(x).mean(1))
        return out


MAKERS: dict[str, tuple[int, Callable[[], nn.Module]]] = {
    "perceptron": (
        300,  # more than most parts look at: they choose among them
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(192, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(),
                              nn.Linear(8, 3)),
    ),
    "convolutions": (
        24,
        lambda: nn.Sequential(
            nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1),
            nn.BatchNorm2d(32), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 3),
        ),
    ),
    "residual": (
        24,
        lambda: nn.Sequential(Residual(3, 4, 2), Residual(4, 4, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                              nn.Linear(4, 3)),
    ),
    "attention": (24, Tokens),
}  # fmt: skip


@cache
def subject(kind: str) -> genbench.Subject:
    """A network that was trained a little, as it would be on any device."""
    m, make = MAKERS[kind]
    generator = torch.Generator().manual_seed(2)
    labels = torch.arange(m) % 3
    inputs = torch.randn(3, 3, 8, 8, generator=generator)[labels] + torch.randn(
        m, 3, 8, 8, generator=generator
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        initial = make().eval()
        torch.manual_seed(1)
        model = make().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    trace = {name: torch.linspace(1, 2, 8) for name in ("loss", "accuracy", "gradient_variance")}
    return genbench.Subject.from_module(model, initial=initial, data=(inputs, labels), trace=trace)


def reading(name: str, found: genbench.Subject) -> dict[str, Any]:
    # Any default device switches torch's fused attention off, and it sums in another order.
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        (entry,) = find_measure_here(name)
        return result_record(entry.item(found.fresh()))
    except genbench.NotApplicable as refusal:
        return {"refused": str(refusal)}
    finally:
        torch.backends.mha.set_fastpath_enabled(True)


@cache
def once_more(kind: str) -> genbench.Subject:
    """The same with parts of its own, which are computed where there is no device."""
    return subject.__wrapped__(kind)


@pytest.fixture
def nowhere() -> Iterator[None]:
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("name", [*BUILT_IN, *PLUGINS])
def test_every_measure_follows_its_subject(name, kind, request) -> None:
    expected, found = reading(name, subject(kind)), once_more(kind)
    request.getfixturevalue("nowhere")
    assert reading(name, found) == expected


# -- shared parts ------------------------------------------------------------------------------------


META = torch.device("meta")


def test_parts_are_on_the_networks_device() -> None:
    network = subject("convolutions")._network
    there = replace(network, device=META)  # its tensors are still here, so that there is something to compute
    for name, options in (("margins", {}), ("spectral_norms", {"of": "final", "grid": "image"})):
        found = compute_part(there, 0, LocalParts(network, 0), name, options)
        assert {tensor.device.type for tensor in found.values()} == {"meta"}


def test_parts_arrive_from_a_file_on_the_subjects_device(tmp_path, nowhere) -> None:
    part = LocalParts(subject("convolutions")._network, 0).get("response_curve", pairs="intra", layer=0)
    save_part(part, tmp_path / "part")
    for device in (torch.device("cpu"), META):
        found, _ = asked(lambda _: PartReply("ok", file=str(tmp_path / "part")), device)("any", {})
        assert {tensor.device for tensor in found.values()} == {device}
        assert {name: tensor.dtype for name, tensor in found.items()} == {
            name: tensor.dtype for name, tensor in part.items()
        }
    here, _ = asked(lambda _: PartReply("ok", file=str(tmp_path / "part")))("any", {})
    assert all(torch.equal(here[name], tensor) for name, tensor in part.items())


def test_parts_are_no_wider_than_the_device_has_types(monkeypatch) -> None:
    monkeypatch.setattr(precision, "_WITHOUT_FLOAT64", {"cpu"})
    network = subject("convolutions")._network
    for name, options in (("log_paths", {}), ("midpoints", {}), ("log_evidence", {})):
        found = compute_part(network, 0, LocalParts(network, 0), name, options)
        assert torch.float64 not in {tensor.dtype for tensor in found.values()}


def test_the_networks_of_the_conformance_kit_are_made_on_the_cpu(nowhere) -> None:
    networks._convolutional_pair.cache_clear()
    networks._fully_connected_pair.cache_clear()
    subjects = [networks.convolutional(), networks.fully_connected()]
    subjects += [make() for make in networks.DEGENERATE.values()]
    subjects += [one for make in networks.SAME_FUNCTION.values() for one in make()]
    for found in subjects:
        held = [*found.parameters(), *found.trace().values(), *next(found.batches())]
        assert {tensor.device.type for tensor in held} == {"cpu"}
