"""Records of measures on the suite `nin-fashion` as runs would have written them, with made-up readings."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from test_records import scored_records

from genbench.keys import file_hash
from genbench.plugin.registry import load_registry
from genbench.population.evidence import PopulationEvidence
from genbench.records.provenance import package_versions
from genbench.records.record import SCHEMA
from genbench.subject.version import SUBJECT_VERSION
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.kind import kind_of

SUITE = "nin-fashion"
SHA = "0" * 64
HOSTILE = """<script>document.title = "owned"</script><b onmouseover="x"></b>"""


def population_evidence() -> PopulationEvidence:
    evidence = shipped_evidence(SUITE)
    assert isinstance(evidence, PopulationEvidence)
    return evidence


def population_records() -> list[dict[str, Any]]:
    """A baseline, a good measure, a hostile one that misses some networks, and one without a value."""
    return copy.deepcopy(_population_records())


@cache
def _population_records() -> list[dict[str, Any]]:
    import numpy as np

    networks = population_evidence().rows
    drawn = np.random.default_rng(0).normal(size=(2, len(networks))).tolist()
    noise, other = (dict(zip(networks, numbers, strict=True)) for numbers in drawn)
    sizes = {label: float(network["parameters"]) for label, network in networks.items()}
    near = {label: 10 ** (6 * network["gap"] + 0.05 * noise[label]) for label, network in networks.items()}
    some = {label: other[label] for label, network in networks.items() if network["hp.depth"] > 2}
    harm = {"summary": HOSTILE, "description": f"{HOSTILE}\n\n{HOSTILE}", "category": "margin"}
    return scored_records(
        [
            _record("baseline_size", sizes, category="baseline"),
            _record("near_the_gap", near, paper="001 (27)"),
            _record("hostile", some, higher_means="better", **harm),
            _record("silent", {}),
        ],
        population_evidence(),
    )


def _record(name: str, values: Mapping[str, float], **about: Any) -> dict[str, Any]:
    evidence = population_evidence()
    pack = evidence.pack
    assert pack is not None
    built_in = load_registry().measures.get(name)
    readings = [
        {
            "subject": subject, "status": "ok" if subject in values else "not_applicable",
            "reason": "" if subject in values else HOSTILE, "value": values.get(subject),
            "detail": {}, "seconds": 0.5, "shared_seconds": 0.25, "peak_bytes": 1000,
        }
        for subject in evidence.networks
    ]  # fmt: skip
    return {
        "schema": SCHEMA,
        "suite": SUITE,
        "evidence": pack.hash,
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
            "evidence": pack.version, "data_sha256": pack.manifest.data_hash,
            "networks": kind_of(evidence.suite).weight_hashes(pack, evidence.networks),
            "packages": package_versions(),
            "platform": {"system": "Linux", "machine": "x86_64", "libc": "", "python": "3.11"},
            "seeds": {"bootstrap": evidence.suite.bootstrap_seed}, "git": None,
            "command": f"genbench run --suite {SUITE} --measure {name}",
        },
        "readings": readings,
        "keys": SHA,
        "cost": {"seconds": 0.5 * len(readings), "shared_seconds": 0.25 * len(readings), "peak_bytes": 1000},
        "statuses": dict(Counter(reading["status"] for reading in readings)),
    }  # fmt: skip
