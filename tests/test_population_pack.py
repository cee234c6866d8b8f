"""Evidence packs of populations: built, used, verified, and refused when something is wrong with them."""

from __future__ import annotations

import json
import lzma
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Run, command
from safetensors.numpy import load_file as load_numpy
from test_population_blocks import SUITE

import genbench
from genbench.engine.cells import Outcome, Status
from genbench.errors import UserError
from genbench.packs.manifest import PackedFile
from genbench.packs.pack import Pack, copy_files, read_pack
from genbench.plugin.contract import MeasureInfo
from genbench.plugin.registry import Source
from genbench.population.evidence import PopulationEvidence
from genbench.population.manifest import PackedBlock, PopulationManifest
from genbench.population.plan import plan_population
from genbench.population.suite import PopulationSuite
from genbench.scoring.robust import robust_sign_error
from genbench.suites import Suite, load_suite, read_suite
from genbench.suites.evidence_packs import find_pack, shipped_evidence
from genbench.suites.kind import kind_of
from genbench.suites.result import MeasureResult

pytestmark = pytest.mark.xdist_group("population_pack")  # one worker trains for all

PACKS = Path(genbench.__file__).parent / "suites" / "packs"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a suite, the store of its run, what that printed, and the pack made from it."""
    folder = tmp_path_factory.mktemp("population-pack")
    (folder / "blocks.toml").write_text(SUITE)
    for words in (
        ("run", "-s", "blocks.toml", "-m", "param_norm", "--store", "store", "--from-scratch", "--json"),
        ("pack", "build", "-s", "blocks.toml", "--to", "pack", "--store", "store"),
    ):
        done = subprocess.run(command(*words), cwd=folder, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        (folder / f"{words[0]}.out").write_text(done.stdout)
    return folder


def manifests(store: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text().partition("\n")[2]) for p in store.glob("cells/*/*/manifest.json")]


def test_a_pack_gives_the_readings_and_scores_of_the_run_it_was_made_from(made: Path, run: Run) -> None:
    words = ("run", "-s", "blocks.toml", "-m", "param_norm", "--pack", "pack", "--store", "new", "--json")
    done = run(*words, cwd=made)
    assert done.returncode == 0, done.stderr
    found, trained = json.loads(done.stdout), json.loads((made / "run.out").read_text())
    assert found["pack"].startswith("tiny-blocks v1")
    assert trained["pack"] is None
    assert found["evidence"] == trained["evidence"]
    # baseline_random is seeded by the key of the network, which a pack takes from its content.
    for document in (found, trained):
        document["scores"] = [r for r in document["scores"] if r["measure"] != "baseline_random"]
    assert found["scores"] == trained["scores"]
    kinds = {one["kind"] for one in manifests(made / "new")}
    assert kinds == {"unpacked", "population_training", "reading"}
    assert not list((made / "new").rglob("heldout*")), "nothing held out is needed, so nothing is there"


def test_verifying_agrees_to_the_bit_on_this_machine(made: Path, run: Run) -> None:
    done = run(
        "pack", "verify", "-s", "blocks.toml", "--pack", "pack", "--store", "fresh", "--json", cwd=made
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["agrees"]
    assert len(found["evidence"]) == 4
    assert all(one["same_bits"] and one["difference"] == 0 for one in found["evidence"])


def test_verifying_finds_a_pack_of_other_networks(made: Path, run: Run) -> None:
    other = made / "other"
    shutil.copytree(made / "pack", other)
    manifest = json.loads((other / "pack.json").read_text())
    manifest["blocks"][1]["judged"]["result"]["networks"][2]["gap"] += 0.01
    entry = manifest["blocks"][1]["trained"]["files"]["final.safetensors"]
    source = manifest["blocks"][0]["trained"]["files"]["final.safetensors"]
    manifest["compressed"][entry["file"]] = manifest["compressed"][source["file"]]
    entry["sha256"] = source["sha256"]
    (other / "pack.json").write_text(json.dumps(manifest))
    done = run("pack", "verify", "-s", "blocks.toml", "--pack", "other", "--store", "store", cwd=made)
    assert done.returncode == 1
    assert "does NOT hold" in done.stdout
    assert "3 of 4 agree to the bit" in done.stdout


@pytest.mark.parametrize(
    "file", ["stack-00.final.safetensors.xz", "initial-01.safetensors.xz", "stack-02.evidence.safetensors"]
)
def test_a_damaged_pack_is_named(made: Path, run: Run, tmp_path: Path, file: str) -> None:
    shutil.copytree(made / "pack", tmp_path / "pack")
    content = bytearray((tmp_path / "pack" / file).read_bytes())
    content[-1] ^= 1
    (tmp_path / "pack" / file).write_bytes(content)
    words = ("run", "-s", made / "blocks.toml", "-m", "params", "--pack", "pack", "--store", "new")
    done = run(*words, cwd=tmp_path)
    assert done.returncode != 0
    assert f"{file} is damaged" in done.stderr
    assert "Traceback" not in done.stderr


def test_stacks_that_begin_alike_are_stored_once_and_come_out_as_they_went_in(made: Path) -> None:
    """Two training sets, two widths, three seeds: of twelve initial states six differ."""
    from safetensors.torch import load

    pack = read_pack(made / "pack", PopulationManifest)
    assert sorted({entry.file for entry in pack.manifest.shared.values()}) == [
        "initial-00.safetensors.xz", "initial-01.safetensors.xz",
    ]  # fmt: skip
    stored = [load(lzma.decompress(f.read_bytes())) for f in pack.folder.glob("initial-*")]
    assert sum(len(tensors["head.bias"]) for tensors in stored) == 6
    for place, block in enumerate(plan_population(read_suite(made / "blocks.toml")).blocks):
        entry = blocks(pack)[place].trained.files["initial.safetensors"]
        assert not (pack.folder / entry.file).exists()
        with tempfile.TemporaryDirectory() as folder:
            copy_files(pack.folder, {"out": entry}, Path(folder), pack.manifest.shared)
            (original,) = (made / "store" / "cells").glob(f"*/{block.key}/initial.safetensors")
            assert (Path(folder) / "out").read_bytes() == original.read_bytes()


def test_a_file_that_is_read_in_place_is_checked_too(made: Path, tmp_path: Path) -> None:
    shutil.copytree(made / "pack", tmp_path / "pack")
    pack = read_pack(tmp_path / "pack", PopulationManifest)
    entry = blocks(pack)[0].judged.files["evidence.safetensors"]
    content = bytearray(pack.file(entry).read_bytes())
    content[-1] ^= 1
    (pack.folder / entry.file).write_bytes(content)
    with pytest.raises(UserError, match="is damaged"):
        pack.file(entry)
    with pytest.raises(UserError, match="names a file outside"):
        pack.file(PackedFile("../pack.json", entry.sha256))


def test_a_pack_for_another_grid_is_refused(made: Path, run: Run) -> None:
    words = ("run", "-s", "blocks.toml", "--set", "grid.width=[8,32]", "-m", "params", "--pack", "pack")
    done = run(*words, cwd=made)
    assert done.returncode == 2
    assert "is evidence for suite 'tiny-blocks' with other settings" in done.stderr


# -- the pack that ships -----------------------------------------------------------------------------


def test_the_shipped_pack_is_that_of_the_suite_and_whole() -> None:
    suite = load_suite("nin-fashion")
    assert isinstance(suite, PopulationSuite)
    pack = find_pack(suite)
    assert pack is not None, "nin-fashion' settings are not those that its pack was built with"
    plan = plan_population(suite, pack)
    assert len(plan.networks) == 1280
    assert sum(len(block.subjects) for block in blocks(pack)) == 1280
    for block in blocks(pack):
        for part in (block.trained, block.judged):
            pack.check(part.files)  # raises if its bytes are not those of the manifest
    # Initial weights depend on shape and seed alone: nine shapes, ten seeds.
    rows = {name: made_of.rows for name, made_of in pack.manifest.shared.items()}
    assert len(rows) == len(blocks(pack))
    assert all(sorted(set(places)) == list(range(10)) for places in rows.values())
    assert len({made_of.file for made_of in pack.manifest.shared.values()}) == 9


def blocks(pack: Pack) -> list[PackedBlock]:
    return pack.read_as(PopulationManifest).blocks


def stored_answers(pack: Pack, block: PackedBlock) -> np.ndarray:
    """(networks, held-out images) right or wrong."""
    stored = load_numpy(pack.file(block.judged.files["evidence.safetensors"]))
    return np.unpackbits(stored["right_bits"], axis=1, count=10_000).astype(bool)


def serves(pack: Pack, suite: Suite) -> bool:
    return kind_of(suite).serves(pack, suite)


def test_a_changed_suite_or_a_quick_one_is_not_served() -> None:
    pack = read_pack(PACKS / "nin-fashion", PopulationManifest)
    path = load_suite("nin-fashion").path
    assert not serves(pack, read_suite(path, changes={"train.max_epochs": 300}))
    assert not serves(pack, load_suite("nin-fashion", quick=True))
    assert not serves(pack, load_suite("mini"))
    assert not serves(read_pack(PACKS / "mini"), load_suite("nin-fashion"))


def test_the_evidence_is_what_its_networks_do() -> None:
    """Gaps from the stored right and wrong, and one stack evaluated anew by plain torch."""
    import torch
    from safetensors.torch import load

    from genbench.data.fashion14 import DATASET
    from genbench.packs.compressed import content
    from genbench.plugin.offers import DataRequest
    from genbench.population.networks import Shape, make_network

    pack = read_pack(PACKS / "nin-fashion", PopulationManifest)
    evidence = shipped_evidence("nin-fashion")
    assert isinstance(evidence, PopulationEvidence)
    for block in blocks(pack):
        for label, right in zip(block.subjects, stored_answers(pack, block), strict=True):
            row = evidence.rows[label]
            assert row["gap"] == pytest.approx(row["train_accuracy"] - right.mean(), abs=1e-12)
            assert row["test_size"] == len(right) == 10_000
    data = DATASET.load(DataRequest())
    images, labels = data.heldout.batch(range(len(data.heldout))).float() / 255, data.heldout.labels
    block = blocks(pack)[-1]
    result = block.trained.result
    states = load(content(PACKS / "nin-fashion" / f"{block.trained.files['final.safetensors'].file}.xz"))
    stored = torch.from_numpy(stored_answers(pack, block))
    for place in range(len(block.subjects)):
        network = make_network(Shape(**result["shape"]), seed=0)
        network.load_state_dict({name: value[place] for name, value in states.items()})
        with torch.no_grad():
            logits = network.eval()((images - result["mean"]) / result["std"])
        agree = (logits.argmax(dim=1) == labels) == stored[place]
        assert agree.double().mean() > 0.999  # a tie of two logits may fall the other way


def test_the_population_tells_measures_apart() -> None:
    """Enough environments of every hyperparameter are sure, and gaps differ by more than chance."""
    evidence = shipped_evidence("nin-fashion")
    assert isinstance(evidence, PopulationEvidence)
    rows = list(evidence.rows.values())
    converged = [row for row in rows if row["converged"]]
    assert len(converged) >= 0.85 * len(rows)
    gaps = np.array([row["gap"] for row in converged])
    assert np.ptp(gaps) > 0.3
    labels = evidence.networks
    values = np.random.default_rng(0).normal(size=len(labels))
    outcomes = {
        label: Outcome(Status.OK, result={"value": value})
        for label, value in zip(labels, values, strict=True)
    }
    noise = MeasureResult(MeasureInfo("noise", "Random numbers."), Source("file", "noise.py"), outcomes)
    scores = robust_sign_error(evidence.network_table([noise]), resamples=0)
    kept = scores[scores["statistic"] == "mean"].set_index("part")["count"]
    assert kept["all"] >= 150
    assert all(kept[name] >= 10 for name in evidence.suite.varied if name != "seed")
