"""Results change only with a version: pins the code behind every version, and samples of what it computes.

    python tests/versions.py confirm     code changed, results did not: recompute the samples, pin the code
    python tests/versions.py pin         a version was raised, or something is new: pin samples and code

tests/golden/code_versions.json holds the version of every unit (`version_units`) with a hash of all code that
its results can depend on (`import_closure`); tests/golden/sample_values.json holds hashes of small samples of
everything (`version_samples`). A test fails when the code is not the pinned one. Both commands take a minute
or two, and refuse where a sample has changed and no version that it depends on has.

Bits differ from one processor to another. Where the samples were pinned on another one, `--against REV`
computes those of revision REV, whose code must be the pinned one, on this machine and compares with them.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from import_closure import Sources, read_sources
from version_samples import SampleDocument, machine
from version_units import Unit, VersionDocument, closures, find_units, version_document

__all__ = ["CODE", "SAMPLES", "Settlement", "code_problems", "settle"]

ROOT = Path(__file__).parent.parent
CODE = ROOT / "tests" / "golden" / "code_versions.json"
SAMPLES = ROOT / "tests" / "golden" / "sample_values.json"


# -- what the test asks -----------------------------------------------------------------------------------


def code_problems(
    pinned: VersionDocument, found: VersionDocument, members: Mapping[str, frozenset[str]]
) -> str:
    """Why the code is not the one that the versions were given for, in words; "" if it is.

    Parameters
    ----------
    members : unit to the modules of its closure.
    """
    lines = []
    changed = changed_modules(pinned, found)
    moved = [unit for unit in found["units"] if not _same(unit, "closure", pinned, found)]
    for module in sorted(changed):
        units = [unit for unit in moved if module in members[unit]]
        lines.append(f"{module} has changed. {_counted(units)} may depend on it: {_listed(units)}")
    explained = {unit for unit in moved if members[unit] & changed}
    if set(moved) - explained:
        lines.append(f"{_listed(set(moved) - explained)}: depends on other modules than before")
    if lines:
        lines.append(
            "Do results change, even in the last bit? `make confirm` computes samples and tells. If they do, "
            "raise the version of what changed (the command says of what) and run `make pin`."
        )
    raised = [u for u in found["units"] if u in pinned["units"] and not _same(u, "version", pinned, found)]
    new, gone = found["units"].keys() - pinned["units"].keys(), pinned["units"].keys() - found["units"].keys()
    for units, what in ((raised, "has another version"), (new, "is new"), (gone, "is gone")):
        if units:
            lines.append(f"{_listed(units)}: {what}; run `make pin`.")
    return "\n".join(lines)


def changed_modules(pinned: VersionDocument, found: VersionDocument) -> frozenset[str]:
    """Modules that were changed, added or removed."""
    before, now = pinned["modules"], found["modules"]
    return frozenset(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))


def _same(unit: str, what: str, pinned: VersionDocument, found: VersionDocument) -> bool:
    before = pinned["units"].get(unit)
    return before is None or before[what] == found["units"][unit][what]


def _counted(units: list[str]) -> str:
    return "One unit" if len(units) == 1 else f"{len(units)} units"


def _listed(units: Iterable[str]) -> str:
    """Names in order; of many, the first of every sort."""
    names = sorted(units)
    if len(names) <= 12:
        return ", ".join(names)
    sorts: dict[str, list[str]] = {}
    for name in names:
        sorts.setdefault(name.split()[0], []).append(name)
    return ", ".join(
        group[0] if len(group) == 1 else f"{group[0]} and {len(group) - 1} more" for group in sorts.values()
    )


# -- what the commands decide -----------------------------------------------------------------------------


@dataclass
class Settlement:
    """What is to be said of samples old and new."""

    refusals: list[str] = field(default_factory=list)
    """What changed without a version."""
    news: list[str] = field(default_factory=list)
    """Samples that are gone or changed with a version: `pin` takes them as they are, `confirm` does not."""
    new: list[str] = field(default_factory=list)
    """Samples there were none of before: of something new, or of something that only this machine has."""


def settle(
    pinned: VersionDocument,
    found: VersionDocument,
    members: Mapping[str, frozenset[str]],
    old: SampleDocument,
    new: SampleDocument,
) -> Settlement:
    """Compare samples; one may change only if a version that it depends on has changed."""
    result = Settlement()
    raised = {
        unit
        for unit in pinned["units"].keys() | found["units"].keys()
        if pinned["units"].get(unit, {}).get("version") != found["units"].get(unit, {}).get("version")
    }
    changed = changed_modules(pinned, found)
    differing = {
        unit: [where for where in places if new.get(unit, {}).get(where, places[where]) != places[where]]
        for unit, places in old.items()
    }
    for unit, place in [(one, where) for one, places in differing.items() for where in places]:
        before, now = old[unit][place], new[unit][place]
        name = f"{unit} ({place})"
        if before["made by"] != now["made by"]:
            # The result of other steps is another result, with another key.
            result.news.append(f"{name}: is made by other units than before")
        elif raised & {unit, *now["made by"]}:
            result.news.append(f"{name}: changed with {_listed(raised & {unit, *now['made by']})}")
        else:
            makers = [u for u in (unit, *now["made by"]) if members.get(u, frozenset()) & changed]
            # A part whose own samples are as before is not the cause.
            causes = [u for u in makers if differing.get(u, [u])] or [unit]
            result.refusals.append(f"{name} has changed; raise the version of {' or of '.join(causes)}")
    for unit in old.keys() | new.keys():
        gone, added = (
            old.get(unit, {}).keys() - new.get(unit, {}),
            new.get(unit, {}).keys() - old.get(unit, {}),
        )
        result.news += [f"{unit} ({place}): is gone" for place in sorted(gone)]
        result.new += [f"{unit} ({place}): is new" for place in sorted(added)]
    result.refusals += _unsampled(found, members, new, changed, raised)
    return result


def _unsampled(
    found: VersionDocument,
    members: Mapping[str, frozenset[str]],
    samples: SampleDocument,
    changed: frozenset[str],
    raised: set[str],
) -> list[str]:
    """Changed code that no sample runs: nothing can be said about its results."""
    run = frozenset().union(*(members[unit] for unit in samples if unit in members))
    refusals = []
    for unit in found["units"].keys() - samples.keys() - raised:
        unseen = (members[unit] & changed) - run
        if unseen:
            refusals.append(f"{unit}: no sample runs {', '.join(sorted(unseen))}; raise its version")
    return sorted(refusals)


# -- the commands -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class State:
    """The code of this checkout."""

    sources: Sources
    units: dict[str, Unit]
    document: VersionDocument
    members: dict[str, frozenset[str]]


def current_state(root: Path = ROOT) -> State:
    """Of the genbench that is imported here, which must be that of this checkout."""
    import genbench

    home = Path(genbench.__file__).parent.parent
    if home != root:
        raise SystemExit(f"genbench is imported from {home}; run this with PYTHONPATH={root}")
    sources = read_sources(root)
    units = find_units(sources)
    return State(sources, units, version_document(sources, units), closures(sources, units))


def take_samples(root: Path) -> dict[str, Any]:
    """Samples of the genbench in `root`, in processes of their own."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "samples.json"
        script = Path(__file__).with_name("version_samples.py")
        environment = {**os.environ, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, script, file], env=environment, cwd=folder, check=False)
        if done.returncode:
            raise SystemExit("the samples could not be computed")
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found


