"""Packs of a suite: which one serves it, and making one. What is in them is the kind's to say."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from genbench.engine.store import Origin, Store
from genbench.errors import UserError
from genbench.packs.build import PackHead, new_pack
from genbench.packs.fetch import FetchProgress, PackAddress, fetch_pack, pack_cache
from genbench.packs.pack import MANIFEST, PACKS, Pack, read_pack
from genbench.suites.evidence import Evidence
from genbench.suites.kind import kind_of
from genbench.suites.plan import EvidencePlan
from genbench.suites.suite import Suite, load_suite

__all__ = ["build_pack", "find_pack", "pack_in", "published_pack", "shipped_evidence"]


def find_pack(suite: Suite) -> Pack | None:
    """The pack that ships beside the file of `suite`, if there is one and it is evidence for it."""
    folder = suite.path.parent / PACKS / suite.name
    if not (folder / MANIFEST).is_file():
        return None
    kind = kind_of(suite)
    pack = read_pack(folder, kind.manifest)
    return _whole(pack, suite) if kind.serves(pack, suite) else None


def _whole(pack: Pack, suite: Suite) -> Pack:
    """The pack, if its manifest lists all that `suite` has."""
    for what in kind_of(suite).lacking(pack, suite):
        raise UserError(f"{pack.folder / MANIFEST} is damaged: it does not have {what}; get the pack again")
    return pack


def pack_in(folder: Path, suite: Suite, shown: str = "") -> Pack:
    """The pack in a folder that someone named; a `UserError` if it is not evidence for `suite`."""
    kind = kind_of(suite)
    pack = read_pack(folder)
    if not kind.serves(pack, suite):
        raise UserError(
            f"the pack {shown or folder} is evidence for suite {pack.manifest.suite!r} with other settings "
            f"than {suite.title!r}; drop --pack, or the options that change the suite"
        )
    return _whole(read_pack(folder, kind.manifest), suite)


def published_pack(suite: Suite, address: PackAddress, progress: FetchProgress) -> Pack:
    """The pack at `address`, fetched unless it is here already; its hash is the suite's if it has none."""
    if address.sha256 is None and suite.published is not None and not suite.changed:
        address = replace(address, sha256=suite.published.sha256)
    folder = fetch_pack(address, pack_cache(), progress)
    pack = pack_in(folder, suite, address.url)
    return replace(pack, address=str(replace(address, sha256=pack.hash)))


def build_pack(
    suite: Suite, plan: EvidencePlan, store: Store, target: Path, provenance: Origin, version: int
) -> None:
    """Write the networks and truths of a finished plan, made from nothing; `target` appears whole."""
    head = PackHead(suite.name, version, suite.summary, suite.content())
    with new_pack(target, head, provenance) as draft:
        kind_of(suite).fill_pack(draft, plan, store)


@cache
def shipped_evidence(name: str) -> Evidence:
    """The evidence that ships for the suite `name`."""
    suite = load_suite(name)
    pack = find_pack(suite)
    if pack is None:
        raise UserError(
            f"suite {name!r} ships no evidence pack, so its records cannot be checked; boards are for suites "
            "that everyone can score against"
        )
    return kind_of(suite).packed_evidence(suite, pack)
