"""The attack suite, in a process of its own: descriptors, memory and forks are those of a whole process.

`python -m pytest tests/sealed_attacks.py` shows its tests one by one.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_every_attack_is_stopped_and_no_honest_reading_changed() -> None:
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/sealed_attacks.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout[-6000:]
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout.splitlines()[-1], "a kernel without Landlock tests nothing"
