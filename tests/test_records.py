"""Result records: what a run writes, and what is refused when someone else sends one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from genbench.errors import UserError
from genbench.records.convert import convert
from genbench.records.record import SCHEMA, Record
from genbench.records.results import result_of
from genbench.records.schema import record_schema
from genbench.records.validate import LARGEST, read_record, record_files
from genbench.records.write import body_hash, record_text, require_recordable
from genbench.suites.evidence import Evidence
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.kind import kind_of
from genbench.testbed.manifest import TestbedManifest

SHA = "0" * 64


def make_record(name: str, values: Mapping[str, float | None], **about: Any) -> dict[str, Any]:
    """A record of a third party's measure on `mini`, as a run would have written it."""
    from genbench.keys import file_hash
    from genbench.plugin.registry import load_registry
    from genbench.records.provenance import package_versions
    from genbench.subject.version import SUBJECT_VERSION

    evidence = shipped_evidence("mini")
    built_in = load_registry().measures.get(name)
    networks = evidence.pack.read_as(TestbedManifest).networks
    measure = {
        "name": name, "version": built_in.item.version if built_in else "1", "category": "norm",
        "summary": f"The measure {name}.", "description": f"The measure {name}.\n\nA formula.", "paper": "",
        "higher_means": "worse", "logarithm": False, "randomness": "none", "needs": ["weights"], **about,
    }  # fmt: skip
    record: dict[str, Any] = {
        "schema": SCHEMA,
        "suite": "mini",
        "evidence": evidence.pack.hash,
        "subject_version": SUBJECT_VERSION,
        "measure": measure,
        "plugin": {
            "kind": "built-in" if built_in else "package", "name": name, "distribution": f"genbench-{name}",
            "version": "0.1.0", "sha256": SHA,
        },
        "provenance": {
            "genbench": "0.1.0", "suite_sha256": file_hash(evidence.suite.path),
            "evidence": evidence.pack.version, "data_sha256": evidence.pack.manifest.data_hash,
            "networks": {s: networks[s].files["final.safetensors"].sha256 for s in evidence.networks},
            "packages": package_versions(),
            "platform": {
                "system": "Linux", "machine": "x86_64", "libc": "", "python": "3.11", "processor": "",
            },
            "seeds": {"bootstrap": evidence.suite.bootstrap_seed}, "git": None,
            "command": f"genbench run --suite mini --measure {name}",
        },
        "readings": [
            {
                "subject": subject, "status": "not_applicable" if values[subject] is None else "ok",
                "reason": "no value here" if values[subject] is None else "", "value": values[subject],
                "detail": {}, "seconds": 0.5, "shared_seconds": 0.25, "peak_bytes": 1000,
                "device": "cuda NVIDIA T4", "threads": 2,
            }
            for subject in evidence.networks
        ],
        "keys": SHA,
        "cost": {"seconds": 87.0, "shared_seconds": 43.5, "peak_bytes": 1000},
    }  # fmt: skip
    record["statuses"] = dict(Counter(reading["status"] for reading in record["readings"]))
    (scored,) = scored_records([record], evidence)
    return scored


def scored_records(records: Sequence[dict[str, Any]], evidence: Evidence) -> list[dict[str, Any]]:
    """Records with the scores that their readings give; all together, because one by one takes longer."""
    unscored = [convert({**record, "sign_error": None, "sha256": SHA}, Record) for record in records]
    found = []
    for record, result in zip(records, evidence.judge(list(map(result_of, unscored))).results, strict=True):
        score = None if result.score is None else kind_of(evidence.suite).recorded(result.score)
        body = {**record, "sign_error": json.loads(msgspec.json.encode(score))}
        found.append({**body, "sha256": body_hash(body)})
    return found


def numbers(seed: int) -> dict[str, float | None]:
    """Readings of all networks."""
    import numpy as np

    networks = shipped_evidence("mini").networks
    drawn = np.random.default_rng(seed).normal(size=len(networks))
    return dict(zip(networks, map(float, drawn), strict=True))


def write(folder: Path, record: Mapping[str, Any]) -> Path:
    path = folder / "mini" / f"{record['measure']['name']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(record_text(record), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    return shipped_evidence("mini")


