"""Exp++: schedules of SGD under which weights grow without bound and the function stays (000, section 6).

For a network whose function does not change when its trained weights theta are multiplied by a number, SGD
with momentum gamma, rate eta_0 and weight decay lambda,

    theta_{t+1} = theta_t + eta_0 [gamma (theta_t − theta_{t−1}) / eta_0 − ∇L(theta_t) − lambda theta_t],

and for any alpha in (0, 1]

    theta~_{t+1} = theta~_t + eta~_t [gamma (theta~_t − theta~_{t−1}) / eta~_{t−1} − ∇L(theta~_t)
                                      − lambda~_t theta~_t]
    eta~_t    = eta_0 alpha^(−2t−1)          for t ≥ −1
    lambda~_t = Xi alpha^(2t−1),             Xi = (alpha² − (1 + gamma − eta_0 lambda) alpha + gamma) / eta_0
    theta~_{−1} = alpha theta_0

go through theta~_t = alpha^(−t) theta_t, which all have one function. These are Theorem 6.2's schedules with
the indices of Definition C.2 and without the term for t = 0 of its Eq. 9. As printed the theorem does not
hold: it is off by a part in 100 after one step (`tests/test_audit_exponential.py`).

In float64, because training amplifies rounding: in float32 two runs differ by a hundredth after 100 steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from genbench.audit.images import training_set
from genbench.audit.networks import make_audit_network
from genbench.audit.stacks import save_states, save_traces
from genbench.audit.step_types import END, ExponentialInputs, KeptNetwork, StackResult

__all__ = ["decay_at", "rate_at", "train_exponential"]


def rate_at(step: int, alpha: float, rate: float) -> float:
    """eta~_t, t ≥ −1."""
    return rate * alpha ** (-2 * step - 1)


def decay_at(step: int, alpha: float, rate: float, momentum: float, decay: float) -> float:
    """lambda~_t, t ≥ 0; negative for some alpha, so it is no `weight_decay` of an optimizer."""
    xi = (alpha**2 - (1 + momentum - rate * decay) * alpha + momentum) / rate
    return xi * alpha ** (2 * step - 1)


def train_exponential(inputs: ExponentialInputs, parents: Mapping[str, Path], out: Path) -> StackResult:
    """Train the same network under every schedule; the first of each weight decay must have alpha = 1."""
    data = training_set(parents["training"], inputs.images)
    cpu = torch.device("cpu")
    images, labels = data.inputs(cpu)[: len(data.labels)].double(), data.labels
    initial = make_audit_network(inputs.shape, inputs.init_seed).double()
    states, traces, rows = [], [], []
    functions: dict[float, Tensor] = {}
    for place, (alpha, decay) in enumerate(inputs.schedules):
        network = make_audit_network(inputs.shape, inputs.init_seed).double()
        trace = _train(network, images, labels, inputs, alpha, decay)
        with torch.no_grad():
            logits = network(images)
        assert alpha == 1.0 or decay in functions, "a run with alpha = 1 comes first"
        reference = functions.setdefault(decay, logits)
        states.append({name: value.detach().clone() for name, value in network.state_dict().items()})
        traces.append({name: torch.tensor(values, dtype=torch.float64) for name, values in trace.items()})
        rows.append(
            KeptNetwork(
                network=place,
                mark=END,
                epoch=len(trace["loss"]),
                reached=True,
                train_loss=float(nn.functional.cross_entropy(logits, labels)),
                train_accuracy=float((logits.argmax(dim=1) == labels).double().mean()),
                function_change=float((logits - reference).abs().max() / reference.abs().max()),
            )
        )
    save_states([dict(initial.state_dict())] * len(rows), out / "initial.safetensors")
    save_states(states, out / "final.safetensors")
    save_traces(traces, out / "trace.safetensors")
    return StackResult(
        shape=inputs.shape,
        images=inputs.images,
        mean=data.mean,
        std=data.std,
        parameters=sum(p.numel() for p in initial.parameters()),
        kept=rows,
    )


def _train(
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    inputs: ExponentialInputs,
    alpha: float,
    decay: float,
) -> dict[str, list[float]]:
    """One run; what it recorded after every pass over the examples."""
    theta = [p for p in network.parameters() if p.requires_grad]
    before = [alpha * p.detach() for p in theta]
    trace: dict[str, list[float]] = {
        name: [] for name in ("loss", "accuracy", "gradient_norm", "gradient_variance")
    }
    gradients: list[Tensor] = []
    batches = _batches(len(labels), inputs)
    for step, rows in enumerate(batches):
        loss = nn.functional.cross_entropy(network(images[rows]), labels[rows])
        gradient = torch.autograd.grad(loss, theta)
        rate, earlier = (rate_at(t, alpha, inputs.rate) for t in (step, step - 1))
        shrink = decay_at(step, alpha, inputs.rate, inputs.momentum, decay)
        with torch.no_grad():
            for place, (p, g) in enumerate(zip(theta, gradient, strict=True)):
                now = p.detach().clone()
                p.add_(rate * (inputs.momentum * (p - before[place]) / earlier - g - shrink * p))
                before[place] = now
        gradients.append(torch.cat([g.flatten() for g in gradient]))
        if len(gradients) * inputs.batch_size >= len(labels) or step + 1 == len(batches):
            _note(trace, network, images, labels, gradients)
            gradients = []
    return trace


def _batches(count: int, inputs: ExponentialInputs) -> Sequence[Tensor]:
    generator = torch.Generator("cpu").manual_seed(inputs.order_seed)
    found: list[Tensor] = []
    while len(found) < inputs.steps:
        found += torch.randperm(count, generator=generator, device="cpu").split(inputs.batch_size)
    return found[: inputs.steps]


@torch.no_grad()
def _note(
    trace: dict[str, list[float]],
    network: nn.Module,
    images: Tensor,
    labels: Tensor,
    gradients: Sequence[Tensor],
) -> None:
    logits = network(images)
    stacked = torch.stack(list(gradients))
    trace["loss"].append(float(nn.functional.cross_entropy(logits, labels)))
    trace["accuracy"].append(float((logits.argmax(dim=1) == labels).double().mean()))
    trace["gradient_norm"].append(float(stacked.norm(dim=1).mean()))
    trace["gradient_variance"].append(float(stacked.var(dim=0, unbiased=False).mean()))