def samples_of_revision(revision: str, pinned: VersionDocument) -> SampleDocument:
    """Samples that the code of a revision gives on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", revision, "genbench"], cwd=ROOT, check=True, capture_output=True
        )
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(folder, filter="data")
        sources = read_sources(Path(folder))
        known = {*sources.modules, *(f"{package}/assets" for package in sources.assets)}
        other = [m for m, value in pinned["modules"].items() if m not in known or sources.hash(m) != value]
        if other:
            raise SystemExit(f"{revision} is not the code that is pinned: {', '.join(sorted(other))} differ")
        samples: SampleDocument = take_samples(Path(folder))["samples"]
        return samples


def main(command: str, against: str | None) -> None:
    """Confirm or pin."""
    state = current_state()
    nothing: VersionDocument = {"modules": {}, "units": {}}
    pinned: VersionDocument = json.loads(CODE.read_text()) if CODE.exists() else nothing
    kept = json.loads(SAMPLES.read_text()) if SAMPLES.exists() else {"machine": machine(), "samples": {}}
    if against is None and kept["machine"] != machine():
        raise SystemExit(
            f"the samples were pinned on {_described(kept['machine'])}; this is {_described(machine())}, "
            "where bits may differ. Run this there, or with --against REV, a revision with the pinned code."
        )
    old = kept["samples"] if against is None else samples_of_revision(against, pinned)
    taken = take_samples(ROOT)
    new: SampleDocument = taken["samples"]
    for unit, versions in taken["carried"].items():
        if unit in state.units and versions != [state.units[unit].version]:
            raise SystemExit(f"{unit} has version {state.units[unit].version}, but its keys say {versions}")
    result = settle(pinned, state.document, state.members, old, new)
    if command == "confirm":
        units = state.document["units"].keys() - pinned["units"].keys()
        result.refusals += [f"{text}; run `make pin`" for text in result.news]
        result.refusals += [f"{unit} is new; run `make pin`" for unit in sorted(units)]
    if result.refusals:
        raise SystemExit("\n".join(["not confirmed:", *result.refusals]))
    if command == "pin":
        print(*result.news, *result.new, sep="\n")
        _write(SAMPLES, {"machine": machine(), "samples": new}, depth=3)
    _write(CODE, state.document, depth=2)
    count = sum(map(len, new.values()))
    print(f"{count} samples agree or changed with a version; pinned the code of {len(state.units)} units")


def _described(about: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in about.items())


def _write(path: Path, value: object, depth: int) -> None:
    """JSON with one line for every value `depth` levels down, so that a change is one line of a diff."""
    path.write_text(_lines(value, depth, "") + "\n", encoding="utf-8")


def _lines(value: object, depth: int, indent: str) -> str:
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value, sort_keys=True)
    inner = indent + " "
    parts = [f"{inner}{json.dumps(key)}: {_lines(value[key], depth - 1, inner)}" for key in sorted(value)]
    return "{\n" + ",\n".join(parts) + f"\n{indent}}}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=("confirm", "pin"))
    parser.add_argument("--against", metavar="REV", help="compare with samples of this revision, taken here")
    arguments = parser.parse_args()
    main(arguments.command, arguments.against)
