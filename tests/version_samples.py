"""Small deterministic samples of everything that has a version, as hashes; run by tests/versions.py.

Steps and readings are sampled through the command line and the store, as a user gets them: suites that ship
with genbench, cut down to a few networks and images. Degradations, data sets and backbones are called through
the contract of their hooks; published data sets, and one backbone of every published family, are read from
files in their own formats with made-up content.

A sample is named by the unit it is of and by where it was taken. Beside its value it says which other units
had a part in it, since a child's result may change with the version of any of its parents.

This file uses no more of genbench than commands, stores and hooks, so that it can sample another revision.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

__all__ = ["SampleDocument", "machine", "unit_name"]

SampleDocument = dict[str, dict[str, dict[str, Any]]]
"""Unit to place to {"value": hash, "made by": other units}."""

_KINDS = {"datasets": "data set", "backbones": "backbone", "degradations": "degradation"}
_TINY_STACK = (
    "grid.width=[4]", "grid.learning_rate=[0.03]", "grid.seed=[0]", "train.max_epochs=2",
    "train.batch_size=16",
)  # fmt: skip
_TINY_DOMAINS = (*_TINY_STACK, "data.classes=3", "data.train_size=48", "train.depth=2")
_RUNS: dict[str, tuple[str, ...]] = {
    # Every built-in measure, all corruptions.
    "nin-digits": (
        "--suite=nin-digits", "--from-scratch", "--all",
        *_TINY_STACK, "grid.train_size=[48]", "grid.depth=[2]", "data.training_pool=64",
        "data.severities=[2, 4]", "data.shifted_images=20",
    ),
    # Batch norm, residual connections, attention: what the measures fold, cut and square in larger networks.
    "mini-quick": (
        "--suite=mini-quick",
        "--backbones=mini-clip:short2,mini-clip:short3,mini-efficientnet:b0,mini-efficientnet:b1",
        "--measure=path_norm", "--measure=pacbayes_orig", "--measure=fro_over_spec", "--measure=gi_inter_l1",
        "data.seen=4", "data.unseen=4", "data.train_per_class=6", "data.heldout_per_class=6",
        "testbed.zero_shot=[0, 4]", "testbed.ssim=[0.8, 1.0]", "adapt.epochs=1",
    ),
    # Adaptations: shares of the images, wrong labels, shifts, an end at a given loss.
    "mini": (
        "--suite=mini", "--backbones=mini-efficientnet:b0,mini-efficientnet:b1", "--measure=params",
        "data.seen=4", "data.unseen=4", "data.train_per_class=12", "data.heldout_per_class=6",
        "testbed.zero_shot=[0, 4]", "testbed.ssim=[0.8, 1.0]", "testbed.degradation=gaussian",
        'testbed.adaptations=["a1", "a3"]', "adapt.batch_size=16", "adapt.stop_loss=0.5",
        "adapt.label_noise=0.1",
    ),
    "domains": (
        "--suite=domains", "--measure=params", *_TINY_DOMAINS, 'grid.heldout_domain=["sans"]',
        "train.architecture=resnet", "train.optimizer=rmsprop", "train.schedule=cosine", "train.dropout=0.2",
        "data.label_noise=0.1",
    ),
    "domains of a folder": (
        "--suite=domains", "--measure=params", "--dataset=folder:domains", *_TINY_DOMAINS,
        'grid.heldout_domain=["art"]', "data.train_size=20", "train.architecture=fcn", "train.optimizer=adam",
    ),
    "digits": (
        "--suite=digits", "--measure=params", *_TINY_STACK, "grid.depth=[1]", "data.train_size=32",
    ),
    "collection": ("--suite=collection/own_data.toml", "--measure=params"),
    "collection on a data set": ("--suite=collection/data_set.toml", "--measure=params"),
    # Networks on their way, going on from one, and under Exp++.
    "audit": ("audit", "--quick", "--stressor=hysteresis,exp", "--measure=params", "--no-card"),
    "pack of mini": (
        "--suite=mini", "--measure=params", "--backbones=mini-efficientnet:b0,mini-efficientnet:b1",
    ),
}  # fmt: skip
"""Arguments of `genbench run`; what has no dashes is a setting of the suite, the last of its name wins. Or of
`genbench audit`, which has no suite."""


def unit_name(kind: str, name: str) -> str:
    """What an entry of the registry is called as a unit: "data set glyphs"."""
    return f"{_KINDS.get(kind, kind.removesuffix('s'))} {name}"


def machine() -> dict[str, str]:
    """What bits may depend on besides the code: other processors round and add up in another order."""
    import torch

    packages = ("torch", "numpy", "scipy", "scikit-learn", "gekko", "timm", "torchvision")
    return {
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "python": ".".join(platform.python_version_tuple()[:2]),
        **{name: importlib.metadata.version(name) for name in packages},
    }


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _digest(*values: object) -> str:
    import torch

    digest = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            digest.update(f"{value.dtype} {tuple(value.shape)}".encode())
            digest.update(value.detach().contiguous().numpy().tobytes())
        else:
            digest.update(json.dumps(value, sort_keys=True).encode())
        digest.update(b"\0")
    return digest.hexdigest()[:32]


# -- steps, readings and measures: cells of runs ----------------------------------------------------------


def _run(where: str, folder: Path) -> None:
    """Run one of `_RUNS` in `folder`; its store is `folder`/store."""
    verb, given = ("audit", _RUNS[where][1:]) if _RUNS[where][0] == "audit" else ("run", _RUNS[where])
    settings = {text.partition("=")[0]: text for text in given if not text.startswith("-")}
    options = [text for text in given if text.startswith("-")]
    changes = [part for text in settings.values() for part in ("--set", text)]
    command = [sys.executable, "-m", "genbench", verb, "--store=store", "--jobs=1", *options, *changes]
    if importlib.util.find_spec("genbench.engine.compute"):  # a revision that can have several
        command.append("--threads=1")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("GENBENCH_")}
    folder.mkdir()
    _write_domains(folder / "domains")
    _write_collection(folder / "collection")
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if not (folder / "store" / "cells").is_dir() or done.returncode not in (0, 1):
        raise SystemExit(f"the samples of {where!r} failed: {' '.join(command)}\n{done.stderr[-2000:]}")


def _write_domains(root: Path) -> None:
    """Pictures of two domains as files whose bytes, names and times are always the same."""
    import numpy as np

    numbers = np.random.RandomState(0)
    for domain in ("art", "photo"):
        for kind in ("cat", "dog", "owl"):
            (root / domain / kind).mkdir(parents=True)
            for i in range(10):
                pixels = numbers.randint(0, 256, (40, 50, 3)).astype(np.uint8)
                path = root / domain / kind / f"{i}.ppm"
                path.write_bytes(b"P6 50 40 255\n" + pixels.tobytes())
                os.utime(path, (10**9, 10**9))  # times of a user's files are part of a key


_COLLECTION = """
name = "sample"
summary = "two networks with made-up weights"
kind = "collection"
[networks]
builder = "nets.py:build"
weights = "weights/{network}.SUFFIX"
table = "networks.csv"
strip = "module."
[data]
"""
_COLLECTIONS = {
    "own_data.toml": ("safetensors", 'function = "nets.py:data"'),
    "data_set.toml": ("pt", 'dataset = "digits"\ntrain_size = 20\nimage_side = 2\nmean = 0.5\nstd = [0.25]'),
}
_NETWORKS = """
import torch
from torch.nn import Flatten, Linear, ReLU, Sequential
def build(width):
    return Sequential(Flatten(), Linear(4, width), ReLU(), Linear(width, 10))
