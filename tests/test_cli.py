"""The command line as a new user meets it, with right and with wrong words."""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import MEASURES, TINY_SUITE, command, in_process

from genbench import cli
from genbench.cli import diagnosis
from genbench.cli.diagnosis import Finding

ROOT = Path(__file__).parent.parent
BASELINES = ("baseline_random", "baseline_constant", "baseline_size")
COMMANDS = list(cli._COMMANDS)
LISTINGS = [["measures"], ["measures", "path_norm"], ["suites"], ["backbones"], ["datasets"], ["plugins"]]


def imported(*arguments: str) -> set[str]:
    """Top-level packages that a command imports, as python -X importtime reports them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "genbench", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    names = re.findall(r"import time:\s+\d+ \|\s+\d+ \| +(\S+)", done.stderr)
    assert "click" in names, "importtime output was not understood"
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("arguments", [["--help"], ["run", "--help"], *LISTINGS], ids=" ".join)
def test_help_and_listings_import_no_torch(arguments) -> None:
    assert not imported(*arguments) & {
        "torch",
        "timm",
        "open_clip",
        "torchvision",
        "sklearn",
        "pandas",
        "matplotlib",
    }


def test_help_takes_at_most_three_times_importing_click() -> None:
    def seconds(*command_line: str) -> float:
        began = time.perf_counter()
        subprocess.run(command_line, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - began

    script = shutil.which("genbench", path=str(Path(sys.executable).parent))
    assert script is not None
    pairs = [(seconds(sys.executable, "-c", "import click"), seconds(script, "--help")) for _ in range(9)]
    click_seconds, help_seconds = (statistics.median(times) for times in zip(*pairs, strict=True))
    assert help_seconds <= 3 * click_seconds


def test_help_shows_every_command(run) -> None:
    text = run("--help").stdout
    shown = re.findall(r"^  (\w+)  +(\S.*)$", text.partition("Commands:")[2], re.M)
    assert [name for name, _ in shown] == COMMANDS
    for name, summary in shown:
        told = run(name, "--help")
        assert told.returncode == 0, told.stderr
        assert told.stdout.startswith(f"Usage: genbench {name} ")
        assert summary.removesuffix("...") in " ".join(told.stdout.split())


def test_the_entry_point_is_the_same_program(tmp_path) -> None:
    """What the other tests call in this process, once as it is installed: answers, streams and exit codes."""
    script = shutil.which("genbench", path=str(Path(sys.executable).parent))
    assert script is not None
    for start in ([script], [sys.executable, "-m", "genbench"]):
        for words, code in ((["--version"], 0), (["measures", "zzz"], 2), (["run"], 2)):
            done = subprocess.run([*start, *words], cwd=tmp_path, capture_output=True, text=True, check=False)
            assert done.returncode == code
            here = in_process(*words, cwd=tmp_path)
            assert (done.stdout, done.stderr, done.returncode) == (here.stdout, here.stderr, here.returncode)


@pytest.mark.parametrize(
    "arguments", [*LISTINGS, ["doctor"], ["plan", "--measure", "path_norm"]], ids=" ".join
)
def test_json_is_one_document(run, arguments) -> None:
    result = run(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)


def test_the_main_job(run, tmp_path, tiny_suite) -> None:
    result = run("run", "--measure", "path_norm", "--suite", tiny_suite)
    assert result.returncode == 0, result.stderr
    lines = [line.split("\t") for line in result.stdout.splitlines()]
    assert ["network", "reading", "status", "gap", "seconds"] in lines
    assert sum(row[0].startswith("width=") and row[2] == "ok" and float(row[1]) > 0 for row in lines) == 3
    head = next(row for row in lines if row[:2] == ["measure", "rank"])
    column = head.index("sign error")
    scores = {row[0]: row[column] for row in lines if row[0] in ("path_norm", "baseline_constant")}
    assert scores["baseline_constant"] == "0.500"
    assert 0 <= float(scores["path_norm"]) <= 1
    plan = json.loads(run("plan", "--measure", "path_norm", "--suite", tiny_suite, "--json").stdout)
    assert plan["cells"] == plan["stored"] == 2 + 3 * 2 + 3 * 4
    assert plan["seconds"] == 0
    again = json.loads(run("run", "--measure", "path_norm", "--suite", tiny_suite, "--json").stdout)
    assert {m["name"] for m in again["measures"]} == {"path_norm", *BASELINES}


@pytest.fixture
def store(tmp_path, finished_run) -> Path:
    """A store with the networks of tiny.toml and what MEASURES read off them."""
    return Path(shutil.copytree(finished_run, tmp_path, dirs_exist_ok=True)) / "store"


def test_measures_that_the_store_knows_stand_beside_the_one_asked_for(run, store) -> None:
    done = run("run", "--measure", "param_norm", "--suite", "tiny.toml", "--store", store, "--json")
    document = json.loads(done.stdout)
    assert {m["name"] for m in document["measures"]} == {"param_norm", *MEASURES, *BASELINES}
    assert document["asked"] == ["param_norm"]
    for measure in document["measures"]:
        known = measure["name"] != "param_norm"
        assert [reading["stored"] for reading in measure["readings"]] == [known] * 3


def test_a_measure_of_an_installed_package(run, store) -> None:
    result = run("run", "--measure", "example", "--suite", "tiny.toml", "--store", store, "--json")
    assert result.returncode == 0, result.stderr
    by_name = {measure["name"]: measure for measure in json.loads(result.stdout)["measures"]}
    assert by_name["example"]["source"] == "genbench-example 0.1.0"
    assert len(by_name["example"]["readings"]) == 3
    assert all(r["status"] == "ok" and not r["stored"] for r in by_name["example"]["readings"])


def test_unconverged_networks_are_marked_and_not_scored(run, tmp_path) -> None:
    suite = TINY_SUITE.replace("stop_cross_entropy = 100.0", "stop_cross_entropy = 0.001")
    (tmp_path / "hard.toml").write_text(suite)
    result = run("run", "--measure", "path_norm", "--suite", "hard.toml", "--jobs", "1")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("(unconverged)") == 3
    record = json.loads(run("run", "--measure", "path_norm", "--suite", "hard.toml", "--json").stdout)
    assert all(measure["sign_error"] is None for measure in record["measures"])


def test_a_name_with_an_argument(run, tmp_path) -> None:
    for part in ("train", "test"):
        for name in ("cat", "dog"):
            (tmp_path / "pets" / part / name).mkdir(parents=True)
    listed = json.loads(run("datasets", "folder:pets", "--json").stdout)
    assert [record["name"] for record in listed] == ["folder:pets"]
    missing = run("datasets", "folder:nowhere")
    assert "missing" in missing.stdout
    backbone = run("backbones", "timm:resnet18")
    assert "timm:resnet18" in backbone.stdout
    assert_one_sentence(run("backbones", "clip:RN5"), "did you mean 'clip:RN50'")


def test_plan_does_nothing(run, tmp_path, tiny_suite) -> None:
    result = run("plan", "--measure", "path_norm", "--suite", tiny_suite, "--store", "s")
    # Two pools of images; three stacks of one network each, with their evidence; four measures on them.
    assert f"{2 + 3 * 2 + 4 * 3} of 20 cells to compute" in result.stdout
    assert not (tmp_path / "s").exists()


WRONG = [
    (["run", "--measure", "path_nrom"], "did you mean 'path_norm'"),
    (["run", "--measure", "./absent.py"], "there is no file absent.py"),
    (["run"], "say what to run: --measure NAME"),
    (["run", "--measure", "path_norm", "--suite", "digit"], "did you mean 'digits'"),
    (["run", "--measure", "path_norm", "--suite", "absent.toml"], "there is no suite file absent.toml"),
    (["run", "--measure", "path_norm", "--jobs", "none"], "'none' is not a valid integer"),
    (["run", "--measure", "path_norm", "--jobs", "0"], "0 is not in the range"),
    (["run", "--measure", "path_norm", "--timeout", "-1"], "range"),
    (["run", "--measure", "path_norm", "--memory", "lots"], "write 500M or 4G"),
    (["run", "--measure", "path_norm", "--memory", "-4G"], "write 500M or 4G"),
    (["run", "--measure", "path_norm", "--executor", "locl"], "did you mean 'local'"),
    (["run", "--measur", "path_norm"], "--measure"),
    (["rnu"], "did you mean 'run'"),
    (["measures", "zzz"], "`genbench measures` lists them all"),
    (["new", "Not-A-Name"], "lower-case letters"),
    (["check", "path_nrom"], "did you mean 'path_norm'"),
    (["run", "--measure", "params", "--set", "kappa=cohen"], "write TABLE.KEY=VALUE"),
    (["run", "--measure", "params", "--set", "testbed.kapa=cohen"], "did you mean 'testbed.kappa'"),
    (["run", "--measure", "params", "--set", "testbed.ssim=[2, 1.0]"], "an SSIM above 0 and at most 1"),
    (["run", "--measure", "params", "--backbones", "mini-clip:short1"], "did you mean 'mini-clip:short"),
    (["run", "--measure", "params", "--dataset", "glyph"], "did you mean 'glyphs'"),
    (["run", "--measure", "params", "--dataset", "folder:absent"], "absent"),
    (["run", "--measure", "params", "--suite", "cifar100-clip"], "cifar100 is not on this machine"),
    (["run", "--measure", "params", "--pack", "absent"], "there is no evidence pack in absent"),
    (["cube", "--suite", "digits"], "testbed"),
    (["pack", "verify", "--suite", "mini-quick"], "has no evidence pack"),
]


@pytest.mark.parametrize(("arguments", "words"), WRONG, ids=[" ".join(arguments) for arguments, _ in WRONG])
def test_wrong_words_get_one_sentence(run, tmp_path, arguments, words) -> None:
    assert_one_sentence(run(*arguments), words)
    assert list(tmp_path.iterdir()) == []  # nothing half-written


def assert_one_sentence(result: subprocess.CompletedProcess[str], words: str) -> None:
    assert result.returncode == 2, result.stdout + result.stderr
    assert words in result.stderr
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("genbench: ")]
    assert len(errors) == 1, result.stderr
    assert result.stdout == ""


SUITE_MISTAKES = [
    ("name = ", "[name = ", "is not valid TOML"),
    ('kind = "population"', 'kind = "populatoin"', "kind = 'populatoin', expected one of 'population'"),
    ("train_size = 60", "train_size = 6", "data.train_size = 6, expected an integer of at least 10"),
    ("train_size = 60", "train_size = 6000", "train_size = 6000, but digits has 1078 training images"),
    ("momentum = 0.9", "momentun = 0.9", "did you mean 'train.momentum'"),
    ("momentum = 0.9", 'momentum = "big"', "train.momentum = 'big', expected a number in [0, 1)"),
    ("momentum = 0.9", "momentum = nan", "expected a number in [0, 1)"),
    ("[4, 6, 8]", "[4, 4]", "expected a list of distinct values"),
    ("[4, 6, 8]", "8", "expected a list of distinct values"),
    ("[4, 6, 8]", "[0]", "grid.width = 0, expected an integer of at least 1"),
    ("depth = 1", "", "'depth' must be in exactly one of [train]"),
    ("depth = 1", "depth = 1\nwidth = 4", "found in [train] and [grid]"),
    ("[data]", "[date]", "unknown key 'date'; did you mean 'data'"),
    ('dataset = "digits"', 'dataset = "digit"', "did you mean 'digits'"),
]


@pytest.mark.parametrize(("right", "wrong", "words"), SUITE_MISTAKES)
def test_a_wrong_suite_is_explained(run, tmp_path, right, wrong, words) -> None:
    assert right in TINY_SUITE
    (tmp_path / "mine.toml").write_text(TINY_SUITE.replace(right, wrong, 1))
    result = run("run", "--measure", "path_norm", "--suite", "mine.toml")
    assert_one_sentence(result, words)


def test_a_store_that_is_something_else(run, tmp_path, tiny_suite) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter1.tex").write_text("years of work")
    result = run("run", "--measure", "path_norm", "--suite", tiny_suite, "--store", "thesis")
    assert_one_sentence(result, "neither a genbench store nor empty")
    assert [path.name for path in (tmp_path / "thesis").iterdir()] == ["chapter1.tex"]


def test_an_unreadable_store(run, tmp_path, tiny_suite) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "genbench-store.json").write_bytes(b"\xff\xfe")
    assert_one_sentence(
        run("run", "--measure", "path_norm", "--suite", tiny_suite, "--store", "s"), "--store"
    )


def without_privileges(arguments: list[str]) -> list[str]:
    """root may write anywhere; take that right away from the command."""
    if os.geteuid() != 0:
        return arguments
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        pytest.skip("running as root, and there is no setpriv to give the privileges up")
    return [setpriv, "--bounding-set=-dac_override,-dac_read_search", *arguments]


def test_no_permission_to_write(tmp_path, tiny_suite) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o555)
    try:
        result = subprocess.run(
            without_privileges(
                command("run", "--measure", "path_norm", "--suite", tiny_suite, "--store", locked / "store")
            ),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    finally:
        locked.chmod(0o755)
    assert_one_sentence(result, "no permission for")
    assert "--store" in result.stderr
    assert list(locked.iterdir()) == []


@pytest.mark.parametrize("size", ["200k", "400k"])
def test_a_full_disk(run, tmp_path, tiny_suite, size) -> None:
    """A tiny tmpfs in a mount namespace of its own; what was finished before goes on elsewhere."""
    disk = tmp_path / "disk"
    disk.mkdir()
    arguments = command("run", "--measure", "path_norm", "--suite", tiny_suite, "--store", disk / "store")
    script = (
        f"mount -t tmpfs -o size={size} tmpfs {disk} || exit 99\n"
        f"{' '.join(arguments)}\n"
        f"code=$?; cp -a {disk}/store {tmp_path}/copy; exit $code\n"
    )
    namespace = ["unshare", "--mount", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"])]
    result = subprocess.run([*namespace, "sh", "-c", script], capture_output=True, text=True, check=False)
    if result.returncode in (1, 99) and "genbench" not in result.stderr:
        pytest.skip(f"no mount namespace here: {result.stderr.strip()}")
    assert_one_sentence(result, "is full; free some space")
    assert not list((tmp_path / "copy" / "staging").iterdir())
    resumed = run("run", "--measure", "path_norm", "--suite", tiny_suite, "--store", "copy", "--jobs", "1")
    assert resumed.returncode == 0, resumed.stderr
    assert "made again" not in resumed.stderr  # nothing that was there was half-written


def test_debug_shows_the_traceback(run_process) -> None:
    result = run_process("measures", "path_nrom", "--debug")
    assert "Traceback" in result.stderr


def test_a_closed_pipe_is_no_error(tmp_path) -> None:
    pipeline = f"{' '.join(command('measures'))} | head -n 1"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_a_terminal_gets_tables_and_bars(tmp_path, tiny_suite) -> None:
    import pty

    def on_terminal(*arguments: str | Path) -> str:
        parent, child = pty.openpty()
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
        process = subprocess.Popen(
            command(*arguments), cwd=tmp_path, stdout=child, stderr=child, stdin=child, env=environment
        )
        os.close(child)
        shown = b""
        try:
            while data := os.read(parent, 65536):
                shown += data
        except OSError:
            pass  # Linux says so when the other side has gone
        os.close(parent)
        assert process.wait() == 0, shown.decode()
        return shown.decode()

    assert "───" in on_terminal("measures")
    shown = on_terminal("run", "--measure", "path_norm", "--suite", tiny_suite, "--jobs", "1")
    assert "train a stack" in shown
    assert "━" in shown
    assert "sign-error" in shown


def test_doctor_sums_up_in_a_line(run, monkeypatch) -> None:
    """Of findings made up here; that this machine is well is what its JSON says, above."""
    for status, code, line in (("ok", 0, "all well"), ("problem", 1, "1 problem(s) found")):
        monkeypatch.setattr(diagnosis, "examine", lambda _, s=status: [Finding("a thing", s, "a detail")])
        done = run("doctor")
        assert (done.returncode, done.stdout.splitlines()[-1]) == (code, line)


def test_doctor_names_what_is_wrong(run_process, tmp_path) -> None:
    (tmp_path / "bad.dist-info").mkdir()
    (tmp_path / "bad.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1\n")
    (tmp_path / "bad.dist-info" / "entry_points.txt").write_text("[genbench]\nbad = no_such_module_here\n")
    ill = run_process("doctor", "--json", env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}"})
    assert ill.returncode == 1
    findings = {finding["what"]: finding for finding in json.loads(ill.stdout)}
    assert findings["plugin bad"]["status"] == "problem"
    assert "no_such_module_here" in findings["plugin bad"]["detail"]


def test_suites_say_what_is_missing_here(run) -> None:
    listed = {one["name"]: one for one in json.loads(run("suites", "--json").stdout)}
    assert listed["mini"]["status"] == listed["digits"]["status"] == "ready"
    for name, wanted in (("cifar100-clip", "data set cifar100"), ("nin-cifar10-svhn", "data set cifar10")):
        assert listed[name]["status"] == "missing"
        assert listed[name]["missing"][0].startswith(wanted)
    assert any(line.startswith("backbone clip:RN50") for line in listed["cifar100-clip"]["missing"])
    assert "cifar100-clip needs data set cifar100: " in run("suites").stderr


def test_a_plan_without_a_measure_is_that_of_the_evidence(run) -> None:
    done = run("plan", "--suite", "digits", "--json")
    assert done.returncode == 0, done.stderr
    steps = {row["step"]: row["cells"] for row in json.loads(done.stdout)["steps"]}
    assert "train a stack" in steps
    assert "take reading" not in steps


def test_a_folder_of_domains_is_looked_at_by_its_own_loader(run, tmp_path) -> None:
    (tmp_path / "art" / "dog").mkdir(parents=True)
    done = run("plan", "--suite", "domains", "--quick", "--dataset", f"folder:{tmp_path}", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["missing"] == []
