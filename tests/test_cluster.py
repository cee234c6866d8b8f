"""Cells on a Ray cluster of two nodes on this machine: the same bits as `local`, whatever is lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import TINY_SUITE, cell_files, command, environment, in_process, options, readings

from genbench.cluster.library import connect, import_ray
from genbench.cluster.node_files import NodeFiles
from genbench.cluster.parcels import FileParcel, TransferDamaged, pack_file, write_file
from genbench.errors import UserError
from genbench.keys import file_hash

ray = pytest.importorskip("ray")

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

NODE = {"object_store_memory": 128 * 2**20, "include_log_monitor": False}
"""A node without the processes of Ray that nobody here listens to."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two raylets, each with two processors and a share of memory as a machine of its own has it."""
    import_ray()
    from ray.cluster_utils import Cluster

    # Beside other tests workers would not come to their turn, and nodes not up in half a minute.
    os.environ.update(RAY_worker_niceness="0", RAY_raylet_start_wait_time_s="300")
    # Each driver would have a worker started for every processor before it asks for one, at a second each.
    os.environ.update(RAY_enable_worker_prestart="0", RAY_prestart_worker_first_driver="0")
    before = os.environ.get("TMPDIR")
    # Files of nodes where nobody's runs before left any.
    # A short path: names of Ray's sockets are long, and the kernel takes 107 bytes of them.
    nodes = os.environ["TMPDIR"] = tempfile.mkdtemp(prefix="gb")
    size = {"num_cpus": 2, **NODE}
    made = Cluster(
        initialize_head=True, head_node_args={**size, "include_dashboard": False, "no_monitor": True}
    )
    made.add_node(**size)
    made.nodes = nodes
    os.environ.pop("TMPDIR") if before is None else os.environ.update(TMPDIR=before)
    yield made
    made.shutdown()
    shutil.rmtree(nodes, ignore_errors=True)


@pytest.fixture
def joined(cluster: Any) -> Iterator[Any]:
    """The cluster, with this process in it."""
    assert connect(ray, cluster.address)
    assert "PYTHONBREAKPOINT" not in os.environ
    yield cluster
    ray.shutdown()


@pytest.fixture(scope="module")
def reference(finished_run: Path) -> Path:
    """A store that `local` filled; not to be changed."""
    return finished_run / "store"


def on_ray(cluster: Any, *more: str | Path, jobs: int = 2) -> list[str | Path]:
    return options("--executor", "ray", "--address", cluster.address, "--jobs", str(jobs), *more)


def driver(cluster: Any, folder: Path, *more: str | Path, jobs: int = 2) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*on_ray(cluster, *more, jobs=jobs)),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finished(store: Path) -> int:
    return len(list(store.glob("cells/*/*")))


