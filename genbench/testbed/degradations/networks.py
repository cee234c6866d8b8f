"""What the small networks of degradations share: seeded training, and outputs that batches do not change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor, nn

__all__ = ["crops", "in_fixed_batches", "mean_colour", "one_thread", "remembering", "seeded", "train"]

Module = TypeVar("Module", bound=nn.Module)

_AT_ONCE = 2**26
"""Pixel values of which a mean is taken at once."""
_BATCH_VALUES = 2**17
"""Pixel values of one internal batch: 42 colour images of 32 × 32."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Sums over a batch are cut by the number of threads; with one they have one value."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def seeded(make: Callable[[], Module], seed: int) -> Module:
    """A new module on the CPU whose initial weights depend on `seed` alone.

    The global generator is left as it was.
    """
    with torch.random.fork_rng(devices=[]), torch.device("cpu"):
        torch.manual_seed(seed)
        return make()


def train(
    network: nn.Module,
    loss: Callable[[Tensor, Tensor], Tensor],
    images: Tensor,
    *,
    crop: int,
    batch: int,
    steps: int,
    rate: float,
    generator: torch.Generator,
) -> None:
    """Adam with a linearly falling rate on random crops; then the network is frozen, in eval mode.

    Parameters
    ----------
    loss : of (crops in [0, 1], row numbers of the images they come from).
    images : (n, channels, height, width) uint8, on the network's device.
    crop : side of the square crops; a side that is smaller is taken whole.
    batch : crops of one step, each of another image if there are as many.
    """
    optimiser = torch.optim.Adam(network.parameters(), lr=rate)
    order = torch.empty(0, dtype=torch.int64, device="cpu")
    with torch.enable_grad():
        for step in range(steps):
            for group in optimiser.param_groups:
                group["lr"] = rate * (1 - step / steps)
            while len(order) < batch:
                order = torch.cat([order, torch.randperm(len(images), generator=generator, device="cpu")])
            rows, order = order[:batch], order[batch:]
            optimiser.zero_grad(set_to_none=True)
            loss(crops(images, rows, crop, generator), rows).backward()
            # The first step makes Adam's counters, which torch puts on the CPU wherever the weights are.
            with nullcontext() if step else torch.device("cpu"):
                optimiser.step()
    network.requires_grad_(False).eval()


def crops(images: Tensor, rows: Tensor, crop: int, generator: torch.Generator) -> Tensor:
    """One crop of each image of `rows`, all at the same random place, as floats in [0, 1]."""
    height, width = images.shape[-2:]
    top, left = (
        int(torch.randint(max(side - crop, 0) + 1, (), generator=generator, device="cpu"))
        for side in (height, width)
    )
    return images[rows, :, top : top + crop, left : left + crop].float() / 255


def mean_colour(images: Tensor) -> Tensor:
    """(channels,) means of uint8 images, a few of which are floats at a time."""
    if images.numel() <= _AT_ONCE:
        return images.float().mean(dim=(0, 2, 3))
    # On a CPU the same bits as above, where images have several channels: there, too, one follows the other.
    total = torch.zeros(images.shape[1], dtype=torch.float32, device=images.device)
    for part in images.split(max(1, _AT_ONCE // (64 * images[0].numel()))):
        for image in part.float().sum(dim=(2, 3)):
            total += image
    return total / (images.numel() // images.shape[1])


def in_fixed_batches(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function` of tensors (n, ...), in batches whose size their shape fixes; the last one is filled up.

    The kernels chosen, and with them the last bits, depend on the size of a batch. So the same image has the
    same result whatever it is batched with.
    """
    images = inputs[0]
    # A multiple of 16, so that no image is at the odd end of a block of a matrix product.
    size = 16 * max(1, _BATCH_VALUES // (16 * images.shape[1:].numel()))
    with one_thread():
        parts = [
            function(*(_filled(part, size) for part in batch))[: len(batch[0])]
            for batch in zip(*(tensor.split(size) for tensor in inputs), strict=True)
        ]
    return torch.cat(parts) if len(images) else images


def _filled(part: Tensor, size: int) -> Tensor:
    missing = size - len(part)
    return torch.cat([part, part.new_zeros(missing, *part.shape[1:])]) if missing else part


def remembering(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """`function`, which does not work again if the same tensors come twice running.

    Calibration turns a dial many times on the same images, and a network's part in it stays the same. What
    was remembered is compared by content, so the answer is never another's. It must not be changed in place.
    """
    last: list[tuple[tuple[Tensor, ...], Tensor]] = []

    def remembered(*inputs: Tensor) -> Tensor:
        if last and len(inputs) == len(last[0][0]) and all(map(torch.equal, inputs, last[0][0])):
            return last[0][1]
        # Copies: the caller may write into its own tensors.
        result = function(*inputs)
        last[:] = [(tuple(tensor.clone() for tensor in inputs), result)]
        return result

    return remembered
