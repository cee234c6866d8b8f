"""Records of measures on the suite `nin-digits` as runs would have written them, with made-up readings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from genbench.keys import file_hash
from genbench.plugin.registry import load_registry
from genbench.records.provenance import bootstrap_seed, package_versions
from genbench.records.schema import SCHEMA
from genbench.records.write import body_hash
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.evidence_old import PopulationEvidence, suite_evidence

SUITE = "nin-digits"
SHA = "0" * 64
HOSTILE = """<script>document.title = "owned"</script><b onmouseover="x"></b>"""


def population_evidence() -> PopulationEvidence:
    evidence = suite_evidence(SUITE)
    assert isinstance(evidence, PopulationEvidence)
    return evidence


def population_records() -> list[dict[str, Any]]:
    """A baseline, a good measure, a hostile one that misses some networks, and one without a value."""
    import numpy as np

    networks = population_evidence().rows
    drawn = np.random.default_rng(0).normal(size=(2, len(networks))).tolist()
    noise, other = (dict(zip(networks, numbers, strict=True)) for numbers in drawn)
    sizes = {label: float(network["parameters"]) for label, network in networks.items()}
    near = {label: 10 ** (6 * network["gap"] + 0.2 * noise[label]) for label, network in networks.items()}
    some = {label: other[label] for label, network in networks.items() if network["hp.depth"] > 1}
    harm = {"summary": HOSTILE, "description": f"{HOSTILE}\n\n{HOSTILE}", "category": "margin"}
    return _scored(
        [
            _record("baseline_size", sizes, category="baseline"),
            _record("near_the_gap", near, paper="001 (27)"),
            _record("hostile", some, higher_means="better", **harm),
            _record("silent", {}),
        ]
    )


def _record(name: str, values: Mapping[str, float], **about: Any) -> dict[str, Any]:
    evidence = population_evidence()
    built_in = load_registry().measures.get(name)
    readings = [
        {
            "subject": subject, "status": "ok" if subject in values else "not_applicable",
            "reason": "" if subject in values else HOSTILE, "value": values.get(subject),
            "detail": {}, "seconds": 0.5, "shared_seconds": 0.25, "peak_bytes": 1000, "seed": 1, "key": SHA,
        }
        for subject in evidence.subjects
    ]  # fmt: skip
    return {
        "schema": SCHEMA,
        "suite": SUITE,
        "evidence": evidence.pack.hash,
        "subject_version": SUBJECT_VERSION,
        "measure": {
            "name": name, "version": built_in.item.version if built_in else "1", "category": "norm",
            "summary": f"The measure {name}.", "description": f"The measure {name}.\n\nA formula.",
            "paper": "", "higher_means": "worse", "logarithm": False, "randomness": "none",
            "needs": ["weights"], **about,
        },
        "plugin": {
            "kind": "built-in" if built_in else "package", "name": name, "distribution": f"genbench-{name}",
            "version": "0.1.0", "sha256": SHA,
        },
        "provenance": {
            "genbench": "0.1.0", "suite_sha256": file_hash(evidence.suite.path),
            "evidence": evidence.pack.version, "data_sha256": evidence.data_sha256,
            "networks": evidence.networks, "packages": package_versions(),
            "platform": {"system": "Linux", "machine": "x86_64", "libc": "", "python": "3.11"},
            "seeds": {"bootstrap": bootstrap_seed(SUITE)}, "git": None,
            "command": f"genbench run --suite {SUITE} --measure {name}",
        },
        "readings": readings,
        "cost": {"seconds": 0.5 * len(readings), "shared_seconds": 0.25 * len(readings), "peak_bytes": 1000},
        "statuses": dict(Counter(reading["status"] for reading in readings)),
    }  # fmt: skip


def _scored(records: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """All together: one by one takes seconds each."""
    for record, score in zip(records, population_evidence().judge(records), strict=True):
        record["sign_error"] = None if score is None else score.record()
        record["sha256"] = body_hash(record)
    return list(records)
