"""The author kit: a new package passes its own tests, and the conformance kit catches what it should."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from dataclasses import asdict
from pathlib import Path

import pytest
from msgspec import to_builtins

from genbench.authoring import package_files
from genbench.conformance.kit import CheckReport, CheckResult, run_checks
from genbench.engine.guard import Limits
from genbench.plugin.registry import find_measure
from genbench.sealing.seal import missing

PLUGINS = Path(__file__).parent.parent / "plugins"
KIT = pytest.mark.xdist_group("conformance kit")  # one process does all of these checks


def test_the_example_plugin_is_what_new_writes() -> None:
    folder = PLUGINS / "genbench-example"
    generated = ("egg-info", "__pycache__", ".pytest_cache", "build")
    there = {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and not any(part in str(path.relative_to(folder)) for part in generated)
    }
    assert there == package_files("example")


def test_new_never_overwrites(run, tmp_path) -> None:
    assert run("new", "my_measure").returncode == 0
    assert (tmp_path / "genbench-my-measure" / "src" / "genbench_my_measure" / "__init__.py").exists()
    again = run("new", "my_measure")
    assert again.returncode == 2
    assert "exists already" in again.stderr


@pytest.mark.slow
def test_a_new_package_installs_and_passes_its_own_tests(run, tmp_path) -> None:
    """In an environment of its own, on top of the one with genbench, as its author would have it."""
    made = run("new", "freshly_made", "--json")
    folder = tmp_path / json.loads(made.stdout)["folder"]
    venv.create(tmp_path / "env", system_site_packages=True, with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    below = next(Path(path) for path in sys.path if path.endswith("site-packages"))
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    # Also runs the .pth files there, which is how editable installs are found.
    (site / "parent.pth").write_text(f"import site; site.addsitedir({str(below)!r})\n")
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", folder],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    tests = subprocess.run(
        [python, "-m", "pytest", "-q", "-p", "no:cacheprovider"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert tests.returncode == 0, tests.stdout + tests.stderr
    assert "2 passed" in tests.stdout
    listed = subprocess.run(
        [python, "-m", "genbench", "measures", "--json"], capture_output=True, text=True, check=True
    )
    assert "freshly_made" in {measure["name"] for measure in json.loads(listed.stdout)}


# Body of a measure, and the promise that it breaks.
BROKEN = [
    ("    import torch\n    return torch.rand(()).item()", "leaves global random generators alone"),
    ("    import random\n    return random.random()", "leaves global random generators alone"),
    ("    import time\n    return time.time()", "same seed, same bits"),
    (
        "    import torch\n    return torch.rand((), generator=subject.generator).item()",
        "says whether it is random",
    ),
    (
        "    for p in subject._network.model.parameters(): p.data += 1\n    return 1.0",
        "leaves the network and its data as they were",
    ),
    (
        "    import torch\n    torch.set_default_dtype(torch.float64)\n    return 1.0",
        "leaves torch's global settings alone",
    ),
    ("    return float(len(list(subject.batches())))", "does not depend on the batch size"),
    (
        "    import torch\n    return float(torch.get_num_threads())",
        "does not depend on the number of threads",
    ),
    ("    print('hello')\n    return 1.0", "prints nothing"),
    ("    return float(len(subject.trace()))", "declares what it needs"),
    (
        "    return 1 / sum(w.abs().sum().item() for w in subject.weights())",
        "finite or not applicable: all weights zero",
    ),
    ("    return 'text'", "gives a finite number on an ordinary network"),
    ("    import os\n    os._exit(1)", "gives a finite number on an ordinary network"),
]
NEVER = "    raise genbench.NotApplicable('never')"
IMPORTS = (
    "    import sys\n    there = [name in sys.modules for name in ('scipy.constants', 'pyclbr')]\n"
    "    import scipy.constants, pyclbr\n    return 1.0 + there[0] + 2 * there[1]"
)

# The kit's own process, asked about one measure after the other: training the networks that the checks look
# at and importing torch is most of its time, and every check is a forked child that leaves it as it was but
# for libraries.
SERVE = """
import sys
from genbench.conformance.process import main

for _ in range(int(sys.argv[2])):
    main(int(sys.argv[1]))
    print("end", flush=True)