def data():
    return torch.arange(80.0).reshape(20, 1, 2, 2) / 80, torch.arange(20) % 10
"""


def _write_collection(root: Path) -> None:
    """Two networks of a user's own, their weights in files of two formats, and two suites of them."""
    import numpy as np
    import torch
    from safetensors.torch import save_file

    numbers = np.random.RandomState(0)
    (root / "weights").mkdir(parents=True)
    for name, (suffix, data) in _COLLECTIONS.items():
        (root / name).write_text(_COLLECTION.replace("SUFFIX", suffix) + data)
    (root / "nets.py").write_text(_NETWORKS)
    (root / "networks.csv").write_text("network,hp.width,gap\na,3,0.1\nb,5,0.2\n")
    for name, width in (("a", 3), ("b", 5)):
        shapes = {"1.weight": (width, 4), "1.bias": (width,), "3.weight": (10, width), "3.bias": (10,)}
        values = {f"module.{key}": numbers.standard_normal(shape) for key, shape in shapes.items()}
        tensors = {key: torch.tensor(value, dtype=torch.float32) for key, value in values.items()}
        save_file(tensors, root / "weights" / f"{name}.safetensors")
        torch.save({"state_dict": tensors}, root / "weights" / f"{name}.pt")


def _cells(store: Path) -> dict[str, dict[str, Any]]:
    """Key to manifest; its first line is a checksum."""
    texts = (path.read_text(encoding="utf-8") for path in (store / "cells").rglob("manifest.json"))
    manifests = [json.loads(text.partition("\n")[2]) for text in texts]
    return {manifest["key"]: manifest for manifest in manifests}


def _step_unit(kind: str) -> str:
    return "reading" if kind == "reading" else f"step {kind}"


