"""The environment of the user: what workers have of it, and what the steps of cells get back.

Workers fork the processes of readings, and what was in a process's environment when it started stays in its
memory. So workers start with a few variables that libraries need; the others wait in a file, which no reading
can open, for steps, where a library may look for a folder, a proxy or a token.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

__all__ = ["keep_environment", "restore_environment", "worker_environment"]

_FILE = "environment.json"
_FOR_WORKERS = (
    "PATH", "HOME", "LANG", "LC_", "TZ", "TMPDIR", "USER", "LOGNAME", "PYTHON", "VIRTUAL_ENV", "CONDA_PREFIX",
    "LD_", "DYLD_", "GLIBC_", "MALLOC_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_",
    "ATEN_", "TORCH", "PYTORCH", "CUDA_", "CUBLAS_", "CUDNN_", "NVIDIA_", "NCCL_", "HIP_", "ROCM_", "HSA_",
    "XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HF_HUB_OFFLINE", "HUGGINGFACE_HUB_CACHE", "GENBENCH_",
    "MPL", "NUMBA_",
)  # fmt: skip
"""What names of variables begin with that libraries need from their start, and that hold no secrets."""


def worker_environment() -> dict[str, str]:
    """Of this process's environment what workers start with."""
    return {name: value for name, value in os.environ.items() if name.startswith(_FOR_WORKERS)}


def keep_environment(scratch: Path) -> None:
    """Put this process's environment where steps find it."""
    with contextlib.suppress(FileExistsError):
        descriptor = os.open(scratch / _FILE, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8", errors="surrogateescape") as file:
            json.dump(dict(os.environ), file)


def restore_environment(scratch: Path) -> list[str]:
    """Let this process have the variables that workers start without; their names."""
    try:
        text = (scratch / _FILE).read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return []  # a worker that somebody else started
    lacking = {name: value for name, value in json.loads(text).items() if name not in os.environ}
    os.environ.update(lacking)
    return list(lacking)
