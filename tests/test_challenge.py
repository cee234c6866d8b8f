"""Measures that know the answers: caught by the sandbox, by fresh networks or by bait; honest ones pass."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import in_process

from genbench.challenge.execute import Challenge, challenge
from genbench.engine.guard import Limits
from genbench.leaderboard.trust import Challenged, code_hash, trust_of
from genbench.plugin.registry import find_measure
from genbench.records.validate import read_record
from genbench.report.progress import silent_progress
from genbench.scoring.fresh_networks import LEVEL, judge_fresh
from genbench.sealing.seal import missing
from genbench.suites.evidence_packs import shipped_evidence
from genbench.suites.kind import kind_of
from genbench.suites.suite import load_suite

sealed = pytest.mark.skipif(bool(missing()), reason="readings are sealed on Linux")

SUITE = """
name = "challenged"
summary = "two sizes, four seeds each"
kind = "population"

[data]
dataset = "digits"
train_size = 60
seed = 0

[train]
architecture = "nin"
optimizer = "sgd"
momentum = 0.9
weight_decay = 0.0
batch_size = 32
stop_cross_entropy = 100.0
max_epochs = 1
depth = 1
learning_rate = 0.1

[grid]
width = [4, 6]
seed = [0, 1, 2, 3]
"""

HONEST = ("path_norm", "param_norm", "baseline_random")

FINGERPRINT = """
import genbench

@genbench.measure(category="norm", needs={"weights"})
def fingerprint(subject):
    '''A number that only one network has.'''
    return sum(w.double().sum().item() * (k + 1) for k, w in enumerate(subject.weights()))
"""
READS_THE_PACK = """
import json
import genbench

@genbench.measure(category="norm", needs={{"weights"}})
def reads_the_pack(subject):
    '''The truth, as the pack has it.'''
    return float(len(open({pack!r}).read()))
"""
HAS_A_TABLE = """
import genbench

TABLE = {table!r}

@genbench.measure(category="norm", needs={{"weights"}})
def has_a_table(subject):
    '''The truth of networks that it knows by their weights.'''
    return TABLE.get(sum(w.double().sum().item() * (k + 1) for k, w in enumerate(subject.weights())), 0.0)
"""
TAKES_THE_BAIT = """
import json
from pathlib import Path
import genbench

@genbench.measure(category="norm", needs={"weights"})
def takes_the_bait(subject):
    '''The truth, if it lies around.'''
    for file in sorted((Path.cwd().parent / "given").glob("*/truth.json")):
        return json.loads(file.read_text())["gap"]
    return sum(w.double().abs().sum().item() for w in subject.weights())
