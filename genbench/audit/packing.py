"""Writes the audit's pack out of a store, and compares a pack with networks trained anew."""

from __future__ import annotations

from pathlib import Path

from genbench.audit.manifest import AuditManifest, PackedStack
from genbench.audit.plan import AuditPlan, audit_content
from genbench.engine.store import Origin, Store, read_manifest
from genbench.keys import canonical_json, file_hash, text_hash
from genbench.packs.build import Comparison, PackHead, new_pack, packed
from genbench.packs.pack import Pack
from genbench.packs.shared_rows import share_rows

__all__ = ["compare_audit", "write_audit_pack"]

_WEIGHTS = ("initial.safetensors", "final.safetensors", "trace.safetensors")


def write_audit_pack(
    plan: AuditPlan, store: Store, target: Path, provenance: Origin, version: int = 1
) -> None:
    """Write the networks of a finished plan; `target` appears whole."""
    head = PackHead("audit", version, "Networks of the audit", audit_content())
    with new_pack(target, head, provenance) as draft:
        stacks = {
            one.name: PackedStack(
                packed(store.folder(one.stack.key), draft.folder, _file_name(number), _stems()),
                packed(store.folder(one.truths.key), draft.folder, _file_name(number), ()),
            )
            for number, one in enumerate(plan.stacks)
        }
        # Rows that are alike, as a best checkpoint by two rules, are stored once, and files have one header.
        initial, final = ([one.trained.files[w].file for one in stacks.values()] for w in _WEIGHTS[:2])
        draft.parts.update(
            {
                "data_hash": _data_hash(plan, store),
                "stacks": stacks,
                "shared": {
                    **share_rows(draft.folder, initial, "initial", compress=True),
                    **share_rows(draft.folder, final, "final", compress=True),
                },
            }
        )


def _file_name(number: int) -> str:
    return f"stack-{number:02d}"


def _stems() -> tuple[str, ...]:
    return tuple(Path(name).stem for name in _WEIGHTS)


def _data_hash(plan: AuditPlan, store: Store) -> str:
    folders = [store.folder(cell.key) for cell in (plan.training, plan.heldout)]
    files = [file for folder in folders for file in sorted(folder.glob("*.safetensors"))]
    return text_hash(canonical_json([[file.name, file_hash(file)] for file in files]))


def compare_audit(pack: Pack, plan: AuditPlan, store: Store) -> list[Comparison]:
    """Every stack of the pack against the same trained anew, by bits and by held-out errors."""
    shipped = pack.read_as(AuditManifest).stacks
    found = []
    for one in plan.stacks:
        entry, folder = shipped[one.name], store.folder(one.stack.key)
        pack.check(entry.trained.files)
        same = all(entry.trained.files[file].sha256 == file_hash(folder / file) for file in _WEIGHTS)
        rebuilt = read_manifest(store.folder(one.truths.key))["result"]["error"]
        pairs = zip(entry.judged.result["error"], rebuilt, strict=True)
        apart = [0.0 if a == b else float("inf") if a is None or b is None else abs(a - b) for a, b in pairs]
        found.append(Comparison(one.name, same, max(apart), 0.0))
    return found
