"""Finding plugins, and keeping a broken one from hurting anything else."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from genbench.errors import UserError
from genbench.plugin import described, hookspecs
from genbench.plugin.registry import Registry, find_measure, load_registry, unknown_name
from genbench.sealing.seal import missing

GOOD = """
import genbench

@genbench.measure
def good_one(subject):
    '''A good measure.'''
    return 1.0

@genbench.hookimpl
def genbench_measures():
    return [good_one]
"""

BROKEN = {
    "cannot_import": "import a_package_that_is_not_there",
    "exits": "raise SystemExit(3)",
    "wrong_hook_signature": (
        "import genbench\n@genbench.hookimpl\ndef genbench_measures(config):\n    return []\n"
    ),
    "unknown_hook": "import genbench\n@genbench.hookimpl\ndef genbench_measurez():\n    return []\n",
    "not_a_list": "import genbench\n@genbench.hookimpl\ndef genbench_measures():\n    return 5\n",
    "not_decorated": (
        "import genbench\ndef f(subject):\n    return 1.0\n"
        "@genbench.hookimpl\ndef genbench_measures():\n    return [f]\n"
    ),
    "wrong_signature": (
        "import genbench\n@genbench.measure\ndef f(a, b):\n    '''Two arguments.'''\n"
        "@genbench.hookimpl\ndef genbench_measures():\n    return [f]\n"
    ),
    "duplicate_of_builtin": (
        "import genbench\n@genbench.measure\ndef path_norm(subject):\n    '''Mine.'''\n    return 1.0\n"
        "@genbench.hookimpl\ndef genbench_measures():\n    return [path_norm]\n"
    ),
}

REASONS = {
    "cannot_import": "a_package_that_is_not_there",
    "exits": "SystemExit: 3",
    "wrong_hook_signature": "config",
    "unknown_hook": "genbench_measurez",
    "not_a_list": "expected a list",
    "not_decorated": "decorate it with @genbench.measure",
    "wrong_signature": "one argument, the subject",
    "duplicate_of_builtin": "already registered by built-in",
}


def install(folder: Path, name: str, code: str) -> None:
    """What pip leaves behind: a module and a dist-info folder with an entry point."""
    (folder / f"{name}.py").write_text(code)
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[genbench]\n{name} = {name}\n")


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "site"
    folder.mkdir()
    return folder


def with_site(site: Path) -> dict[str, str]:
    paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def test_every_hook_has_one_line_of_documentation_and_is_used_by_the_builtins() -> None:
    import genbench.plugin.builtin as builtin

    hooks = [name for name in vars(hookspecs) if name.startswith("genbench_")]
    assert sorted(hooks) == [
        "genbench_backbones", "genbench_datasets", "genbench_degradations", "genbench_executors",
        "genbench_measures", "genbench_prepare", "genbench_suite_kinds", "genbench_suites",
    ]  # fmt: skip
    for name in hooks:
        assert getattr(hookspecs, name).__doc__
        if name != "genbench_prepare":  # a worker learns from the first readings what ours import
            assert getattr(builtin, name)()


def test_broken_plugins_are_listed_with_the_reason_and_stop_nothing(run, site) -> None:
    for name, code in BROKEN.items():
        install(site, name, code)
    install(site, "zz_good", GOOD)
    listed = run("plugins", "--json", env=with_site(site))
    assert listed.returncode == 0, listed.stderr
    reports = {report["plugin"]: report for report in json.loads(listed.stdout)}
    for name, reason in REASONS.items():
        assert not reports[name]["ok"], name
        assert any(reason in problem for problem in reports[name]["problems"]), reports[name]["problems"]
    assert reports["zz_good"]["ok"]
    assert reports["genbench"]["ok"]
    listed = json.loads(run("measures", "--json", env=with_site(site)).stdout)
    sources = {one["name"]: one["source"] for one in listed}
    assert {"good_one", "path_norm"} <= sources.keys()
    # The built-in stays what it was.
    assert sources["path_norm"] == "built-in"
    text = run("plugins", env=with_site(site))
    assert "Traceback" in text.stdout
    assert "a_package_that_is_not_there" in text.stdout


HOSTILE_IMPORTS = {
    "leaves": ("import os; os._exit(0)", "ended the process that asked it (exit code 0)"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "ended the process that asked it (signal 11)"),
    "interrupts": ("raise KeyboardInterrupt", "KeyboardInterrupt"),
    "hangs": ("import time; time.sleep(600)", "did not end within 3 s"),
    "forges": (
        "import os\nfor n in range(3, 1024):\n    try: os.write(n, b'forged\\n')\n    except OSError: pass\n"
        "os._exit(0)",
        "no description",
    ),
    "steals": ("open('/etc/passwd').read()", "Permission denied"),
    "steers": ("raise ValueError('\x1b[2J\x1b]0;owned\x07')", "ValueError: \ufffd[2J\ufffd]0;owned\ufffd"),
}


def test_an_import_hurts_the_process_that_was_asked_and_no_other(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(described, "_SECONDS", 3.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if missing():
        HOSTILE_IMPORTS.pop("steals")
    for name, (body, words) in HOSTILE_IMPORTS.items():
        file = tmp_path / f"{name}.py"
        file.write_text(body)
        with pytest.raises(UserError, match=re.escape(words)):
            find_measure(str(file))
    assert not (tmp_path / "cache").exists(), "a failure is never kept"


def test_a_plugin_is_asked_once_and_its_code_stays_elsewhere(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "patches.py"
    file.write_text("import json\njson.dumps = None\nprint('\x1b[2J')\n" + GOOD)
    (entry,) = find_measure(str(file))
    assert entry.item.summary == entry.item.description == "A good measure."
    assert json.dumps is not None
    assert not any(name.startswith("genbench_file") and "patches" in name for name in sys.modules)
    with pytest.raises(RuntimeError, match="sealed processes alone"):
        entry.item(None)
    monkeypatch.delattr(described, "_ask")
    assert find_measure(str(file))[0].item.info == entry.item.info


def test_two_packages_with_one_name_are_an_error_that_names_both(run, site) -> None:
    install(site, "first_pack", GOOD)
    install(site, "second_pack", GOOD)
    result = run("run", "--measure", "good_one", env=with_site(site))
    assert result.returncode == 2
    assert "first_pack 1.0" in result.stderr
    assert "second_pack 1.0" in result.stderr
    assert run("measures", env=with_site(site)).returncode == 0


def test_a_plugin_that_imports_torch_is_pointed_out(run, site) -> None:
    install(site, "heavy", "import torch\n" + GOOD)
    listed = run("plugins", "--json", env=with_site(site))
    reports = {report["plugin"]: report for report in json.loads(listed.stdout)}
    assert "torch" in reports["heavy"]["heavy_imports"]
    assert reports["genbench"]["heavy_imports"] == []


def test_a_wrong_name_suggests_the_right_one() -> None:
    with pytest.raises(UserError, match="did you mean 'path_norm'"):
        find_measure("path_nrom")
    with pytest.raises(UserError, match="`genbench measures` lists them all"):
        find_measure("zzzzzz")
    assert "did you mean" in unknown_name("suite", "digit", ["digits"], "genbench suites")


def test_a_file_is_a_plugin(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import genbench\n"
        "@genbench.measure\ndef first(subject):\n    '''One.'''\n    return 1.0\n"
        "@genbench.measure\ndef second(subject):\n    '''Two.'''\n    return 2.0\n"
    )
    assert [entry.item.name for entry in find_measure(str(file))] == ["first", "second"]
    assert [entry.item.name for entry in find_measure(f"{file}:second")] == ["second"]
    with pytest.raises(UserError, match="did you mean 'second'"):
        find_measure(f"{file}:secnd")


@pytest.mark.parametrize(
    ("code", "sentence"),
    [
        ("x = 1", "defines no measure"),
        ("import nothing_like_it", "cannot be imported"),
        ("def f(:", "SyntaxError"),
    ],
)
def test_a_wrong_file_is_refused_in_one_sentence(tmp_path, code, sentence) -> None:
    file = tmp_path / "wrong.py"
    file.write_text(code)
    with pytest.raises(UserError, match=sentence):
        find_measure(str(file))
    with pytest.raises(UserError, match="there is no file"):
        find_measure(str(tmp_path / "absent.py"))


def test_builtins_register_through_the_same_hooks() -> None:
    registry = load_registry()
    assert registry.plugins[0].source.plugin == "genbench"
    assert set(registry.plugins[0].offers["measures"]) == {
        name for name, entry in registry.measures.items() if entry.source.kind == "built-in"
    }
    assert "genbench.plugin.builtin" in sys.modules
    assert isinstance(registry, Registry)