@pytest.fixture
def record() -> dict[str, Any]:
    return make_record("mine", numbers(0))


def test_the_schema_is_one_and_explains_itself(run) -> None:
    from jsonschema import Draft202012Validator

    Draft202012Validator.check_schema(record_schema())
    done = run("schema")
    assert done.returncode == 0
    assert json.loads(done.stdout) == record_schema()
    assert record_schema()["additionalProperties"] is False
    top = record_schema()["properties"]
    assert all("description" in field or "anyOf" in field for field in top.values())


def test_a_sound_record_is_taken(record, evidence, tmp_path) -> None:
    taken = msgspec.to_builtins(read_record(write(tmp_path, record), evidence))
    unsaid = {"status": "ok", "reason": "", "detail": {}}
    assert {**taken, "readings": [{**unsaid, **one} for one in taken["readings"]]} == record


def test_what_most_readings_have_goes_without_saying(record, evidence, tmp_path) -> None:
    (new,) = {(r.cost.device, r.cost.threads) for r in result_of(convert(record, Record)).outcomes.values()}
    assert new == ("cuda NVIDIA T4", 2)
    for reading in record["readings"]:
        del reading["device"], reading["threads"]
    record["sha256"] = body_hash(record)
    read = read_record(write(tmp_path, record), evidence)
    assert {(r.device, r.threads, r.sandbox, r.status) for r in read.readings} == {
        ("cpu", 1, "landlock+seccomp", "ok")
    }
    assert set(msgspec.to_builtins(read)["readings"][0]) == {
        "subject", "value", "seconds", "shared_seconds", "peak_bytes",
    }  # fmt: skip


def test_subsets_and_changed_suites_cannot_be_recorded(monkeypatch) -> None:
    from genbench.engine import compute
    from genbench.suites import load_suite

    require_recordable(load_suite("mini"))
    with pytest.raises(UserError, match="--quick results"):
        require_recordable(load_suite("digits", quick=True))
    with pytest.raises(UserError, match="is not mini as others run it"):
        require_recordable(load_suite("mini", changes={"testbed.kappa": "cohen"}))
    monkeypatch.setattr(compute, "_current", compute.Compute(autocast=True))
    with pytest.raises(UserError, match="drop --autocast"):
        require_recordable(load_suite("mini"))


# -- what is refused ---------------------------------------------------------------------------------


def value_changed(record: dict[str, Any]) -> None:
    record["readings"][3]["value"] += 1e-9


def score_changed(record: dict[str, Any]) -> None:
    record["sign_error"]["value"] = 0.01
    record["sha256"] = body_hash(record)


def value_and_hash_changed(record: dict[str, Any]) -> None:
    order = sorted(record["readings"], key=lambda reading: reading["value"])
    order[0]["value"], order[-1]["value"] = order[-1]["value"], order[0]["value"]
    record["sha256"] = body_hash(record)


