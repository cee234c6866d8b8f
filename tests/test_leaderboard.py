"""Leaderboards: from records to tables, what is stale, what was verified, what can be reproduced."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from conftest import Run
from numpy.typing import NDArray
from scipy.stats import t as student
from test_records import make_record, numbers, scored_records, write

from genbench.errors import UserError
from genbench.leaderboard.board import read_boards
from genbench.leaderboard.build import Folders, build, stale
from genbench.leaderboard.export import export
from genbench.leaderboard.recompute import Agreement, draw, what_differs
from genbench.leaderboard.trust import Conformance, read_checked, read_recomputed, trust_of, verifiable
from genbench.leaderboard.verify import remember
from genbench.records.convert import convert
from genbench.records.record import Record
from genbench.records.validate import read_record
from genbench.records.write import record_text
from genbench.suites.evidence_packs import shipped_evidence
from genbench.testbed.evidence import TestbedEvidence

COMMITTED = Path(__file__).parent.parent / "leaderboards"
HOSTILE = (
    """<script>document.title = "owned"</script> | [x](javascript:alert(1)) ![](http://evil.example/x.png)"""
)


def records() -> list[dict[str, Any]]:
    """A baseline, four measures, one without a value and one that means harm."""
    nothing: dict[str, float | None] = dict.fromkeys(numbers(0), None)
    some = {s: v if "clip" in s else None for s, v in numbers(3).items()}
    return [
        make_record("baseline_size", {s: float(i) for i, s in enumerate(numbers(0))}, category="baseline"),
        make_record("first", numbers(1), category="margin"),
        make_record("second", numbers(2), higher_means="better"),
        make_record("twin_of_second", {s: 2 * v for s, v in numbers(2).items() if v}, higher_means="better"),
        make_record("clip_only", some, paper="001 (27)"),
        make_record("silent", nothing),
        make_record(
            "hostile", numbers(4), summary=HOSTILE, description=f"{HOSTILE}\n\n{HOSTILE}",
            category='<b onmouseover="x">', paper="<i>5</i>", version="</script>",
        ),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Boards of those records; copy them, never change them."""
    folder = tmp_path_factory.mktemp("boards")
    for record in records():
        write(folder / "records", record)
    folders = Folders(folder, folder / "records", site=folder / "site")
    build(folders)
    return folders


@pytest.fixture
def boards(built, tmp_path) -> Folders:
    shutil.copytree(built.boards, tmp_path / "boards")
    folder = tmp_path / "boards"
    return Folders(folder, folder / "records", site=folder / "site")


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_rebuilding_gives_the_same_bytes(boards) -> None:
    before = content(boards.boards)
    assert {"mini.json", "mini.md", "site/index.html", "site/mini/measures/first.html"} <= before.keys()
    for name in ("mini.json", "mini.md"):
        (boards.boards / name).unlink()
    shutil.rmtree(boards.boards / "site")
    build(boards)
    assert content(boards.boards) == before
    assert stale(boards) == []


def test_the_check_names_what_is_stale(boards, run: Run) -> None:
    assert stale(boards) == []
    board = boards.boards / "mini.json"
    board.write_text(board.read_text().replace("first", "worst"))
    (boards.boards / "mini.md").unlink()
    (boards.boards / "other.json").write_text('{"genbench": "0.1", "suite": "other", "rows": []}')
    done = run("leaderboard", "check", "--to", boards.boards)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        f"{board} is stale or was edited by hand",
        f"{boards.boards}/mini.md is missing",
        f"{boards.boards}/other.json is not made from any record",
    ]
    build(boards)
    assert stale(boards) == []
    (boards.records / "mini" / "first.json").unlink()
    assert f"{board} is stale or was edited by hand" in stale(boards)
    build(boards)
    assert not (boards.boards / "site" / "mini" / "measures" / "first.html").exists()


def test_what_others_put_beside_the_boards_stays(boards, run: Run) -> None:
    mine = {
        "package.json": "{}",
        "rows.json": '{"rows": [], "suite": "x", "genbench": 1}',
        "notes.csv": "a,b",
    }
    for name, text in mine.items():
        (boards.boards / name).write_text(text)
    build(boards)
    assert {name: (boards.boards / name).read_text() for name in mine} == mine
    assert stale(boards) == []
    shutil.rmtree(boards.boards / "site")
    (boards.boards / "site").mkdir()
    (boards.boards / "site" / "index.html").write_text("my own pages")
    done = run("leaderboard", "build", "--to", boards.boards, "--site", boards.boards / "site")
    assert done.returncode == 2
    assert "is not a site that genbench made; give another folder with --site" in done.stderr
    assert (boards.boards / "site" / "index.html").read_text() == "my own pages"


def test_a_tampered_record_stops_the_build_in_one_sentence(boards, run: Run) -> None:
    path = boards.records / "mini" / "first.json"
    path.write_text(path.read_text().replace('"status": "ok"', '"status": "failed"', 1))
    done = run("leaderboard", "build", "--to", boards.boards)
    assert done.returncode == 2
    assert "changed after it was written" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def error_of_every_network() -> dict[str, float]:
    """The truth of `mini` itself: the mean error over both slices of its family's cube."""
    found = {}
    evidence = shipped_evidence("mini")
    assert isinstance(evidence, TestbedEvidence)
    for family, models in evidence.suite.families().items():
        error = evidence.cubes[family]["error"].mean("class")
        for model, adaptation in product(models, evidence.suite.adaptation_names):
            own = error.sel(model=model, adaptation=adaptation)
            robustness, zero_shot = own.sel(zero_shot=0), own.sel(ssim=1)
            found[f"{model}/{adaptation}"] = float(robustness.mean() + zero_shot.mean())
    return found


def test_ranks_that_follow_from_the_truth(tmp_path) -> None:
    """Readings made of the truth have ranks that need no scoring: right, no answer, wrong."""
    truth = error_of_every_network()
    for name, values in {
        "right": truth,
        "right_too": {s: v**3 for s, v in truth.items()},
        "no_answer": dict.fromkeys(truth, 1.0),
        "no_answer_either": dict.fromkeys(truth, -7.0),
        "wrong": {s: -v for s, v in truth.items()},
        "silent": dict.fromkeys(truth, None),
    }.items():
        write(tmp_path / "records", make_record(name, values))
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    # Two are better than a constant, which is a coin for every pair; four are better than the reverse.
    assert [(row.name, row.rank, row.tied) for row in board.rows] == [
        ("right", 1, ["right_too"]),
        ("right_too", 1, ["right"]),
        ("no_answer", 3, ["no_answer_either"]),
        ("no_answer_either", 3, ["no_answer"]),
        ("wrong", 5, []),
        ("silent", None, []),
    ]
    value = {row.name: row.score.value for row in board.rows if row.score is not None}
    assert value["no_answer"] == 0.5
    assert value["wrong"] == pytest.approx(1 - value["right"])


def errors_by_hand(cube: Any, draws: int, *, exact: bool = False) -> list[NDArray[np.float64]]:
    """(draws, networks) in each slice of a cube: the errors of networks on held-out images drawn anew.

    Class by class and level by level; the mean over classes, then over levels. `exact`: once, on all images.
    """
    draws = 1 if exact else draws
    labels, present = cube["image_class"].values, np.isfinite(cube["error"])
    found = []
    for fixed, axis in (("zero_shot", "ssim"), ("ssim", "zero_shot")):
        generator = np.random.default_rng(2026)  # the same images in both slices and all families
        at = {fixed: 0.0 if fixed == "zero_shot" else 1.0}
        name = "right_robustness" if fixed == "zero_shot" else "right_zero_shot"
        right = cube[name].transpose(axis, "model", "adaptation", "image").values
        wrong = 1.0 - right.reshape(len(right), -1, right.shape[-1])
        inside = present.sel(at).isel(model=0, adaptation=0).transpose(axis, "class").values
        means = np.full((draws, *wrong.shape[:2], inside.shape[1]), np.nan)
        for label in range(inside.shape[1]):
            images = np.flatnonzero(labels == label)
            for draw_ in range(draws):
                chosen = images if exact else generator.choice(images, len(images))
                means[draw_, ..., label] = wrong[:, :, chosen].mean(axis=-1)
        levels = [np.mean(means[:, i][..., kept], axis=-1) for i, kept in enumerate(inside)]
        found.append(np.mean(levels, axis=0))
    return found


def ranks_by_hand(of: list[dict[str, Any]], draws: int = 300) -> dict[str, int | None]:
    """Ranks of records as SPEC defines them, by loops and with random draws of their own.

    One more than the measures that are better by a paired cluster test at 5 % after Holm over all others; a
    backbone is a cluster, and of fewer than ten nothing can be told.
    """
    evidence = shipped_evidence("mini")
    assert isinstance(evidence, TestbedEvidence)
    errors = {family: errors_by_hand(cube, draws) for family, cube in evidence.cubes.items()}
    truth = {
        family: [errors_by_hand(cube, 1, exact=True)[k][0] for k in range(2)]
        for family, cube in evidence.cubes.items()
    }
    drawn: dict[str, NDArray[np.float64]] = {}
    value: dict[str, float] = {}
    near: dict[str, dict[str, float]] = {}
    between: dict[str, dict[tuple[str, str], float]] = {}
    clusters: dict[str, set[str]] = {}
    families: dict[str, int] = {}
    for record in of:
        name, worse = record["measure"]["name"], 1 if record["measure"]["higher_means"] == "worse" else -1
        reading = {r["subject"]: r["value"] for r in record["readings"] if r["value"] is not None}
        networks = {
            family: [f"{one}/{how}" for one, how in product(cube["model"].values, cube["adaptation"].values)]
            for family, cube in evidence.cubes.items()
        }
        pairs = {
            family: [
                pair for pair in combinations(range(len(own)), 2) if {own[i] for i in pair} <= reading.keys()
            ]
            for family, own in networks.items()
        }
        pairs = {family: some for family, some in pairs.items() if some}
        if not pairs:
            continue
        rows = []
        anew = np.zeros(draws)
        for family, some in pairs.items():
            weight = 1 / len(pairs) / len(some)
            for i, j in some:
                one, other = networks[family][i], networks[family][j]
                says = worse * np.sign(reading[one] - reading[other])
                is_so = np.mean([np.sign(t[i] - t[j]) for t in truth[family]])
                backbones = (one.partition("/")[0], other.partition("/")[0])
                rows.append((*backbones, weight, float(says * is_so)))
                again = np.mean([np.sign(e[:, i] - e[:, j]) for e in errors[family]], axis=0)
                anew += weight * (0.5 - 0.5 * says * again)
        mean = sum(weight * agreement for _, _, weight, agreement in rows)
        value[name], drawn[name], families[name] = 0.5 - 0.5 * mean, anew, len(pairs)
        touched = {one for row in rows for one in row[:2]}
        clusters[name] = touched
        near[name], between[name] = {}, {}
        for cluster in touched:
            own = [row for row in rows if cluster in row[:2]]
            left = 1 - min(sum(row[2] for row in own), 0.5)
            near[name][cluster] = sum(row[2] * (row[3] - mean) for row in own) / left
        for one, other, weight, agreement in rows:
            if one != other:
                known = between[name].get((one, other), 0.0)
                between[name][one, other] = known + weight * (agreement - mean)

    def p_value(one: str, other: str) -> float:
        if min(len(clusters[one]), len(clusters[other])) < 10:
            return 1.0
        psi = [near[one].get(c, 0.0) - near[other].get(c, 0.0) for c in clusters[one] | clusters[other]]
        dyads = between[one].keys() | between[other].keys()
        shared = sum((between[one].get(d, 0.0) - between[other].get(d, 0.0)) ** 2 for d in dyads)
        whole = sum(number**2 for number in psi)
        variance = max(whole - shared, whole / 2) / 4 + np.var(drawn[one] - drawn[other])
        difference = abs(value[one] - value[other])
        if variance < 1e-18:
            return 0.0 if difference > 1e-9 else 1.0
        freedom = min(len(clusters[name]) - families[name] for name in (one, other))
        return float(2 * student.sf(difference / np.sqrt(variance), freedom))

    def surely_better(name: str) -> list[str]:
        ordered = sorted((p_value(name, other), other) for other in value if other != name)
        found = []
        for place, (p, other) in enumerate(ordered):
            if p * (len(ordered) - place) > 0.05:
                break
            found.append(other)
        return [other for other in found if value[other] < value[name]]

    ranks: dict[str, int | None] = dict.fromkeys((r["measure"]["name"] for r in of), None)
    return ranks | {name: 1 + len(surely_better(name)) for name in value}


def disagreements(among: str = "") -> list[float]:
    """Of each family: the share of pairs of networks of which one is better on degraded images and the other
    on unseen classes.

    Parameters
    ----------
    among : how the names begin of the networks that are looked at.
    """
    found = []
    for cube in shipped_evidence("mini").families().values():
        error = cube.cube["error"].mean("class")
        error = error.isel(model=[str(name).startswith(among) for name in error["model"].values])
        means = zip(
            error.sel(zero_shot=0).mean("ssim").values.flat,
            error.sel(ssim=1).mean("zero_shot").values.flat,
            strict=True,
        )
        pairs = [(one[0] - other[0]) * (one[1] - other[1]) for one, other in combinations(means, 2)]
        if pairs:
            found.append(sum(one < 0 for one in pairs) / len(pairs))
    return found


def test_rows_are_ranked_with_ties(built, tmp_path) -> None:
    """Ranks that follow on paper.

    Judged by its mean error, a network agrees with both slices or, where they disagree, with one: no measure
    can do better than `near`. With q_f the share of a family's pairs in which the slices disagree, its
    sign-error is ½ mean(q_f); that of `far`, which says the opposite, is 1 less that, and that of `coin`,
    which says nothing, ½. Between them lie .3 to .5, and two measures of 174 networks are told apart whose
    sign-errors differ by .1. Readings in the same order differ by nothing. `few` has one backbone, and of
    fewer than ten nothing is told.
    """
    best, least = np.mean(disagreements()) / 2, np.mean(disagreements("mini-clip:short2")) / 2
    assert best < 0.2
    truth = error_of_every_network()
    opposite = {network: -error for network, error in truth.items()}
    for record in (
        make_record("near", truth),
        make_record("near_cubed", {network: error**3 for network, error in truth.items()}),
        make_record("near_said_better", opposite, higher_means="better"),
        make_record("coin", dict.fromkeys(truth, 1.0)),
        make_record("far", opposite),
        make_record("few", {s: v if "short2/" in s else None for s, v in opposite.items()}),
        make_record("silent", dict.fromkeys(truth, None)),
    ):
        write(tmp_path / "records", record)
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    rows = {row.name: row for row in board.rows}
    assert {name: row.rank for name, row in rows.items()} == {
        "near": 1, "near_cubed": 1, "near_said_better": 1,
        "coin": 1 + 3, "far": 1 + 3 + 1, "few": 1, "silent": None,
    }  # fmt: skip
    values = {name: row.score and row.score.value for name, row in rows.items()}
    assert values == {
        "near": pytest.approx(best), "near_cubed": pytest.approx(best),
        "near_said_better": pytest.approx(best), "coin": 0.5, "far": pytest.approx(1 - best),
        "few": pytest.approx(1 - least), "silent": None,
    }  # fmt: skip
    assert set(rows["near"].tied) == {"near_cubed", "near_said_better", "few"}
    assert set(rows["far"].tied) == {"few"} == set(rows["coin"].tied)
    assert set(rows["near"].same_order) == {"near_cubed", "near_said_better"}
    assert rows["far"].same_order == [] == rows["coin"].same_order
    (board,) = read_boards(built.records, built.trust)
    rows = {row.name: row for row in board.rows}
    assert rows["baseline_size"].baseline
    document = json.loads((built.boards / "mini.json").read_text())
    assert [(row["measure"], row["rank"], row["tied_with"]) for row in document["rows"]] == [
        (row.name, row.rank, row.tied) for row in board.rows
    ]
    assert document["rows"][0]["sign_error"].keys() >= {"value", "robustness", "zero-shot", "noise-aware"}
    assert rows["clip_only"].score is not None
    assert rows["clip_only"].score.dropped == 84


def test_ranks_are_those_of_loops_with_other_draws(tmp_path) -> None:
    """Random readings too, most of which cannot be told apart."""
    truth = error_of_every_network()
    networks = list(truth)
    swapped = {**truth, networks[0]: truth[networks[1]], networks[1]: truth[networks[0]]}
    told = [
        *records(),
        make_record("near", truth),
        make_record("swapped", swapped),
        make_record("far", {network: -error for network, error in truth.items()}),
    ]
    for record in told:
        write(tmp_path / "records", record)
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    assert {row.name: row.rank for row in board.rows} == ranks_by_hand(told)
    rows = {row.name: row for row in board.rows}
    assert "twin_of_second" in rows["second"].tied
    assert rows["second"].same_order == ["twin_of_second"]


def test_a_plugin_that_calls_itself_a_baseline_is_none(tmp_path) -> None:
    write(tmp_path / "records", make_record("mine", numbers(0), category="baseline"))
    (board,) = read_boards(tmp_path / "records", tmp_path / "trust")
    assert not board.rows[0].baseline


def test_hostile_texts_are_harmless_in_markdown(built) -> None:
    text = (built.boards / "mini.md").read_text()
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 2 + 7
    assert "<script" not in text
    assert "<b " not in text
    assert "](javascript" not in text
    assert "![](" not in text
    import re

    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {16}, "no cell opens another"


# -- trust -------------------------------------------------------------------------------------------


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


# -- with real readings ------------------------------------------------------------------------------


@pytest.mark.xdist_group("quick_store")
def test_what_is_stored_is_recorded_in_the_same_bytes_again(quick_store, run: Run, tmp_path) -> None:
    shutil.copytree(quick_store, tmp_path / "store")
    texts = []
    for folder in ("first", "second"):
        done = run(
            "run", "-s", "mini-quick", "-m", "params", "--store", "store", "--records", folder, "--json"
        )
        assert done.returncode == 0, done.stderr
        texts.append(content(tmp_path / folder))
    assert texts[0] == texts[1]
    names = ("baseline_constant", "baseline_random", "baseline_size", "params")
    assert sorted(texts[0]) == [f"mini-quick/{name}.json" for name in names]
    record = read_record(tmp_path / "first" / "mini-quick" / "params.json")
    assert record.statuses == {"ok": 6}
    assert record.evidence is None, "built here, not out of a pack"
    assert record.provenance.command == "genbench run --suite mini-quick --measure params"
    done = run("leaderboard", "build", "--records", "first", "--to", "boards")
    assert done.returncode == 2
    assert "ships no evidence pack" in done.stderr


@pytest.mark.slow
def test_a_row_is_computed_again_and_a_forged_reading_found_out(few: Path, run: Run, tmp_path) -> None:
    """A forger who recomputes scores and hash passes every check but this one."""
    record = json.loads((few / "records" / "few" / "params.json").read_text())
    record["readings"][2]["value"] *= 1.01
    record["provenance"]["packages"] = {"torch": "1"}
    (forged,) = scored_records([record], shipped_evidence("few"))
    path = tmp_path / "leaderboards" / "records" / "few" / "params.json"
    path.parent.mkdir(parents=True)
    path.write_text(record_text(forged))
    build(Folders(tmp_path / "leaderboards", tmp_path / "leaderboards" / "records"))
    done = run("reproduce", "leaderboards/few.json#params")
    assert done.returncode == 1, done.stderr
    assert "5 of 6 readings agree to the bit; NOT reproduced" in done.stdout
    assert "torch was 1 and is" in done.stdout


def test_what_differs_is_said() -> None:
    from genbench.plugin.registry import load_registry

    record = make_record("params", numbers(1))
    record["provenance"]["packages"]["numpy"] = "0.1"
    found = what_differs(convert(record, Record), load_registry().measures["params"])
    assert found[0].startswith("numpy was 0.1 and is ")
    assert found[-1] == "the source code of the measure is another"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("mini.json", "names no row"),
        ("nowhere.json#params", "cannot be read"),
        ("mini.md#params", "is not a board"),
        ("mini.json#firts", "did you mean 'first'"),
        ("mini.json#first", "is not installed here"),
    ],
)
def test_reproducing_what_cannot_be_is_one_sentence(built, run: Run, row, sentence) -> None:
    done = run("reproduce", f"{built.boards}/{row}")
    assert done.returncode == 2
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


