"""A small suite with a pack and records, as a plugin brings one: what takes minutes on `mini` takes seconds.

The suite `few` is `mini-quick` under a name of its own: six networks.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import in_process
from test_plugins import install

from genbench.plugin.registry import load_registry
from genbench.suites.evidence_packs import shipped_evidence

SUITE = "few"
RECORDED = ("path_norm", "params", "baseline_size", "baseline_random")
PLUGIN = """
from pathlib import Path

from genbench.plugin import SuiteFile, hookimpl

@hookimpl
def genbench_suites():
    return [SuiteFile("few", Path(__file__).with_name("few.toml"))]
"""
SOURCE = Path(__file__).parent.parent / "genbench" / "suites" / "mini-quick.toml"


@contextlib.contextmanager
def installed(site: Path) -> Iterator[None]:
    """With the suite known to this process and to those that it starts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(site))
        paths = [str(site), *filter(None, [os.environ.get("PYTHONPATH")])]
        patch.setenv("PYTHONPATH", os.pathsep.join(paths))
        _forget()
        yield
    _forget()


def _forget() -> None:
    load_registry.cache_clear()
    shipped_evidence.cache_clear()


def build(folder: Path, store: Path) -> None:
    """Fill a folder: `site` with the suite and its pack, `records`; `store` has mini-quick."""
    site = folder / "site"
    site.mkdir()
    install(site, "few_suite", PLUGIN)
    (site / "few.toml").write_text(SOURCE.read_text().replace('name = "mini-quick"', 'name = "few"'))
    shutil.copytree(store, folder / "scratch")
    with installed(site):
        measures = [word for name in RECORDED for word in ("-m", name)]
        for words in (
            ("pack", "build", "-s", SUITE, "--to", site / "packs" / SUITE, "--store", folder / "scratch"),
            ("run", "-s", SUITE, *measures, "--records", folder / "records", "--store", folder / "store"),
        ):
            done = in_process(*words, cwd=folder)
            assert done.returncode == 0, done.stderr
    shutil.rmtree(folder / "scratch")
