"""One bad plugin never hurts another: ten hostile ones in one run."""

from __future__ import annotations

import json

import pytest
from conftest import TINY_SUITE, readings

from genbench.population.plan import plan_population
from genbench.suites import load_suite

HOSTILE = {
    "raises": (
        "raise ValueError('the third layer is missing')",
        "failed",
        "ValueError: the third layer is missing",
    ),
    "returns_text": ("return 'very good'", "invalid", "returned str 'very good'"),
    "returns_nan": ("return float('nan')", "invalid", "returned nan"),
    "returns_inf": ("return float('inf')", "invalid", "returned inf"),
    "hangs": ("import time\n    while True: time.sleep(1)", "timeout", "still running after 8 s"),
    "allocates": (
        "import torch\n    kept = []\n    while True: kept.append(torch.ones(2_000_000))",
        "out_of_memory",
        "memory",
    ),
    "exits": ("import os\n    os._exit(0)", "crashed", "exit code 0 before it gave an answer"),
    "segfaults": ("import ctypes\n    ctypes.string_at(0)", "crashed", "SIGSEGV"),
    "vandal": (
        "import torch\n"
        "    torch.manual_seed(1); torch.set_default_dtype(torch.float64); torch.nn.functional.relu = abs\n"
        "    for p in [*subject.model.parameters(), *subject._network.model.parameters()]:\n"
        "        p.data.zero_()\n"
        "    subject._network.inputs[:].zero_(); subject.logits().zero_()\n"
        "    return 3.0",
        "ok",
        "",
    ),
    "floods": (
        "import sys\n    for _ in range(200_000): print('x' * 100)\n    print('last', file=sys.stderr)\n"
        "    return 4.0",
        "ok",
        "",
    ),
}

HONEST = ["path_norm", "inverse_margin", "pacbayes_flatness", "log_prod_of_spec", "baseline_random"]


def write_hostile(folder) -> list[str]:
    options = []
    for name, (body, _, _) in HOSTILE.items():
        file = folder / f"{name}.py"
        file.write_text(
            f"import genbench\n\n@genbench.measure(needs={{'weights', 'training_data'}})\n"
            f"def {name}(subject):\n    '''Hostile.'''\n    {body}\n"
        )
        options += ["--measure", f"./{name}.py"]
    return options


@pytest.mark.slow
def test_ten_hostile_plugins_in_one_run(run, tmp_path) -> None:
    assert len(HOSTILE) == 10
    two = tmp_path / "two.toml"  # of the second it shows that the first network's vandals left it alone
    two.write_text(TINY_SUITE.replace("[4, 6, 8]", "[4, 6]"))
    honest = [option for name in HONEST for option in ("--measure", name)]
    limits = ["--suite", two, "--timeout", "8", "--memory", "300M", "--json"]
    # Hostile ones first, and on one worker, so that each honest reading follows on a hostile one.
    mixed = run("run", *write_hostile(tmp_path), *honest, *limits, "--store", "mixed", "--jobs", "1")
    clean = run("run", *honest, *limits, "--store", "clean", "--jobs", "1")
    assert clean.returncode == 0, clean.stderr
    assert mixed.returncode == 1, mixed.stderr
    found, expected = readings(mixed.stdout), readings(clean.stdout)
    assert all(status == "ok" for status, _, _ in expected.values())
    # Equal to the last bit: JSON writes floats so that they read back as they were.
    assert {key: found[key] for key in expected} == expected
    hostile = {key: value for key, value in found.items() if key[0] in HOSTILE}
    assert len(hostile) == 10 * 2
    for (name, _), (status, _, reason) in hostile.items():
        _, expected_status, words = HOSTILE[name]
        assert (name, status) == (name, expected_status), reason
        assert words in reason
        assert "\n" not in reason
    floods = next(m for m in json.loads(mixed.stdout)["measures"] if m["name"] == "floods")
    assert all(r["value"] == 4.0 and r["output"].endswith("last\n") for r in floods["readings"])
    assert max(len(r["output"]) for r in floods["readings"]) <= 4096


def test_a_failed_reading_is_tried_again_and_a_kept_one_is_not(run, tmp_path, tiny_suite) -> None:
    (tmp_path / "moody.py").write_text(
        "import genbench, pathlib\n"
        "@genbench.measure\ndef moody(subject):\n    'Fails until a file exists.'\n"
        f"    assert pathlib.Path({str(tmp_path / 'flag')!r}).exists(), 'no flag yet'\n    return 1.0\n"
    )
    arguments = ["run", "--measure", "./moody.py", "--suite", tiny_suite, "--json", "--jobs", "1"]
    first = run(*arguments)
    assert first.returncode == 1
    assert {v[0] for k, v in readings(first.stdout).items() if k[0] == "moody"} == {"failed"}
    (tmp_path / "flag").touch()
    second = run(*arguments)
    assert second.returncode == 0, second.stderr
    by_name = {m["name"]: m for m in json.loads(second.stdout)["measures"]}
    assert all(r["value"] == 1.0 and not r["stored"] for r in by_name["moody"]["readings"])
    assert all(r["stored"] for r in by_name["baseline_size"]["readings"])


def test_a_measure_s_process_maps_no_held_out_file(run, tmp_path, tiny_suite) -> None:
    """The evidence is computed by the same worker, and yet a measure finds no trace of it."""
    plan = plan_population(load_suite(str(tiny_suite)))
    hidden = [cell.key for cell in (plan.heldout_data, *plan.blocks, *plan.truths)]
    labels = [network.label for network in plan.networks]
    (tmp_path / "spy.py").write_text(
        "import genbench\n"
        "@genbench.measure\ndef spy(subject):\n    'Looks around.'\n"
        "    maps = open('/proc/self/maps').read()\n"
        "    import os\n"
        "    files = [os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n != '3']\n"
        f"    hidden = {hidden}\n"
        "    assert not any(key in maps for key in hidden), maps\n"
        "    assert not any(key in f for f in files for key in [*hidden, 'sqlite']), files\n"
        "    import gc, torch\n"
        "    sizes = {len(o) for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.ndim == 4}\n"
        "    assert 719 not in sizes, sizes\n"
        "    import sys\n"
        "    frame, texts = sys._getframe(), []\n"
        "    while frame: texts.append(repr(frame.f_locals)); frame = frame.f_back\n"
        "    texts += [repr(o) for o in gc.get_objects() if type(o) in (dict, list, tuple) and len(o) < 30\n"
        "              and any(type(v) is str for v in (o.values() if type(o) is dict else o))]\n"
        f"    labels = {labels}\n"
        "    assert subject.name == 'network'\n"
        "    mine = [t for t in texts for label in labels if label in t and 'labels' not in t]\n"
        "    assert not mine, mine[:3]\n"
        "    return 1.0\n"
    )
    # Without the sandbox, which would not even let it look.
    words = ("--suite", tiny_suite, "--json", "--jobs", "1", "--no-sandbox")
    result = run("run", "--measure", "./spy.py", *words)
    assert result.returncode == 0, result.stdout + result.stderr
