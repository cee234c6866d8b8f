"""Reads a suite and says, in one sentence with file and key, what is wrong with it."""

from __future__ import annotations

import json
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypedDict

from msgspec import Meta

from genbench.errors import UserError
from genbench.keys import derive_seed
from genbench.packs.fetch import PackAddress, parse_address
from genbench.plugin.registry import load_registry
from genbench.suites.fields import Table, Text, Toml, check, check_keys, known_keys, one_of, table

__all__ = ["Suite", "SuiteFields", "load_suite", "read_suite"]

_DEFAULT_KIND = "population"


@dataclass(frozen=True)
class Suite(ABC):
    """What every validated suite has."""

    kind: ClassVar[str]
    """Name of its kind."""

    name: str
    summary: str
    path: Path
    quick: bool = False
    """Whether this is the small subset that `--quick` runs."""
    quick_changes: Mapping[str, Toml] = field(default_factory=dict)
    changes: Toml = field(default_factory=dict)
    """What options on the command line replaced: "testbed.kappa" to value."""
    published: PackAddress | None = None
    """Where its evidence pack can be fetched; its hash is known."""

    @property
    @abstractmethod
    def networks(self) -> int:
        """How many networks it has."""

    @abstractmethod
    def content(self) -> Toml:
        """Everything that determines its networks and their truths."""

    def plain_content(self) -> Toml:
        """The content as JSON would give it back, so that it compares with that of a pack."""
        copied: Toml = json.loads(json.dumps(self.content()))
        return copied

    @property
    def bootstrap_seed(self) -> int:
        """Of the resamples behind every interval; the same for all measures and runs."""
        return derive_seed(self.name, "bootstrap") % 2**32

    @property
    def changed(self) -> bool:
        """Whether it is not the suite as its file has it."""
        return self.quick or bool(self.changes)

    @property
    def title(self) -> str:
        """The name as outputs show it."""
        notes = ["quick"] if self.quick else []
        notes += [f"{key} = {_shown(value)}" for key, value in self.changes.items()]
        return f"{self.name} ({', '.join(notes)})" if notes else self.name

    @property
    def file_name(self) -> str:
        """The name as files of its results have it."""
        name = "".join(c if c.isalnum() or c in "-_." else "-" for c in self.name)
        return f"{name}{'--quick' if self.quick else ''}"

    @property
    def identity(self) -> list[Any]:
        """What tells this suite from all others, for seeds: they stay the same for the suite as it ships."""
        own = [self.name, self.quick]
        return [*own, dict(self.changes)] if self.changes else own


class SuiteFields(TypedDict):
    """The fields of every suite, for the kind that adds its own."""

    name: str
    summary: str
    path: Path
    quick: bool
    quick_changes: Mapping[str, Toml]
    changes: Toml
    published: PackAddress | None


class PackTable(Table, frozen=True):
    """[pack]: evidence that lies elsewhere."""

    url: Text
    sha256: Annotated[
        str, Meta(pattern="^[0-9a-f]{64}$", description="the 64 hexadecimal digits of a sha256")
    ]


def _shown(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def load_suite(spec: str | Path, *, quick: bool = False, changes: Toml | None = None) -> Suite:
    """The suite called `spec`, or the one in the file `spec` if it ends in .toml."""
    if (path := Path(spec)).suffix == ".toml":
        if not path.is_file():
            raise UserError(f"there is no suite file {path}; `genbench suites` lists the built-in ones")
    else:
        path = load_registry().get("suites", str(spec)).item.path
    return read_suite(path, quick=quick, changes=changes)


def read_suite(path: str | Path, *, quick: bool = False, changes: Toml | None = None) -> Suite:
    """Read and check the suite in `path`, with values replaced by `changes` ("table.key" to value)."""
    from genbench.suites.kind import load_kind

    path = Path(path)
    try:
        content: Toml = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as problem:
        raise UserError(f"{path} is not valid TOML: {problem}") from problem
    except UnicodeDecodeError as problem:
        raise UserError(f"{path} is not valid TOML: it is not UTF-8 text") from problem
    except OSError as problem:
        raise UserError(f"{path} cannot be read: {problem.strerror}") from problem
    quick_changes = table(path, content, "quick") if "quick" in content else {}
    if quick:
        content = _merged(path, content, quick_changes)
    for key, value in (changes or {}).items():
        content = _changed(content, key, value)
    top = {"name": Text, "summary": Text, "kind": one_of(_kinds())}
    if "kind" in content:
        check(path, "kind", content["kind"], top["kind"])
    kind = load_kind(content.get("kind", _DEFAULT_KIND))
    known_keys(path, "", content, [*top, *kind.tables, "pack", "quick"])
    check_keys(path, "", content, top)
    common = SuiteFields(
        name=content["name"],
        summary=content["summary"],
        path=path,
        quick=quick,
        quick_changes=quick_changes,
        changes=dict(changes or {}),
        published=_published(path, content),
    )
    return kind.read(path, content, common)


def _published(path: Path, content: Toml) -> PackAddress | None:
    if "pack" not in content:
        return None
    found = PackTable.read(path, content, "pack")
    try:
        return replace(parse_address(found.url), sha256=found.sha256)
    except UserError as problem:
        raise UserError(f"{path}: pack.url: {problem}") from None


def _kinds() -> list[str]:
    """Names of all kinds, the usual one first."""
    return [_DEFAULT_KIND, *sorted(load_registry().suite_kinds.keys() - {_DEFAULT_KIND})]


def _changed(content: Toml, key: str, value: object) -> Toml:
    section, dot, name = key.partition(".")
    if not dot or not name:
        raise UserError(f"--set {key}=…: write TABLE.KEY=VALUE, for example testbed.kappa=cohen")
    found = content.get(section)
    return {**content, section: {**(found if isinstance(found, dict) else {}), name: value}}


def _merged(path: Path, content: Toml, changes: Toml) -> Toml:
    if not changes:
        raise UserError(f"{path} has no [quick] table, so this suite has no --quick subset")
    merged = dict(content)
    for name, values in changes.items():
        if not isinstance(values, dict) or not isinstance(content.get(name), dict):
            raise UserError(f"{path}: [quick.{name}] must be a table that changes values of [{name}]")
        merged[name] = {**content[name], **values}
    return merged
