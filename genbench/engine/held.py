"""Networks that a worker holds, and readings that are asked of it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from genbench.engine.cells import Outcome, Status
from genbench.engine.messages import NetworkPlace, Reading
from genbench.engine.works import load_network
from genbench.errors import described
from genbench.plugin.registry import Source
from genbench.subject.parts import Kept
from genbench.subject.subject import TrainedNetwork

__all__ = ["Asked", "Held"]


@dataclass
class Held:
    """A network that readings are taken of, and what is known of it."""

    place: NetworkPlace
    part_seed: int
    network: TrainedNetwork | None = None
    parts: Kept = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)

    def load(self) -> TrainedNetwork:
        """The network, on the CPU."""
        if self.network is None:
            self.network = load_network(self.place)
            # Every reading asks for it; a child, which copies the pages it touches, would take twice as long.
            _ = self.network.finite
            self.network.learn_to_fold()
        return self.network


@dataclass(frozen=True)
class Asked:
    """Readings of one network by one plugin, or by genbench's own measures."""

    place: NetworkPlace
    part_seed: int
    source: Source
    readings: list[Reading]

    def failed(self, problem: Exception, ended: Container[str] = ()) -> Iterator[tuple[str, Outcome]]:
        """What becomes of those that have not ended."""
        outcome = Outcome(Status.FAILED, f"the subject could not be loaded: {described(problem)}")
        return ((one.key, outcome) for one in self.readings if one.key not in ended)
