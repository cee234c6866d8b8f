"""`mini` with five measures on a cluster of two nodes on this machine, against `local`: the same bits?

    python benchmarks/cluster_mini.py [FOLDER]

The networks come out of the pack that ships, and the measures are cheap ones of five categories: what is
asked is whether bits travel, not how fast readings are. By hand, because it takes minutes. Prints how many
files were compared, readings among them, and which differ; exit code 1 if any does.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MEASURES = ("path_norm", "inverse_margin", "ece", "log_prod_of_spec", "params")


def stored(store: Path) -> dict[str, str]:
    """Every file of a result to its hash; what cells cost is none."""
    files = (path for path in store.glob("cells/*/*/*") if path.name != "cost.json")
    return {
        path.parent.name + "/" + path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files
    }


def run(store: Path, *more: str) -> float:
    """Wall seconds of the run."""
    chosen = [word for name in MEASURES for word in ("--measure", name)]
    words = [
        sys.executable,
        "-m",
        "genbench",
        "run",
        *chosen,
        "--suite",
        "mini",
        "--threads",
        "1",
        "--jobs",
        "2",
    ]
    began = time.monotonic()
    subprocess.run([*words, "--store", str(store), *more], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def main(folder: Path) -> int:
    """Run both, compare."""
    from ray.cluster_utils import Cluster

    size = {"num_cpus": 2, "object_store_memory": 256 * 2**20}
    cluster = Cluster(initialize_head=True, head_node_args={**size, "include_dashboard": False})
    cluster.add_node(**size)
    try:
        far = run(folder / "far", "--executor", "ray", "--address", cluster.address)
    finally:
        cluster.shutdown()
    near = run(folder / "near")
    one, other = stored(folder / "far"), stored(folder / "near")
    differ = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    print(f"{len(one)} files, {len(differ)} differ; ray {far:.0f} s, local {near:.0f} s", *differ, sep="\n")
    return 1 if differ else 0


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray lets its workers wait for everybody else on the machine.
    os.environ.update(RAY_worker_niceness="0", RAY_raylet_start_wait_time_s="300")
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp())))
