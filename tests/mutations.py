"""Mutated inputs of every file format that genbench reads: each is read, or refused in one sentence.

    python tests/mutations.py [COUNT] [SEED]

makes COUNT (2,000) of them and prints what ended in anything but a `UserError`. Readers run in forked
children, because a library in C may crash. `tests/test_mutations.py` makes a sample.
"""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parent.parent
PACKS = ROOT / "genbench" / "suites" / "packs"
RECORDS = ROOT / "leaderboards" / "records"
AUDITS = ROOT / "leaderboards" / "audits"
TRUST = ROOT / "leaderboards" / "trust"
REFERENCES = ROOT / "genbench" / "records" / "references"

Read = Callable[[Path], object]


@dataclass(frozen=True)
class Format:
    """A sort of file: a sound one, and what reads it."""

    name: str
    make: Callable[[Path], Path]
    """Writes a sound one into a folder; the file that is mutated."""
    read: Read
    """Given that file."""


def formats() -> list[Format]:
    """Every format, with the function through which commands read it."""
    return [
        Format("cube.nc", _cube(".nc"), _read_cube),
        Format("cube.csv", _cube(".csv"), _read_cube),
        Format("pack", _pack, _read_pack),
        Format("packed network", _packed_network, _read_packed_network),
        Format("compressed network", _compressed_network, _read_compressed_network),
        Format("record", _record, _read_record),
        Format("references", _references, _read_references),
        Format("trust", _trust, _read_trust),
        Format("challenge", _challenge, _read_challenge),
        Format("audit", _audit, _read_audit),
        Format("table.csv", _table(".csv"), _read_table),
        Format("table.parquet", _table(".parquet"), _read_table),
        Format("readings.csv", _readings, _read_readings),
        Format("suite", _suite, _read_suite),
        Format("weights.safetensors", _weights(".safetensors"), _read_weights),
        Format("weights.pt", _weights(".pt"), _read_weights),
        Format("cifar", _cifar, _read_cifar),
    ]


# -- sound files, and their readers ------------------------------------------------------------------------


