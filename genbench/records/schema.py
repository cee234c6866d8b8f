"""The JSON schema of a result record: what `genbench schema` prints and what validation follows."""

from __future__ import annotations

from typing import Any

from genbench.engine.cells import Status

__all__ = ["MEASURE_NAME", "SCHEMA", "SUITE_NAME", "record_schema"]

SCHEMA = 2
"""Version of the format; a record of another version is refused."""

MEASURE_NAME = "^[a-z_][a-z0-9_]{0,79}$"
SUITE_NAME = "^[a-z0-9]+([._-][a-z0-9]+)*$"
"""Both name files: no slash, no leading dot, no two dots in a row."""

_SHA256 = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TEXT = {"type": "string", "maxLength": 200}
_COUNT = {"type": "integer", "minimum": 0}
_SHARE = {"type": "number", "minimum": 0, "maximum": 1}
_SECONDS = {"type": "number", "minimum": 0}


def _table(description: str, fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    """An object with exactly these fields."""
    return {
        "description": description,
        "type": "object",
        "properties": fields,
        "required": sorted(fields),
        "additionalProperties": False,
        **more,
    }


def _names(description: str, values: dict[str, Any]) -> dict[str, Any]:
    return {
        "description": description,
        "type": "object",
        "maxProperties": 5000,
        "additionalProperties": values,
    }


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _listed(items: dict[str, Any], description: str) -> dict[str, Any]:
    return {"description": description, "type": "array", "maxItems": 100_000, "items": items}


def record_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of one record."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "genbench result record",
        **_table(
            "The readings and scores of one measure on one suite. Lies in records/<suite>/<measure>.json.",
            {
                "schema": {"description": "Version of this format.", "const": SCHEMA},
                "suite": {"description": "Name of the suite.", "type": "string", "pattern": SUITE_NAME},
                "evidence": {
                    "description": "sha256 of the evidence pack's manifest; null if there was no pack.",
                    **_or_null(_SHA256),
                },
                "subject_version": {"description": "Code version of genbench.subject.", **_COUNT},
                "measure": _measure(),
                "plugin": _plugin(),
                "provenance": _provenance(),
                "readings": _listed(_reading(), "One per network of the suite, in its order."),
                "statuses": _names("Status to number of readings.", _COUNT),
                "cost": _cost("Of all readings: sums of seconds, the largest memory."),
                "sign_error": {
                    "anyOf": [_sign_error(), _population_score(), _gap_sign_error(), {"type": "null"}]
                },
                "sha256": {
                    "description": "sha256 of everything else: sorted keys, no spaces, UTF-8.",
                    **_SHA256,
                },
            },
        ),
    }


def _measure() -> dict[str, Any]:
    return _table(
        "What the measure says of itself.",
        {
            "name": {"type": "string", "pattern": MEASURE_NAME},
            "version": _TEXT,
            "category": _TEXT,
            "summary": {"type": "string", "maxLength": 500},
            "description": {"description": "Formula and limits.", "type": "string", "maxLength": 20_000},
            "paper": _TEXT,
            "higher_means": {"enum": ["worse", "better"]},
            "logarithm": {"type": "boolean"},
            "randomness": {"enum": ["none", "seeded"]},
            "needs": _listed(_TEXT, "What it takes from a network."),
        },
    )


def _plugin() -> dict[str, Any]:
    return _table(
        "Who offers the measure.",
        {
            "kind": {"enum": ["built-in", "package", "file"]},
            "name": _TEXT,
            "distribution": _TEXT,
            "version": _TEXT,
            "sha256": {"description": "Of the source code.", **_SHA256},
        },
    )


def _provenance() -> dict[str, Any]:
    return _table(
        "What the readings were made from.",
        {
            "genbench": _TEXT,
            "suite_sha256": {"description": "Of the suite's TOML file.", **_SHA256},
            "evidence": {"description": "Name and version of the evidence pack.", **_or_null(_TEXT)},
            "data_sha256": {"description": "Of the images.", **_or_null(_SHA256)},
            "networks": _names("Network, or stack of networks, to sha256 of its weights.", _SHA256),
            "packages": _names("Package to version.", _TEXT),
            "platform": _table(
                "The machine.", {"system": _TEXT, "machine": _TEXT, "libc": _TEXT, "python": _TEXT}
            ),
            "seeds": _table("Readings have their own.", {"bootstrap": _COUNT}),
            "git": _or_null(
                _table(
                    "Of the genbench checkout; null for an installed package.",
                    {
                        "commit": {"type": "string", "pattern": "^[0-9a-f]{40,64}$"},
                        "dirty": {"type": "boolean"},
                    },
                )
            ),
            "command": {"type": "string", "maxLength": 1000},
        },
    )