"""


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The suite's file, with its pack beside it."""
    folder = tmp_path_factory.mktemp("challenged")
    (folder / "challenged.toml").write_text(SUITE)
    words = ("pack", "build", "-s", "challenged.toml", "--to", "packs/challenged", "--store", "made")
    done = in_process(*words, cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder / "challenged.toml"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fresh networks are trained once for all tests."""
    return tmp_path_factory.mktemp("fresh") / "store"


def challenged(measure: str | Path, suite: Path, store: Path) -> Challenge:
    (entry,) = find_measure(str(measure))
    how: dict[str, Any] = {"limits": Limits(60.0, 2**32), "jobs": 1}
    with silent_progress() as progress:
        return challenge(entry, str(suite), store, progress, seed=1, networks=8, **how)


@pytest.mark.parametrize("measure", HONEST)
def test_an_honest_measure_passes(measure: str, suite: Path, store: Path) -> None:
    found = challenged(measure, suite, store)
    assert found.passed
    assert (found.networks, found.twins, found.canaries, found.leaks) == (8, 8, 6, [])
    assert found.fresh <= found.allowed


@sealed
def test_a_measure_that_reads_the_pack_is_stopped_by_the_sandbox(suite: Path, tmp_path: Path) -> None:
    cheater = tmp_path / "cheater.py"
    cheater.write_text(READS_THE_PACK.format(pack=str(suite.parent / "packs" / "challenged" / "pack.json")))
    done = in_process("run", "-s", suite, "-m", cheater, "--json", cwd=tmp_path)
    (found,) = [one for one in json.loads(done.stdout)["measures"] if one["name"] == "reads_the_pack"]
    assert {one["status"] for one in found["readings"]} == {"failed"}
    assert "PermissionError" in found["readings"][0]["reason"]


def test_a_measure_with_a_table_of_weights_is_suspect(suite: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "fingerprint.py").write_text(FINGERPRINT)
    done = in_process("run", "-s", suite, "-m", "fingerprint.py", "--json", cwd=tmp_path)
    (found,) = [one for one in json.loads(done.stdout)["measures"] if one["name"] == "fingerprint"]
    truths = shipped_evidence(str(suite)).known
    table = {one["value"]: truths[one["subject"]]["gap"] for one in found["readings"]}  # type: ignore[index]
    assert len(table) == 8
    (tmp_path / "cheater.py").write_text(HAS_A_TABLE.format(table=table))
    found = challenged(tmp_path / "cheater.py", suite, store)
    assert found.published < 0.1  # it knows all of them, but for ties
    assert found.fresh == 0.5
    assert found.suspect
    assert not found.leaks


@sealed
def test_a_measure_that_looks_for_evidence_takes_the_bait(suite: Path, store: Path, tmp_path: Path) -> None:
    (tmp_path / "cheater.py").write_text(TAKES_THE_BAIT)
    found = challenged(tmp_path / "cheater.py", suite, store)
    assert found.leaks == ["truths swapped"]
    assert not found.suspect
    assert not found.passed


# -- what is drawn -----------------------------------------------------------------------------------------


def test_fresh_networks_are_on_seeds_that_were_never_published() -> None:
    suite = load_suite("nin-fashion")
    seen = set()
    for draw in range(20):
        part = kind_of(suite).fresh(suite, Random(draw), 64)
        seeds = part.grid["seed"]  # type: ignore[attr-defined]
        assert not {*seeds} & {*range(10)}
        assert part.networks == 64
        assert part.changed
        seen |= {*seeds}
    assert len(seen) == 80, "drawn anew each time"
    mini = load_suite("mini")
    part = kind_of(mini).fresh(mini, Random(0), 18)
    assert part.networks == 18
    assert part.adapt.seed != mini.adapt.seed  # type: ignore[attr-defined]
    families = mini.families()  # type: ignore[attr-defined]
    assert max(len({*part.backbones} & {*names}) for names in families.values()) == 3  # type: ignore[attr-defined]


# -- the test ----------------------------------------------------------------------------------------------


def population(generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Truths of 8 combos × (5 published and 2 fresh) networks, their combos, and who is fresh."""
    combo = np.repeat(np.arange(8), 7)
    truth = np.repeat(generator.normal(size=8), 7) + generator.normal(size=56)
    return truth, combo, np.tile([False] * 5 + [True] * 2, 8)


def test_honest_measures_are_suspected_no_more_often_than_promised() -> None:
    generator = np.random.default_rng(0)
    suspected = 0
    for trial in range(400):
        truth, combo, fresh = population(generator)
        reading = truth + generator.normal(size=56) * generator.choice([0.1, 1.0, 10.0])
        family = np.zeros(56, dtype=np.int64)
        suspected += judge_fresh(reading, truth[None], family, combo, fresh, seed=trial, draws=200).suspect
    # 400 trials at 1 %: 4 expected; 11 or more come in 1 of 300 cases.
    assert suspected <= 10
    assert LEVEL == 0.01


@pytest.mark.parametrize("refuses", [False, True])
def test_measures_that_know_published_networks_alone_are_suspected(refuses: bool) -> None:
    generator = np.random.default_rng(1)
    for trial in range(5):
        truth, combo, fresh = population(generator)
        unknown = np.full(56, np.nan) if refuses else generator.normal(size=56)
        reading = np.where(fresh, unknown, truth)
        found = judge_fresh(reading, truth[None], np.zeros(56, dtype=np.int64), combo, fresh, seed=trial)
        assert found.suspect
        assert found.published < 1e-6
        assert found.fresh > found.allowed


# -- what a board makes of it -------------------------------------------------------------------------------


def test_a_suspect_is_marked_on_the_board() -> None:
    path = Path(__file__).parent.parent / "leaderboards" / "records" / "nin-fashion" / "path_norm.json"
    record = read_record(path)
    good = Challenge(
        seed=1, networks=64, twins=80, published=0.1, fresh=0.12, allowed=0.2, p=0.3, suspect=False,
        canaries=6, leaks=[], sandbox="landlock+seccomp",
    )  # fmt: skip
    for found, level in (
        (good, "claimed"),
        (msgspec.structs.replace(good, suspect=True), "suspect"),
        (msgspec.structs.replace(good, leaks=["truths swapped"]), "suspect"),
    ):
        entry = {"path_norm": Challenged(of=code_hash(record), found=found)}
        trust = trust_of(record, {}, {}, entry)
        assert trust.level == level
        assert trust.challenge == found
        other = {"path_norm": Challenged(of="0" * 64, found=found)}
        assert trust_of(record, {}, {}, other).challenge is None, "of other code"
    assert "worse than chance explains" in msgspec.structs.replace(good, suspect=True).sentences()[0]