"""


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CheckReport]:
    """What the kit finds about `param_norm` and about every body above."""
    folder = tmp_path_factory.mktemp("candidates")
    entries = {"param_norm": find_measure("param_norm")}
    for number, body in enumerate([*(body for body, _ in BROKEN), NEVER, IMPORTS]):
        file = folder / f"candidate{number}.py"
        file.write_text(
            "import genbench\n@genbench.measure(needs={'weights', 'training_data'})\n"
            f"def candidate(subject):\n    'Summary.'\n{body}\n"
        )
        entries[body] = find_measure(str(file))
    limits = to_builtins(Limits(20, 2**31))
    requests = [
        json.dumps({"source": asdict(entry.source), "measure": entry.item.name, "limits": limits})
        for (entry,) in entries.values()
    ]
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(os.getpid()), str(len(requests))],
        input="\n".join(requests) + "\n", env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    answers = done.stdout.split("end\n")
    assert answers.pop() == ""
    return {
        what: CheckReport(entry.item.name, [CheckResult(**json.loads(line)) for line in answer.splitlines()])
        for (what, (entry,)), answer in zip(entries.items(), answers, strict=True)
    }


def failed(report: CheckReport) -> set[str]:
    return {result.name for result in report.failed}


def test_every_builtin_kind_of_promise_is_checked(check_measure) -> None:
    report = check_measure("path_norm")
    report.assert_passed()
    assert report.ran == len(report.results) == 20
    findings = {r.name: r.detail for r in report.results if r.kind == "science"}
    assert findings["same function, hidden units permuted"] == "unchanged"
    assert findings["same function, consecutive layers rescaled by 8 and 1/8"] == "unchanged"


@KIT
def test_a_norm_is_found_to_move_under_rescaling(reports) -> None:
    findings = {r.name: r.detail for r in reports["param_norm"].results}
    assert findings["same function, hidden units permuted"] == "unchanged"
    assert "changes by" in findings["same function, consecutive layers rescaled by 8 and 1/8"]


@KIT
@pytest.mark.parametrize(
    ("body", "promise"), BROKEN, ids=[f"{i} {promise}" for i, (_, promise) in enumerate(BROKEN)]
)
def test_a_broken_promise_is_found(reports, body, promise) -> None:
    report = reports[body]
    assert len(report.results) == 20
    assert promise in failed(report)
    with pytest.raises(AssertionError, match=promise.split(":")[0]):
        report.assert_passed()


def test_check_prints_how_many_ran_and_fails_for_a_bad_measure(run, tmp_path) -> None:
    good = run("check", "param_norm")
    assert good.returncode == 0
    assert "param_norm: 20 of 20 checks ran: 15 passed, 0 failed, 5 findings" in good.stdout
    (tmp_path / "bad.py").write_text(
        "import genbench\n@genbench.measure\ndef bad(s):\n    'S.'\n    return 'x'\n"
    )
    bad = run("check", "bad.py")
    assert bad.returncode == 1
    assert "returned str" in bad.stdout


@pytest.mark.skipif(bool(missing()), reason="measures are sealed on Linux")
def test_checks_are_sealed(tmp_path) -> None:
    body = "    'S.'\n    open('/etc/passwd')\n    return 1.0\n"
    (tmp_path / "nosy.py").write_text(f"import genbench\n@genbench.measure\ndef nosy(s):\n{body}")
    (entry,) = find_measure(str(tmp_path / "nosy.py"))
    (found,) = run_checks(entry.source, "nosy", Limits(20, 2**31), only="gives a finite number").results
    assert found.outcome == "failed"
    assert "a reading is sealed" in found.detail


@KIT
def test_a_measure_that_never_applies_has_not_passed(reports) -> None:
    with pytest.raises(AssertionError, match="never gave a number"):
        reports[NEVER].assert_passed()


@KIT
def test_checks_share_the_libraries_that_a_measure_imports_and_nothing_else(reports) -> None:
    """Importing torch's compiler took longer than most checks of a measure that takes gradients."""
    values = [r.detail for r in reports[IMPORTS].results if r.name.startswith(("gives", "finite or"))]
    assert values == ["1", "2", "2", "2", "2", "2"]