def _cost(description: str) -> dict[str, Any]:
    return _table(description, {"seconds": _SECONDS, "shared_seconds": _SECONDS, "peak_bytes": _COUNT})


def _reading() -> dict[str, Any]:
    return _table(
        "The measure on one network.",
        {
            "subject": _TEXT,
            "status": {"enum": [str(status) for status in Status]},
            "reason": {"type": "string", "maxLength": 10_000},
            "value": _or_null({"type": "number"}),
            "detail": {"description": "Standard error, samples, layers.", "type": "object"},
            "seconds": {"description": "The measure's own time.", **_SECONDS},
            "shared_seconds": {"description": "Time of the shared parts it used.", **_SECONDS},
            "peak_bytes": _COUNT,
            "seed": _COUNT,
            "key": {"description": "Hash of all that determines the reading.", **_SHA256},
        },
    )


def _sign_error() -> dict[str, Any]:
    number = {"type": "number"}
    interval = {"value": _SHARE, "low": _SHARE, "high": _SHARE, "noise_aware": _or_null(_SHARE)}
    part = _table(
        "One family, slice and statistic.",
        {
            "family": _TEXT, "slice": _TEXT, "statistic": _TEXT, **interval,
            "pairs": _COUNT, "sure_pairs": _COUNT, "ties": _COUNT,
        },
    )  # fmt: skip
    pair = _table(
        "Two networks in the wrong order.",
        {
            "family": _TEXT, "slice": _TEXT, "better": _TEXT, "worse": _TEXT, "error_better": number,
            "error_worse": number, "reading_better": number, "reading_worse": number, "certainty": number,
        },
    )  # fmt: skip
    return _table(
        "Sign-error against the practical metric (SPEC.md section 1), with 95 % intervals.",
        {
            **interval,
            "pairs": _COUNT,
            "dropped": _COUNT,
            "parts": _listed(part, "By family, slice and statistic."),
            "worst": _listed(pair, "Wrongly ordered pairs, the surest first."),
        },
    )


def _population_score() -> dict[str, Any]:
    environment = _table(
        "Two combinations of hyperparameters whose gaps are ordered wrongly more often than not.",
        {
            "hyperparameter": _TEXT, "low_value": _TEXT, "high_value": _TEXT, "fixed": _TEXT,
            "n_eff": {"type": "number"}, "sign_error": _SHARE,
        },
    )  # fmt: skip
    kinds = {
        "score": _TEXT, "target": _TEXT, "part": _TEXT, "statistic": _TEXT,
        "value": _or_null({"type": "number"}), "low": _or_null({"type": "number"}),
        "high": _or_null({"type": "number"}), "count": _COUNT, "available": _COUNT, "rows": _COUNT,
        "dropped": _COUNT, "resamples": _COUNT, "note": {"type": "string", "maxLength": 1000},
    }  # fmt: skip
    number = {
        "description": f"One number of `genbench score`: {', '.join(kinds)}.",
        "type": "array",
        "prefixItems": list(kinds.values()),
        "minItems": len(kinds),
        "maxItems": len(kinds),
    }
    return _table(
        "Of a population: mean over environments of the sign-error (001), with its 95 % interval over seeds, "
        "and every other score of the record table.",
        {
            "value": _SHARE,
            "low": _SHARE,
            "high": _SHARE,
            "environments": {"description": "Kept by the noise filter.", **_COUNT},
            "available": _COUNT,
            "dropped": _COUNT,
            "scores": _listed(number, "Every number."),
            "worst": _listed(environment, "Where it fails, the worst first."),
        },
    )


def _gap_sign_error() -> dict[str, Any]:
    return _table(
        "Of a population without seeds: sign-error against the held-out gap, with its 95 % interval.",
        {"value": _SHARE, "low": _SHARE, "high": _SHARE, "pairs": _COUNT, "dropped": _COUNT},
    )
