"""The JSON schema of a result record, generated from its types: what `genbench schema` prints."""

from __future__ import annotations

from typing import Any

import msgspec

from genbench.plugin.registry import load_registry
from genbench.records.record import Record
from genbench.suites.kind import load_kind

__all__ = ["record_schema"]


def record_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one record; its scores are those of any kind of suite."""
    scores = [load_kind(name).score_type for name in load_registry().suite_kinds]
    (top, *references), parts = msgspec.json.schema_components(
        [Record, *dict.fromkeys(scores)], ref_template="#/$defs/{name}"
    )
    own = parts.pop(top["$ref"].rpartition("/")[2])
    own["properties"]["sign_error"] = {
        **{key: own["properties"]["sign_error"][key] for key in ("description",)},
        "anyOf": [*references, {"type": "null"}],
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **own,
        "title": "genbench result record",
        "$defs": parts,
    }