def until(condition: Any, seconds: float = 400.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came"
        time.sleep(0.02)


@pytest.mark.parametrize("jobs", [1, 4])
def test_any_number_of_workers_gives_the_bits_of_local(
    joined: Any, tmp_path: Path, reference: Path, jobs: int
) -> None:
    """A population trained from scratch and read with four measures and the baselines; two workers below."""
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    done = in_process(*on_ray(joined, "--store", "far", jobs=jobs), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert cell_files(tmp_path / "far") == cell_files(reference)


SMALL_TESTBED = """
name = "small"
summary = "two backbones on six letters"
kind = "testbed"

[data]
dataset = "glyphs"
seen = 4
unseen = 2
seed = 0
augment_unseen = false
train_per_class = 10
heldout_per_class = 10

[testbed]
backbones = ["mini-clip:short2", "mini-clip:short3"]
zero_shot = [0, 2]
ssim = [0.8, 1.0]
degradation = "blur"
unseen_head = "probe"
penalty = 10.0
kappa = "conflict"
kappa_threshold = 0.3

[adapt]
method = "finetune"
epochs = 1
batch_size = 20
learning_rate = 1e-3
head_learning_rate = 3e-3
weight_decay = 0.01
stop_loss = 0.05
patience = 3
seed = 0
"""


def test_a_testbed_gives_the_bits_of_local(joined: Any, tmp_path: Path) -> None:
    """Every step of one from images to cubes, and readings, on the nodes."""
    (tmp_path / "small.toml").write_text(SMALL_TESTBED)
    chosen = ["-m", "path_norm", "-m", "params", "-m", "inverse_margin", "--suite", "small.toml", "--json"]
    near = in_process("run", *chosen, "--store", "near", cwd=tmp_path)
    assert near.returncode == 0, near.stderr
    # One worker: each imports torch twice and open_clip twice, and several are tested above and below.
    where = ("--executor", "ray", "--address", joined.address, "--jobs", "1")
    far = in_process("run", *chosen, *where, "--store", "far", cwd=tmp_path)
    assert far.returncode == 0, far.stderr
    assert readings(far.stdout) == readings(near.stdout)
    assert cell_files(tmp_path / "far") == cell_files(tmp_path / "near")
    sandboxes = {
        json.loads(file.read_text().partition("\n")[2])["cost"]["sandbox"]
        for file in (tmp_path / "far").rglob("cost.json")
    }
    assert "landlock+seccomp" in sandboxes, "readings on nodes are sealed as those here"


SLOW = """
import time
import genbench

@genbench.measure(needs={"weights"})
def unhurried(subject):
    "Counts weights, slowly."
    time.sleep(1.5)
    return float(sum(w.numel() for w in subject.weights()))
"""


def test_a_node_that_is_removed_takes_nothing_with_it(joined: Any, tmp_path: Path, reference: Path) -> None:
    """Two more nodes carry all work; one goes while it computes."""
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    (tmp_path / "unhurried.py").write_text(SLOW)
    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    doomed = joined.add_node(num_cpus=8, **NODE)
    until(lambda: {node["NodeID"] for node in ray.nodes() if node["Alive"]} > alive)
    process = driver(joined, tmp_path, "--store", "far", "-m", "./unhurried.py", jobs=6)
    until(lambda: finished(tmp_path / "far") > 6)
    joined.remove_node(doomed, allow_graceful=False)
    answer, errors = process.communicate(timeout=500)
    assert process.returncode == 0, errors
    assert "was lost" in errors
    found = readings(answer)
    assert {status for status, _, _ in found.values()} == {"ok"}
    assert sum(name == "unhurried" for name, _ in found) == 3
    far = cell_files(tmp_path / "far")
    assert {name: data for name, data in far.items() if name in cell_files(reference)} == cell_files(
        reference
    )


def test_a_killed_driver_goes_on_where_it_was(joined: Any, tmp_path: Path, reference: Path) -> None:
    """And what two workers compute before and after it are the bits of `local`."""
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    killed = driver(joined, tmp_path, "--store", "far")
    until(lambda: finished(tmp_path / "far") > 3)
    killed.kill()
    killed.wait()
    kept = cell_files(tmp_path / "far")
    assert kept.items() <= cell_files(reference).items(), "whole cells, or none"
    # Its actors end with it: their processors are free again.
    until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources().get("CPU"))
    again = in_process(*on_ray(joined, "--store", "far"), cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    assert cell_files(tmp_path / "far") == cell_files(reference)


def test_ctrl_c_stops_the_cluster_too(joined: Any, tmp_path: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_SUITE)
    (tmp_path / "unhurried.py").write_text(SLOW.replace("1.5", "300"))
    slow = ("-m", "./unhurried.py", "--timeout", "400")
    process = driver(joined, tmp_path, "--store", "far", *slow, jobs=1)
    until(lambda: finished(tmp_path / "far") > 3)
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 130, errors
    assert "run the same command again to go on" in errors
    until(lambda: ray.available_resources().get("CPU") == ray.cluster_resources().get("CPU"))


HOSTILE = {
    "exits": ("import os\n    os._exit(0)", "crashed"),
    "kills": ("import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n    return 1.0", "failed"),
    "allocates": (
        "import torch\n    kept = []\n    while True: kept.append(torch.ones(2_000_000))",
        "out_of_memory",
    ),
    "looks": ("import os\n    return float(len(os.listdir(NODES)))", "failed"),
    "hangs": ("import time\n    time.sleep(600)", "timeout"),
}


def test_hostile_measures_on_a_node_hurt_nobody(joined: Any, tmp_path: Path, reference: Path) -> None:
    (tmp_path / "tiny.toml").write_text(TINY_SUITE.replace("[4, 6, 8]", "[4]"))
    chosen: list[str] = []
    for name, (body, _) in HOSTILE.items():
        head = f"import genbench\n\n@genbench.measure(needs={{'weights'}})\ndef {name}(subject):\n"
        (tmp_path / f"{name}.py").write_text(f"NODES = {joined.nodes!r}\n{head}    'Hostile.'\n    {body}\n")
        chosen += ["-m", f"./{name}.py"]
    limits = ("--timeout", "5", "--memory", "300M")
    # One worker: each honest reading follows on a hostile one.
    done = in_process(*on_ray(joined, "--store", "far", *chosen, *limits, jobs=1), cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    found = readings(done.stdout)
    for name, (_, status) in HOSTILE.items():
        assert {s for (measure, _), (s, _, _) in found.items() if measure == name} == {status}, name
    far = cell_files(tmp_path / "far")
    honest = {name: data for name, data in far.items() if name in cell_files(reference)}
    assert len(honest) == len(far)
    assert honest.items() <= cell_files(reference).items()


def test_without_ray_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'genbench\[ray\]'"):
        import_ray()


def test_a_file_is_fetched_once_a_node_and_checked(tmp_path: Path) -> None:
    sent = tmp_path / "weights"
    sent.write_bytes(os.urandom(300_000))
    objects: list[bytes] = []

    def put(piece: bytes) -> int:
        objects.append(piece)
        return len(objects) - 1

    fetched: list[int] = []

    def fetch(reference: int) -> bytes:
        fetched.append(reference)
        return objects[reference]

    parcel = pack_file(sent, file_hash(sent), put)
    first = NodeFiles(tmp_path / "files").take(parcel, fetch)
    second = NodeFiles(tmp_path / "files").take(parcel, fetch)
    assert first == second
    assert first.read_bytes() == sent.read_bytes()
    assert len(fetched) == len(objects), "each piece once, for both workers"
    # A file that was changed on the node's disk is fetched again.
    first.chmod(0o600)
    first.write_bytes(b"else")
    assert NodeFiles(tmp_path / "files").take(parcel, fetch).read_bytes() == sent.read_bytes()
    damaged = FileParcel(parcel.name, parcel.sha256, parcel.size, (b"else",))
    with pytest.raises(TransferDamaged):
        write_file(damaged, tmp_path / "out", fetch)