def _makers(cell: Mapping[str, Any], cells: Mapping[str, Mapping[str, Any]], named: set[str]) -> set[str]:
    """All units that had a part in a cell: its step, what its inputs name, and those of its parents."""
    found = {"keys", _step_unit(cell["kind"])}
    found |= _named_units(cell["inputs"]) & named
    for parent in {**cell["parents"], **cell.get("reads", {})}.values():
        found |= _makers(cells[parent], cells, named) if parent in cells else set()
    return found


def _named_units(inputs: Mapping[str, Any]) -> set[str]:
    """What inputs such as {"datasets": ["glyphs"]} or {"backbone": "timm:resnet18"} name."""
    found = set()
    for kind in ("measures", *_KINDS):
        for key in (kind, kind.removesuffix("s")):
            value = inputs.get(key)
            for text in [value] if isinstance(value, str) else value or ():
                family, colon, _ = str(text).partition(":")
                found |= {unit_name(kind, str(text)), unit_name(kind, family + colon)}
    return found


def _run_samples(where: str, store: Path, named: set[str]) -> Iterator[tuple[str, str, str, set[str]]]:
    """One sample per step, of all its cells; one per measure, of all its readings."""
    cells = _cells(store)
    groups: dict[str, list[dict[str, Any]]] = {}
    for cell in cells.values():
        if cell["kind"] == "reading":
            unit = unit_name("measures", cell["inputs"]["measure"])
            if unit not in named:
                continue  # of an installed plugin
            groups.setdefault(unit, []).append(cell)
        groups.setdefault(_step_unit(cell["kind"]), []).append(cell)
    for unit, members in groups.items():
        contents = [
            [cell["about"].get("subject"), *(cell[part] for part in ("status", "reason", "result", "files"))]
            for cell in members
        ]
        contents.sort(key=lambda content: json.dumps(content, sort_keys=True))
        makers = set().union(*(_makers(cell, cells, named) for cell in members))
        yield unit, where, _digest(contents), {*makers, _suite_mark(where)}


def _suite_mark(where: str) -> str:
    """What was asked for: with other settings of a suite, or another pack, a sample is another one."""
    from genbench.plugin.registry import load_registry

    if _RUNS[where][0] == "audit":
        return f"audit {_digest([_RUNS[where]])[:8]}"
    (name,) = [text.removeprefix("--suite=") for text in _RUNS[where] if text.startswith("--suite=")]
    if name not in load_registry().suites:
        # One of the files that are written for the samples: what is in them is in this very module.
        return f"suite {name} {_digest([_RUNS[where], Path(__file__).read_text()])[:8]}"
    path = load_registry().suites[name].item.path
    pack = path.parent / "packs" / name / "pack.json"
    content = [_RUNS[where], tomllib.loads(path.read_text()), pack.read_text() if pack.exists() else ""]
    return f"suite {name} {_digest(content)[:8]}"


def _carried_versions(stores: Iterable[Path]) -> dict[str, list[str]]:
    """Step to the versions that stand in the keys of its cells."""
    found: dict[str, set[str]] = {}
    for store in stores:
        for cell in _cells(store).values():
            name = "subject_version" if cell["kind"] == "reading" else "step"
            found.setdefault(_step_unit(cell["kind"]), set()).add(str(cell["inputs"].get(name, "none")))
    return {unit: sorted(versions) for unit, versions in found.items()}


# -- what hooks offer -------------------------------------------------------------------------------------


def _hook_samples(folder: Path) -> Iterator[tuple[str, str, str, set[str]]]:
    import torch

    from genbench.keys import cell_key, derive_seed
    from genbench.plugin.registry import load_registry

    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("warn")
    registry = load_registry()
    key = cell_key("sample", {"a": [1, 0.5, "b"]})
    yield "keys", "a cell and a seed", _digest(key, derive_seed("sample", 1)), set()
    for name, entry in registry.degradations.items():
        if entry.source.kind == "built-in":
            yield unit_name("degradations", name), "smooth images", _degraded(entry.item), set()
    for name, where, value in _datasets(registry.datasets, folder):
        yield unit_name("datasets", name), where, value, set()
    for name, where, value in _backbones(registry.backbones, folder):
        yield unit_name("backbones", name), where, value, set()


def _degraded(degradation: Any) -> str:
    import torch

    from genbench.plugin.offers import DegradationTask

    generator = torch.Generator().manual_seed(0)
    coarse = torch.rand(20, 3, 4, 4, generator=generator)
    # Larger than a crop: an autoencoder sees as many pixels whatever the size, and small steps cost more.
    images = torch.nn.functional.interpolate(coarse, size=(72, 72), mode="bilinear")
    task = DegradationTask(images.mul(255).to(torch.uint8), torch.arange(20) % 4, seed=3)
    rows = torch.arange(20)
    turned = [dial.turn(images.clone(), s, rows) for dial in degradation.fit(task) for s in (0.3, 1.0)]
    return _digest(*turned)