def rehashed(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Sets one field, and the hash with it as a forger would; the value ... removes the field."""

    def change(record: dict[str, Any]) -> None:
        *tables, last = path.split(".")
        table = record
        for name in tables:
            table = table[name]
        if value is ...:
            del table[last]
        else:
            table[last] = value
        record["sha256"] = body_hash(record)

    return change


def each_reading(**fields: Any) -> Callable[[dict[str, Any]], None]:
    def change(record: dict[str, Any]) -> None:
        for reading in record["readings"]:
            reading.update(fields)
        record["sha256"] = body_hash(record)

    return change


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (value_changed, "changed after it was written"),
        (score_changed, "not what its readings give"),
        (value_and_hash_changed, "not what its readings give"),
        (rehashed("provenance", ...), "'provenance' is a required property"),
        (rehashed("provenance.packages", ...), "'packages' is a required property"),
        (rehashed("provenance.networks", {}), "not those of the evidence pack"),
        (rehashed("provenance.suite_sha256", SHA), "another mini.toml"),
        (rehashed("evidence", SHA), "other evidence"),
        (rehashed("evidence", None), "other evidence"),
        (rehashed("subject_version", 0), "older genbench"),
        (rehashed("schema", 99), "unknown record version 99"),
        (rehashed("readings", "none"), "is not of type 'array'"),
        (rehashed("readings", []), "status counts"),
        (rehashed("extra", 1), "'extra' was unexpected"),
        (rehashed("suite", "../../etc"), "does not match"),
        (rehashed("measure.name", "../../../evil"), "does not match"),
        (rehashed("measure.name", "other"), "not where it lies"),
        (rehashed("statuses", {"ok": 173, "failed": 1}), "status counts"),
        (rehashed("cost.seconds", 0.0), "cost"),
        (rehashed("plugin.kind", "built-in"), "genbench has none of that name"),
        (rehashed("measure.summary", "x" * 10_000), "is too long"),
        (each_reading(device="<b>cuda</b>"), "does not match"),
        (each_reading(threads=0), "is not >= 1"),
    ],
)  # fmt: skip
def test_a_tampered_record_is_refused(record, evidence, tmp_path, change, sentence) -> None:
    change(record)
    path = tmp_path / "mini" / "mine.json"
    path.parent.mkdir()
    path.write_text(record_text(record), encoding="utf-8")
    with pytest.raises(UserError, match=sentence) as refusal:
        read_record(path, evidence)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 700


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "not a JSON document"),
        ("{", "not a JSON document"),
        ("[]", "unknown record version None"),
        ("[" * 100_000, "not a JSON document"),
        ('{"schema": NaN}', "NaN is not a JSON number"),
        ('{"schema": 1}' + " " * LARGEST, "a record has at most"),
    ],
)
def test_files_that_are_no_record_are_refused(tmp_path, text, sentence) -> None:
    path = tmp_path / "mine.json"
    path.write_text(text)
    with pytest.raises(UserError, match=sentence):
        read_record(path)


def test_the_same_values_in_another_text_are_refused(record, evidence, tmp_path) -> None:
    path = write(tmp_path, record)
    path.write_text(json.dumps(record))
    with pytest.raises(UserError, match="not written as genbench writes it"):
        read_record(path, evidence)


def test_a_plugin_cannot_take_the_name_of_a_built_in_measure(evidence, tmp_path) -> None:
    record = make_record("path_norm", numbers(0))
    record["plugin"]["kind"] = "package"
    record["sha256"] = body_hash(record)
    with pytest.raises(UserError, match="name of a built-in measure"):
        read_record(write(tmp_path, record), evidence)


def test_only_records_may_lie_among_records(record, tmp_path) -> None:
    path = write(tmp_path, record)
    assert record_files(tmp_path) == {"mini": [path]}
    for place in (
        "mini/.hidden.json",
        "mini/deeper/mine.json",
        "notes.txt",
        "MINI/mine.json",
        "mini/a b.json",
    ):
        other = tmp_path / place
        other.parent.mkdir(exist_ok=True)
        other.write_text("{}")
        with pytest.raises(UserError):
            record_files(tmp_path)
        other.unlink()
        if other.parent not in (tmp_path, path.parent):
            other.parent.rmdir()
    (tmp_path / "mini" / "link.json").symlink_to(path)
    with pytest.raises(UserError, match="is a link"):
        record_files(tmp_path)


def test_a_written_reading_says_no_more_than_it_must() -> None:
    from genbench.engine.cells import Cost, Outcome, Status
    from genbench.records.write import _reading

    # Words as they come out of a file, equal to those of the format but not the same.
    cost = Cost(1.23456789, 0.5, 7, device="".join("cpu"), sandbox="".join("landlock+seccomp"))
    plain = msgspec.to_builtins(_reading("a", Outcome(Status.OK, result={"value": 2.0}, cost=cost)))
    assert plain == {
        "subject": "a", "value": 2.0, "seconds": 1.234568, "shared_seconds": 0.5, "peak_bytes": 7,
    }  # fmt: skip
    failed = msgspec.to_builtins(_reading("a", Outcome(Status.FAILED, reason="why")))
    assert failed["sandbox"] == "none"
    assert (failed["status"], failed["reason"]) == ("failed", "why")
