"""What the audit's pack lists."""

from __future__ import annotations

from msgspec import Struct

from genbench.packs.manifest import Manifest, Packed

__all__ = ["AuditManifest", "PackedStack"]


class PackedStack(Struct, frozen=True):
    """A stack of networks."""

    trained: Packed
    judged: Packed


class AuditManifest(Manifest, frozen=True, kw_only=True):
    """By name of the stack."""

    stacks: dict[str, PackedStack]