def _datasets(entries: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str, str]]:
    from test_real_data import WRITERS, TestImageNet, write_tree

    from genbench.plugin.offers import DataRequest

    cases = []
    for case, (name, write, _) in WRITERS.items():
        write(folder / case)
        cases.append((name, f"invented {case}", DataRequest(root=folder / case, seed=3)))
    write_tree(folder / "tree", ("train", "test"), ["ant", "bee"])
    cases.append(("folder:", "a folder", DataRequest(argument=str(folder / "tree"), seed=3)))
    classes = TestImageNet()
    classes.write(folder / "imagenet", classes.wnids(1000))
    cases.append(("imagenet100", "invented imagenet", DataRequest(root=folder, seed=3)))
    known = {name for name, _, _ in cases}
    cases += [(name, "embedded", DataRequest(seed=3)) for name in entries if name not in known]
    for name, where, request in cases:
        if entries[name].source.kind == "built-in" and entries[name].item.available(request).ready:
            yield name, where, _digest(*_content(entries[name].item.load(request)))


def _content(data: Any) -> Iterator[object]:
    yield [data.class_names, data.domain_names, data.content_hash]
    for split in (data.train, data.heldout):
        yield split.labels
        if getattr(split, "domains", None) is not None:
            yield split.domains
        step = max(1, len(split) // 200)
        yield split.batch(list(range(0, len(split), step))[:200])


def _backbones(entries: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, str, str]]:
    import torch
    from test_real_backbones import raw_images

    from genbench.plugin.offers import BackboneRequest

    weights = folder / "weights"
    weights.mkdir()
    invented = _write_weights(weights)
    for name, entry in entries.items():
        home = weights if name in invented else None
        request = BackboneRequest(argument=invented.get(name, ""), weights=home)
        if entry.source.kind != "built-in" or not entry.item.available(request).ready:
            continue
        loaded = entry.item.load(request)
        with torch.no_grad():
            found = [loaded.module(loaded.preprocess(raw_images(2)))]
            if loaded.encode_text is not None:
                found.append(loaded.encode_text([loaded.prompt.format(name="letter")]))
        about = [loaded.name, loaded.feature_width, loaded.weight_count, loaded.prompt]
        yield name, "invented weights" if name in invented else "embedded", _digest(about, *found)


def _write_weights(folder: Path) -> dict[str, str]:
    """Made-up weights of one network of every published family; backbone to its argument."""
    import torch
    from safetensors.torch import save_file
    from test_real_backbones import on_meta, random_state

    from genbench.zoo.weights import import_library

    small = "mobilenetv3_small_050"
    save_file(random_state(on_meta("clip:RN50"), torch.float16), folder / "RN50.safetensors")
    save_file(random_state(on_meta("efficientnet:b0"), torch.float32), folder / "efficientnet-b0.safetensors")
    mobile = import_library("timm").create_model(small)
    save_file(random_state(mobile, torch.float32), folder / f"{small}.safetensors")
    return {"clip:RN50": "", "efficientnet:b0": "", "timm:": small}


# -- all of them ------------------------------------------------------------------------------------------


def _all_samples(folder: Path) -> dict[str, Any]:
    from genbench.plugin.registry import load_registry

    named = {
        unit_name(kind, name)
        for kind in ("measures", *_KINDS)
        for name, entry in getattr(load_registry(), kind).items()
        if entry.source.kind == "built-in"
    }
    places = {where: folder / where.replace(" ", "-") for where in _RUNS}
    hooks = folder / "hooks"
    hooks.mkdir()
    samples: SampleDocument = {}
    # Two at a time with one worker each: a run is alone with one core while it starts and while it scores.
    with ThreadPoolExecutor(2) as pool:
        runs = {where: pool.submit(_run, where, place) for where, place in places.items()}
        for unit, where, value, makers in _hook_samples(hooks):
            samples.setdefault(unit, {})[where] = {"value": value, "made by": sorted(makers - {unit})}
        for run in runs.values():
            run.result()
    for where, place in places.items():
        for unit, _, value, makers in _run_samples(where, place / "store", named):
            samples.setdefault(unit, {})[where] = {"value": value, "made by": sorted(makers - {unit})}
    stores = [place / "store" for place in places.values()]
    return {"samples": samples, "carried": _carried_versions(stores)}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="genbench-samples-") as scratch:
        found = _all_samples(Path(scratch))
    Path(sys.argv[1]).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n", encoding="utf-8")
