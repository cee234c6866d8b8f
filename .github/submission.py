"""Runs submitted plugins and leaves what the boards need in a folder; the workflow `submission` calls it.

    python .github/submission.py plugins/genbench-mine --to submission [--into DIR]
    python .github/submission.py --changed-since COMMIT --to submission

It needs no secret and no right to write anywhere but into that folder. Nothing of what it leaves is believed:
`genbench leaderboard accept PLUGIN --submission DIR` compares it with what the plugin's source gives.

    python .github/submission.py --changed-since COMMIT --list

names the folder that changed, and fails if anything but one plugin's folder did.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from pathlib import Path

SUITES = ("mini", "nin-fashion")
"""Those with a board."""


def main() -> int:
    """Install each plugin, check its measures, run them on every suite with a board, and audit them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("plugins", nargs="*", type=Path, help="folders of plugins")
    parser.add_argument("--changed-since", metavar="COMMIT", help="take the plugins that changed since then")
    parser.add_argument("--to", type=Path, default=Path("submission"), help="folder to fill")
    parser.add_argument("--suite", action="append", help="instead of all with a board")
    parser.add_argument("--list", action="store_true", help="only say which plugin changed")
    parser.add_argument("--into", type=Path, help="install here instead of into this Python, for a trial")
    arguments = parser.parse_args()
    folders = arguments.plugins or changed(arguments.changed_since or "HEAD^")
    if arguments.list:
        print(*folders, sep="\n")
        return 0
    arguments.to.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", folder.name) or not (folder / "pyproject.toml").is_file():
            sys.exit(f"submission: {str(folder)!r} is not the folder of a plugin")
        install(folder, arguments.into)
        names = offered(folder)
        if not names:
            sys.exit(f"submission: {folder} offers no measure; `genbench plugins` says why")
        for name in names:
            genbench("check", name)
        for suite in arguments.suite or SUITES:
            chosen = [word for name in names for word in ("--measure", name)]
            genbench("run", "--suite", suite, *chosen, "--records", str(arguments.to / "all"))
            for name in names:
                target = arguments.to / "records" / suite / f"{name}.json"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes((arguments.to / "all" / suite / f"{name}.json").read_bytes())
                print(f"submission: {name} on {suite} is recorded")
    return 0


def changed(since: str) -> list[Path]:
    """The folder of the plugin that differs from a commit; a submission changes one such folder, no more."""
    command = ["git", "diff", "--name-only", "-z", since]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    paths = [Path(name) for name in names if name]
    folders = {Path(*path.parts[:2]) for path in paths if path.parts[0] == "plugins" and len(path.parts) > 2}
    if others := [path for path in paths if Path(*path.parts[:2]) not in folders]:
        sys.exit(f"submission: {others[0]} was changed too; a submission changes the folder of one plugin")
    if len(folders) > 1:
        sys.exit(f"submission: {len(folders)} plugins were changed; submit one at a time")
    return sorted(folder for folder in folders if folder.is_dir())


def install(folder: Path, into: Path | None) -> None:
    """With its dependencies, in the versions that genbench is tested with; a trial takes what is there."""
    where = ["--constraint", "constraints.txt"]
    if into is not None:
        where = ["--no-deps", "--no-build-isolation", "--upgrade", "--target", str(into)]
        os.environ["PYTHONPATH"] = os.pathsep.join([str(into), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *where, str(folder)], check=True)


def offered(folder: Path) -> list[str]:
    """Names of the measures of the distribution in `folder`."""
    import tomllib

    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]["name"]
    listed = json.loads(genbench("measures", "--json"))
    return [entry["name"] for entry in listed if str(entry["source"]).split(" ")[0] == project]


def genbench(*words: str) -> str:
    """Standard output of a genbench command; its failure is this script's."""
    done = subprocess.run([sys.executable, "-m", "genbench", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(f"submission: genbench {words[0]} failed with exit code {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
