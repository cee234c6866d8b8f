"""How far a row of a board can be trusted: what was recomputed, by whom it was sealed, when trust is lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from test_records import make_record, numbers

from genbench.errors import UserError
from genbench.leaderboard.recompute import Agreement, draw
from genbench.leaderboard.trust import Conformance, read_checked, read_recomputed, trust_of, verifiable
from genbench.leaderboard.verify import remember
from genbench.records.convert import convert
from genbench.records.record import Record


def agreement(measure: str, subject: str, found: float) -> Agreement:
    return Agreement(measure, subject, 1.0, found, "ok", "ok")


def typed(name: str, seed: int, sandbox: str = "landlock+seccomp") -> Record:
    record = convert(make_record(name, numbers(seed)), Record)
    readings = [msgspec.structs.replace(one, sandbox=sandbox) for one in record.readings]
    return msgspec.structs.replace(record, readings=readings)


def test_trust_is_earned_and_lost(tmp_path) -> None:
    record, other = typed("first", 1), typed("second", 2)
    findings = {"permuted units": "unchanged"}
    passed = Conformance(passed=True, checks=9, genbench="0.1.0", findings=findings)

    def trust(record: Record) -> Any:
        return trust_of(record, read_recomputed(tmp_path, "mini"), read_checked(tmp_path))

    assert trust(record).level == "claimed"
    remember(tmp_path, [record, other], checked={"first": passed})
    assert trust(record).level == "checked"
    assert trust(record).findings == {"permuted units": "unchanged"}
    assert trust(other).level == "claimed"
    remember(tmp_path, [record, other], [agreement("first", "a", 1.0), agreement("first", "b", 1.0 + 1e-9)])
    assert trust(record).level == "reproduced"
    assert trust(record).reproduced == ["a", "b"]
    again = typed("first", 9)
    assert trust(again).level == "checked", "other readings of the same code are to be recomputed anew"
    again = msgspec.structs.replace(again, plugin=msgspec.structs.replace(again.plugin, sha256="1" * 64))
    assert trust(again).level == "claimed", "other code starts anew"
    remember(tmp_path, [record, other], [agreement("first", "c", 1.1)])
    assert trust(record).level == "checked", "a reading that differs takes the mark away"


def test_a_row_whose_readings_were_not_sealed_is_not_reproduced(tmp_path) -> None:
    def level(record: Record, recomputed: Agreement) -> str:
        remember(tmp_path, [record], [recomputed])
        return trust_of(record, read_recomputed(tmp_path, "mini"), {}).level

    same = agreement("first", "a", 1.0)
    assert level(typed("first", 1), same) == "reproduced"
    assert level(typed("first", 1), replace(same, sealed=False)) == "claimed", "recomputed without a sandbox"
    assert level(typed("first", 1, sandbox="none"), same) == "claimed", "recorded without one"
    older = {"first": {"of": verifiable(typed("first", 1)), "reproduced": ["a"]}}
    (tmp_path / "mini.json").write_text(json.dumps(older))
    found = trust_of(typed("first", 1, sandbox="none"), read_recomputed(tmp_path, "mini"), {})
    assert found.level == "reproduced", "a mark from before there was one stays until it is verified again"


def test_a_record_with_one_bare_reading_was_not_sealed() -> None:
    values = make_record("first", numbers(1))
    assert convert(values, Record).sealed
    values["readings"][5]["sandbox"] = "none"
    assert not convert(values, Record).sealed


def test_a_broken_trust_file_is_named(tmp_path) -> None:
    (tmp_path / "mini.json").write_text("[1]")
    with pytest.raises(UserError, match="verify again"):
        read_recomputed(tmp_path, "mini")


def test_agreement_is_to_the_bit_or_the_tolerance() -> None:
    assert agreement("m", "a", 1.0).same_bits
    assert agreement("m", "a", 1.00001).agrees
    assert not agreement("m", "a", 1.00001).same_bits
    assert not agreement("m", "a", 1.001).agrees
    assert not Agreement("m", "a", 1.0, None, "ok", "failed").agrees
    assert Agreement("m", "a", None, None, "not_applicable", "not_applicable").same_bits


def test_a_draw_is_a_function_of_its_seed() -> None:
    found = [typed("params", 1), typed("not_installed", 2)]
    assert draw(found, 4, seed=0) == draw(found, 4, seed=0)
    assert draw(found, 4, seed=0) != draw(found, 4, seed=1)
    assert draw(found, 100, seed=0).keys() == {"params"}
    assert draw(found, 4, seed=0, slowest=0.1) == {}
