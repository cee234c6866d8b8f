"""`genbench judge`, `genbench networks`, `genbench calibrate` and `genbench score --questions`."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genbench.cli import main
from genbench.scoring.questions import QUESTIONS, ask
from genbench.suites.evidence_packs import shipped_evidence

ANSWER = {"value", "low", "high", "p", "p_holm"}


def genbench(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main([str(word) for word in words])
    out = capsys.readouterr()
    return int(end.value.code or 0), out.out, out.err


def written(path: Path, columns: dict[str, Any]) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


@pytest.fixture(scope="module")
def readings() -> dict[str, Any]:
    """The gap itself, its opposite, the weights, and nothing, of the networks of nin-fashion."""
    evidence = shipped_evidence("nin-fashion")
    gap = np.array([facts["gap"] for facts in evidence.known.values()])
    weights = [facts["parameters"] for facts in evidence.known.values()]
    coin = np.random.default_rng(0).normal(size=len(gap))
    return {
        "network": evidence.networks,
        "gap": gap,
        "score": -gap,
        "few": [-w for w in weights],
        "coin": coin,
    }


def test_readings_are_judged(
    tmp_path: Path, readings: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path / "readings.csv", readings)
    words = (
        "judge",
        file,
        "--suite",
        "nin-fashion",
        "--higher-means",
        "score:better",
        "--permutations",
        2000,
    )
    code, out, _ = genbench(capsys, *words, "--json")
    found = json.loads(out)["measures"]
    assert code == 0
    assert list(found) == ["gap", "score", "few", "coin"]
    for one in found.values():
        assert set(one) == {"sign_error", "low", "high", "rank", "questions", "verdict"}
        assert tuple(one["questions"]) == QUESTIONS
        assert all(set(answer) == ANSWER for answer in one["questions"].values())
        assert one["low"] <= one["sign_error"] <= one["high"]
    assert found["gap"]["verdict"] == found["score"]["verdict"] == list(QUESTIONS)
    assert found["gap"]["sign_error"] == pytest.approx(0.0, abs=1e-9)
    assert (found["few"]["verdict"], found["coin"]["verdict"]) == (["chance"], [])
    assert [found[name]["rank"] for name in ("gap", "score", "few", "coin")] == [1, 1, 3, 4]
    assert json.loads(out)["baselines"]["baseline_settings"]["beaten_by"] == ["gap", "score"]
    assert json.loads(out)["networks"] == 1253


def test_a_testbed_can_be_asked_all_questions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    known = shipped_evidence("mini").known
    truth = [(one.robustness.mean + one.zero_shot.mean) / 2 for one in known.values()]
    file = written(tmp_path / "readings.csv", {"network": list(known), "mine": truth})
    code, out, _ = genbench(capsys, "judge", file, "--permutations", 2000)
    assert code == 0
    assert out.count("✓") >= len(QUESTIONS)
    found = json.loads(genbench(capsys, "judge", file, "--permutations", 2000, "--json")[1])
    assert found["cannot_ask"] == {}
    assert found["measures"]["mine"]["verdict"] == list(QUESTIONS)


def test_a_testbed_of_one_adaptation_can_be_asked_one_question() -> None:
    known = shipped_evidence("mini").known_networks()
    one = known.take(np.array([name.endswith("/a1") for name in known.names]))
    asked = ask(one)
    assert not isinstance(asked["chance"], str)
    for question in ("size", "fit", "settings"):
        assert "no two networks have the same architecture and size" in str(asked[question])


@pytest.mark.parametrize(
    ("columns", "words", "sentence"),
    [
        ({"net": ["a"], "mine": [1]}, [], "no column 'network'"),
        ({"network": ["mini-clip:short4/a1"]}, [], "no column but 'network'"),
        (
            {"network": ["mini-clip:short4/a7"], "mine": [1]},
            [],
            "mini has no network 'mini-clip:short4/a7'; did you mean",
        ),
        ({"network": ["mini-clip:short4/a1"] * 2, "mine": [1, 2]}, [], "'mini-clip:short4/a1' has two rows"),
        ({"network": ["mini-clip:short4/a1"], "mine": ["high"]}, [], "line 2"),
        ({"network": ["mini-clip:short4/a1"], "mine": [1]}, ["--higher-means", "up"], "write better, worse"),
        ({"network": ["mini-clip:short4/a1"], "mine": [1]}, ["--higher-means", "m:better"], "no measure 'm'"),
        ({"network": [], "mine": []}, [], "no rows"),
        ({"network": ["mini-clip:short4/a1"], "mine": [1]}, ["--suite", "mimi"], "mimi"),
    ],
)
def test_wrong_readings_give_one_sentence(
    tmp_path: Path,
    columns: dict[str, Any],
    words: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = written(tmp_path / "readings.csv", columns)
    code, out, err = genbench(capsys, "judge", file, *words)
    assert (code, out) == (2, "")
    assert sentence in err
    assert len(err.strip().splitlines()) == 1


def test_a_file_that_is_not_there_gives_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert genbench(capsys, "judge", "nowhere.csv") == (2, "", "genbench: no file nowhere.csv\n")


@pytest.mark.parametrize("suite", ["mini", "nin-fashion"])
def test_networks_are_listed_without_their_truths(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    evidence = shipped_evidence(suite)
    listed = json.loads(genbench(capsys, "networks", "--suite", suite, "--json")[1])
    assert [one["network"] for one in listed] == evidence.networks
    told = {
        "network",
        "family",
        "architecture",
        "weights",
        "settings",
        "train_loss",
        "train_accuracy",
        "epochs",
    }
    assert all(set(one) <= told | {"judged"} for one in listed)
    assert all(one["weights"] > 0 and one["train_loss"] > 0 and one["settings"] for one in listed)
    assert genbench(capsys, "networks", "--suite", suite)[1].count("\n") > len(listed)


def test_a_suite_is_calibrated(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("calibrate", "--suite", "mini", "--measures", 40, "--permutations", 1000)
    code, out, _err = genbench(capsys, *words, "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["networks"], found["clusters"]) == (174, 29)
    shares = {(one["empty"], one["question"]): one["share"] for one in found["false_passes"]}
    assert shares["random", "chance"] <= 0.2
    assert shares["random", "size"] <= 0.2
    assert 0 <= found["covered"] <= 1
    assert next(one["difference"] for one in found["power"]) == 0
    out = genbench(capsys, *words)[1]
    assert "random per architecture" in out
    assert "told apart" in out


def test_a_table_is_asked_what_its_columns_allow(capsys: pytest.CaptureFixture[str]) -> None:
    table = Path(__file__).parent.parent / "leaderboards" / "nin-fashion.csv"
    words = (
        "score",
        table,
        "--score",
        "sign_error",
        "--resamples",
        0,
        "--measures",
        "complexity.path_norm,complexity.vcdim",
        "--json",
    )
    asked = json.loads(genbench(capsys, *words, "--questions")[1])
    found = asked["questions"]
    assert found["cannot_ask"] == {}
    assert "baseline_settings" in found["baselines"]
    mean = {
        s["measure"]: s["value"] for s in asked["scores"] if (s["part"], s["statistic"]) == ("all", "mean")
    }
    for name, one in found["measures"].items():
        assert one["sign_error"] == pytest.approx(mean[name])
    # More weights, larger gap: the wrong way round, and nothing at equal size.
    assert found["measures"]["vcdim"]["verdict"] == []
    assert found["measures"]["vcdim"]["questions"]["size"]["value"] == 0.5
    assert found["measures"]["path_norm"]["verdict"][:2] == ["chance", "size"]
    assert "questions" not in json.loads(genbench(capsys, *words)[1])


def test_judging_needs_no_torch(tmp_path: Path) -> None:
    names = shipped_evidence("nin-fashion").networks
    file = written(tmp_path / "r.csv", {"network": names, "mine": range(len(names))})
    script = (
        "import sys; from genbench.cli import main\n"
        f"try: main(['judge', {str(file)!r}, '--suite', 'nin-fashion', '--permutations', '1000'])\n"
        "except SystemExit: pass\n"
        "print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines()[-1] == "False"
