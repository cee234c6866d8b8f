"""What the pack of a population lists."""

from __future__ import annotations

from msgspec import Struct

from genbench.packs.manifest import Manifest, Packed

__all__ = ["PackedBlock", "PopulationManifest"]


class PackedBlock(Struct, frozen=True):
    """A stack of networks."""

    subjects: list[str]
    """Its networks, in their order within the stack."""
    trained: Packed
    judged: Packed


class PopulationManifest(Manifest, frozen=True, kw_only=True):
    """Weights, traces and truths per stack."""

    blocks: list[PackedBlock]
