"""Stacked training against a loop over single networks: same batches, same epochs, one thread, one run."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from genbench.data.digits import DATASET
from genbench.plugin.offers import DataRequest
from genbench.population.memory import keep_freed_memory
from genbench.population.networks import Shape, make_network
from genbench.population.stacked_training import BlockRecipe, NetworkRecipe, train_stacked

NETWORKS, BATCH, EPOCHS, SIZE = 15, 32, 2, 512


def seconds(work: Callable[[], object]) -> float:
    """Of the processor: other programs on the machine do not count."""
    began = time.process_time()
    work()
    return time.process_time() - began


def train_alone(network: nn.Module, images: Tensor, labels: Tensor, recipe: NetworkRecipe) -> None:
    """One network, as anyone would write it: the epochs, and the loss on the training set after each."""
    generator = torch.Generator().manual_seed(recipe.order_seed)
    optimizer = torch.optim.SGD(network.parameters(), recipe.learning_rate, recipe.momentum)
    for _ in range(EPOCHS):
        network.train()
        for rows in torch.randperm(len(labels), generator=generator).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(network(images[rows]), labels[rows]).backward()
            optimizer.step()
        network.eval()
        with torch.no_grad():
            logits = network(images)
        float(nn.functional.cross_entropy(logits, labels))
        float((logits.argmax(1) == labels).double().mean())


def ratio(depth: int, width: int, rounds: int = 3) -> float:
    """Time of the loop over time of the stack, the median of interleaved rounds."""
    keep_freed_memory()
    data = DATASET.load(DataRequest()).train
    raw, labels = data.batch(range(SIZE)).float() / 255, data.labels[:SIZE]
    images = (raw - raw.mean()) / raw.std()
    shape = Shape("nin", depth, width, 0.0, channels=1, height=8, image_width=8, classes=10)
    networks = [make_network(shape, seed) for seed in range(NETWORKS)]
    block = BlockRecipe("sgd", BATCH, "epochs", 0.01, EPOCHS)
    recipes = [NetworkRecipe(0.01 * (1 + i % 3), 0.9, 0.0, order_seed=i) for i in range(NETWORKS)]

    def loop() -> None:
        for network, recipe in zip(copy.deepcopy(networks), recipes, strict=True):
            train_alone(network, images, labels, recipe)

    def stack() -> None:
        train_stacked(networks, images, labels, block, recipes)

    stack()
    return statistics.median(seconds(loop) / seconds(stack) for _ in range(rounds))


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("width", [8, 16, 32])
def test_every_shape_of_nin_digits_trains_three_times_faster_stacked(depth: int, width: int) -> None:
    torch.set_num_threads(1)
    found = ratio(depth, width)
    print(f"depth {depth} width {width}: {found:.1f} times the networks per second")
    assert found >= 3