# -- the paper kit -----------------------------------------------------------------------------------


def test_the_paper_kit(built, run: Run, tmp_path) -> None:
    arguments = ("export", "--measure", "clip_only", "--records", built.records, "--to", "kit")
    done = run(*arguments)
    assert done.returncode == 0, done.stderr
    kit = content(tmp_path / "kit")
    names = {"table.tex", "papers.bib", "clip_only.pdf", "sign-errors.pdf", "records/clip_only.json"}
    assert names <= kit.keys()
    assert b"\\textbf{\\texttt{clip\\_only}}" in kit["table.tex"]
    assert b"baseline\\_size" in kit["table.tex"]
    assert b"2010.11924" in kit["papers.bib"]
    assert b"2409.01498" in kit["papers.bib"]
    assert all(kit[name].startswith(b"%PDF") for name in kit if name.endswith(".pdf"))
    (board,) = read_boards(built.records, built.trust)
    export(board, "clip_only", built.records, tmp_path / "again")
    assert content(tmp_path / "again") == kit, "the same bytes again"


# -- what is committed -------------------------------------------------------------------------------


@pytest.mark.skipif(not (COMMITTED / "records").is_dir(), reason="no records are committed yet")
def test_the_committed_boards_are_what_the_committed_records_give() -> None:
    assert stale(Folders(COMMITTED, COMMITTED / "records")) == []