def _cube(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        from genbench.testbed.cube import STATISTICS, make_cube, write_cube

        draw = np.random.default_rng(0)
        values = {name: draw.uniform(0.1, 0.9, (2, 3, 3)) for name in STATISTICS}
        axes = {"zero_shot": np.array([0.0, 0.5]), "ssim": np.array([0.6, 0.8, 1.0])}
        cube = make_cube(values, **axes, weights=np.array([1e6, 2e6, 5e6]))
        write_cube(cube, folder / f"cube{suffix}")
        return folder / f"cube{suffix}"

    return make


def _read_cube(path: Path) -> object:
    from genbench.testbed.cube import marginals, read_cube, slices

    cube = read_cube(path)
    return marginals(cube), slices(cube)


def _pack(folder: Path) -> Path:
    target = folder / "mini"
    target.mkdir()
    for file in (PACKS / "mini").iterdir():
        (target / file.name).symlink_to(file)
    (target / "pack.json").unlink()
    return Path(shutil.copy(PACKS / "mini" / "pack.json", target))


def _packed_network(folder: Path) -> Path:
    manifest = _pack(folder)
    file = min((PACKS / "mini").glob("*.safetensors"), key=lambda one: one.stat().st_size)
    (manifest.parent / file.name).unlink()
    return Path(shutil.copy(file, manifest.parent))


def _compressed_network(folder: Path) -> Path:
    from genbench.packs.compressed import compress

    return compress(Path(shutil.copy(_some_trace(), folder / "weights")))


def _some_trace() -> Path:
    return min((PACKS / "mini").glob("*.trace.safetensors"))


def _read_compressed_network(path: Path) -> object:
    """As a manifest lists it that knows the mutated file, so that it comes as far as being uncompressed."""
    from genbench.keys import file_hash
    from genbench.packs.manifest import PackedFile
    from genbench.packs.pack import copy_files

    out = path.parent / "out"
    out.mkdir(exist_ok=True)
    stored = {"weights": PackedFile(path.name, file_hash(path))}
    return copy_files(
        path.parent, {"final": PackedFile("weights", file_hash(_some_trace()))}, out, compressed=stored
    )


def _read_pack(path: Path) -> object:
    from genbench.suites.evidence_packs import pack_in
    from genbench.suites.kind import kind_of
    from genbench.suites.suite import load_suite

    suite = load_suite("mini")
    pack = pack_in(path.parent, suite)
    kind = kind_of(suite)
    return kind.plan(suite, pack), kind.packed_evidence(suite, pack)


def _read_packed_network(path: Path) -> object:
    from genbench.packs.pack import read_pack
    from genbench.testbed.manifest import TestbedManifest

    pack = read_pack(path.parent, TestbedManifest)
    files = [one.files for one in pack.read_as(TestbedManifest).networks.values()]
    for group in files:
        pack.check({name: one for name, one in group.items() if one.file == path.name})
    return files


def _record(folder: Path) -> Path:
    (folder / "mini").mkdir()
    return Path(shutil.copy(RECORDS / "mini" / "path_norm.json", folder / "mini"))


def _read_record(path: Path) -> object:
    from genbench.leaderboard.trust import trust_of
    from genbench.records.validate import read_record, record_files

    record_files(path.parent.parent)
    return trust_of(read_record(path), {}, {})


def _references(folder: Path) -> Path:
    return Path(shutil.copy(REFERENCES / "mini.json", folder))


def _read_references(path: Path) -> object:
    from unittest import mock

    from genbench.records import references
    from genbench.runs.plan import make_plan
    from genbench.suites.evidence_packs import find_pack
    from genbench.suites.suite import load_suite

    suite = load_suite("mini")
    with mock.patch.object(references, "REFERENCES", path.parent):
        return references.find_references(make_plan(suite, [], pack=find_pack(suite)))


def _trust(folder: Path) -> Path:
    return Path(shutil.copy(TRUST / "_conformance.json", folder))


def _read_trust(path: Path) -> object:
    from genbench.leaderboard.trust import read_checked

    return read_checked(path.parent)


def _challenge(folder: Path) -> Path:
    path = folder / "_challenge-mini.json"
    shares = dict.fromkeys(("published", "fresh", "allowed", "p"), 0.25)
    counts = dict.fromkeys(("seed", "networks", "twins", "canaries"), 12)
    found = {**shares, **counts, "suspect": False, "leaks": ["decoy pack"], "sandbox": "landlock+seccomp"}
    path.write_text(json.dumps({"path_norm": {"of": "0" * 64, "found": found}}, indent=1))
    return path


def _read_challenge(path: Path) -> object:
    from genbench.leaderboard.trust import read_challenged

    return read_challenged(path.parent, "mini")


def _audit(folder: Path) -> Path:
    return Path(shutil.copy(AUDITS / "params.json", folder))


def _read_audit(path: Path) -> object:
    from genbench.audit.records import audit_evidence, read_audit

    return read_audit(path, audit_evidence())


def _table(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import pandas as pd

        draw = np.random.default_rng(0)
        rows = [
            {"hp.width": width, "hp.lr": rate, "seed": seed, "gap": draw.uniform(0, 0.5), "test_size": 500,
             "complexity.first": draw.normal(), "complexity.second": draw.normal()}
            for width in (4, 8) for rate in (0.1, 0.01) for seed in (0, 1, 2)
        ]  # fmt: skip
        frame, path = pd.DataFrame(rows), folder / f"table{suffix}"
        frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
        return path

    return make


def _read_table(path: Path) -> object:
    from genbench.scoring.table_files import read_table

    return read_table(path)


def _readings(folder: Path) -> Path:
    path = folder / "readings.csv"
    path.write_text("network,mine,other\n" + "".join(f"net{n},{n / 7},{n * n}\n" for n in range(9)))
    return path


def _read_readings(path: Path) -> object:
    from genbench.scoring.readings_file import read_readings

    return read_readings(path)


def _suite(folder: Path) -> Path:
    return Path(shutil.copy(ROOT / "genbench" / "suites" / "nin-digits.toml", folder))


def _read_suite(path: Path) -> object:
    from genbench.suites import read_suite

    return read_suite(path)


def _weights(suffix: str) -> Callable[[Path], Path]:
    def make(folder: Path) -> Path:
        import torch
        from safetensors.torch import save_file

        state = {"a.weight": torch.arange(12.0).reshape(3, 4), "a.bias": torch.zeros(3)}
        path = folder / f"weights{suffix}"
        save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
        return path

    return make


def _read_weights(path: Path) -> object:
    from genbench.zoo.weights import read_state

    return read_state(path)


def _cifar(folder: Path) -> Path:
    target = folder / "cifar-10-batches-py"
    target.mkdir()
    images, labels = np.arange(10 * 3072).astype(np.uint8).reshape(10, 3072), list(range(10))
    for name in (*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"):
        (target / name).write_bytes(pickle.dumps({"data": images, "labels": labels}, protocol=2))
    meta = {"label_names": [f"class {n}" for n in range(10)]}
    (target / "batches.meta").write_bytes(pickle.dumps(meta, protocol=2))
    return target / "data_batch_3"


def _read_cifar(path: Path) -> object:
    from genbench.data.torchvision_sets import DATASETS
    from genbench.plugin.offers import DataRequest

    (found,) = [one for one in DATASETS if one.name == "cifar10"]
    return found.load(DataRequest(root=path.parent.parent))


# -- mutations ---------------------------------------------------------------------------------------------

_WORDS: list[Any] = [
    None, True, -1, 0, 2**70, 1e308, -0.0, "", "x" * 300, "../../etc/passwd", "\x1b[2J", [], {}, [None],
    [[[]]], {"a": {}}, "nan", 10**15,
]  # fmt: skip


def mutated(data: bytes, draw: random.Random) -> bytes:
    """`data` with one or two things wrong."""
    for _ in range(draw.choice([1, 1, 2])):
        data = draw.choice([_cut, _flip, _drop, _repeat, _insert, _blank, _json, _json])(data, draw)
    return data


def _cut(data: bytes, draw: random.Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flip(data: bytes, draw: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.choice([1, 4, 30])):
        if changed:
            changed[draw.randrange(len(changed))] = draw.randrange(256)
    return bytes(changed)


def _part(data: bytes, draw: random.Random) -> tuple[int, int]:
    start = draw.randrange(len(data) + 1)
    return start, min(len(data), start + draw.choice([1, 8, 200]))


def _drop(data: bytes, draw: random.Random) -> bytes:
    start, end = _part(data, draw)
    return data[:start] + data[end:]


def _repeat(data: bytes, draw: random.Random) -> bytes:
    start, end = _part(data, draw)
    return data[:end] + data[start:end] * draw.choice([1, 3]) + data[end:]


def _insert(data: bytes, draw: random.Random) -> bytes:
    start, _ = _part(data, draw)
    return data[:start] + draw.randbytes(draw.choice([1, 16])) + data[start:]


def _blank(data: bytes, draw: random.Random) -> bytes:
    start, end = _part(data, draw)
    return data[:start] + bytes(end - start) + data[end:]


def _json(data: bytes, draw: random.Random) -> bytes:
    """Something sound in form and wrong in meaning; of other formats, another number."""
    try:
        document = json.loads(data)
    except ValueError:
        digits = [place for place, byte in enumerate(data) if 48 <= byte < 58]
        if not digits:
            return _flip(data, draw)
        place = draw.choice(digits)
        return data[:place] + draw.choice([b"-", b"9" * 30, b"nan", b"1e999", b""]) + data[place + 1 :]
    spot: Any = document
    for _ in range(draw.randrange(1, 7)):
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        if not keys:
            break
        key = draw.choice(keys)
        if not isinstance(spot[key], (dict, list)) or draw.random() < 0.2:
            if draw.random() < 0.25 and isinstance(spot, dict):
                del spot[key]
            else:
                spot[key] = draw.choice(_WORDS)
            break
        spot = spot[key]
    return json.dumps(document).encode()


# -- running -----------------------------------------------------------------------------------------------


def outcome(read: Read, path: Path) -> str:
    """ "read", "refused", or what went wrong."""
    from genbench.errors import UserError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(path)
    except UserError as refusal:
        text = str(refusal)
        return "refused" if text and "\n" not in text else f"not one sentence: {text[:100]!r}"
    except BaseException as problem:
        last = traceback.extract_tb(problem.__traceback__)[-1]
        where = f"{Path(last.filename).name}:{last.lineno}"
        return f"{type(problem).__name__}: {' '.join(str(problem).split())[:150]} ({where})"
    return "read"


def try_format(format_: Format, count: int, seed: int) -> Counter[str]:
    """How reading ended, counted; in a child, with the number of a signal if that ends it."""
    found: Counter[str] = Counter()
    done = 0
    while done < count:
        ended, died = _child(format_, done, count, seed)
        found.update(ended)
        done += len(ended)
        if died:
            found[died] += 1
            done += 1
    return found


def _child(format_: Format, start: int, count: int, seed: int) -> tuple[list[str], str]:
    read_end, write_end = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(read_end)
        try:
            with tempfile.TemporaryDirectory() as name, open(write_end, "w", buffering=1) as said:
                path = format_.make(Path(name))
                sound = path.read_bytes()
                if start == 0:
                    first = outcome(format_.read, path)
                    assert first == "read", f"a sound {format_.name}: {first}"
                for number in range(start, count):
                    path.write_bytes(mutated(sound, random.Random(f"{seed} {format_.name} {number}")))
                    said.write(json.dumps(outcome(format_.read, path)) + "\n")
            os._exit(0)
        except BaseException as problem:
            os.write(2, f"{format_.name}: {problem!r}\n".encode())
        finally:
            os._exit(1)
    os.close(write_end)
    with open(read_end) as answers:
        ended = [json.loads(line) for line in answers]
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return ended, "" if code == 0 else f"its process ended with {code}"


def main(count: int = 2000, seed: int = 0) -> int:
    """Try all formats; the number of mutated inputs that ended badly."""
    every, bad = formats(), 0
    for format_ in every:
        found = try_format(format_, -(-count // len(every)), seed)
        wrong = {what: n for what, n in found.items() if what not in ("read", "refused")}
        bad += sum(wrong.values())
        print(f"{format_.name}: {found['read']} read, {found['refused']} refused, {sum(wrong.values())} bad")
        for what, n in wrong.items():
            print(f"    {n} × {what}")
    print(f"{bad} bad")
    return bad


if __name__ == "__main__":
    sys.exit(1 if main(*map(int, sys.argv[1:])) else 0)
