"""Options that choose a suite, change its fields and say where its evidence comes from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from genbench.packs.pack import Pack
    from genbench.suites import Suite

__all__ = ["DEFAULT_SUITE", "SuiteChoice", "suite_options"]

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_SUITE = "mini"


@dataclass(frozen=True)
class SuiteChoice:
    """What the options said."""

    spec: str
    quick: bool
    dataset: str | None
    backbones: str | None
    settings: tuple[str, ...]
    from_scratch: bool
    pack_folder: Path | None

    def load(self) -> Suite:
        """The suite, with its fields replaced by the options."""
        from genbench.suites import load_suite

        changes: dict[str, Any] = {}
        if self.dataset is not None:
            changes["data.dataset"] = self.dataset
        if self.backbones is not None:
            changes["testbed.backbones"] = [name for name in self.backbones.split(",") if name]
        for text in self.settings:
            key, value = _setting(text)
            changes[key] = value
        return load_suite(self.spec, quick=self.quick, changes=changes)

    def pack(self, suite: Suite) -> Pack | None:
        """The evidence pack to use for `suite`, if there is one and it was not declined."""
        from genbench.errors import UserError
        from genbench.suites.evidence_packs import find_pack, pack_in

        if self.pack_folder is not None and self.from_scratch:
            raise UserError("--pack and --from-scratch exclude each other; choose one")
        if self.from_scratch:
            return None
        return find_pack(suite) if self.pack_folder is None else pack_in(self.pack_folder, suite)


def _setting(text: str) -> tuple[str, Any]:
    """ "testbed.kappa=cohen" as key and value; a value is TOML, or else a plain text."""
    from genbench.errors import UserError

    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise UserError(f"--set {text!r}: write TABLE.KEY=VALUE, for example testbed.kappa=cohen")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()


def suite_options(function: F) -> F:
    """Add the options; the command gets one argument `choice` in their place."""

    @wraps(function)
    def command(
        *args: Any,
        suite: str,
        quick: bool,
        dataset: str | None,
        backbones: str | None,
        settings: tuple[str, ...],
        from_scratch: bool,
        pack: Path | None,
        **options: Any,
    ) -> Any:
        choice = SuiteChoice(suite, quick, dataset, backbones, settings, from_scratch, pack)
        return function(*args, choice=choice, **options)

    decorated: Any = command
    for option in (
        click.option(
            "--pack", type=click.Path(path_type=Path), metavar="DIR",
            help="Take networks and their evidence from this evidence pack.",
        ),
        click.option(
            "--from-scratch", is_flag=True, help="Build all evidence here; no pack."
        ),
        click.option(
            "--set", "settings", multiple=True, metavar="TABLE.KEY=VALUE",
            help="Change a field of the suite, as testbed.kappa=cohen; may be repeated.",
        ),
        click.option("--backbones", metavar="A,B,…", help="Use these backbones instead of the suite's."),
        click.option("--dataset", metavar="NAME", help="Use this data set, as folder:DIR."),
        click.option("--quick", is_flag=True, help="A small subset to try out; kept apart from the rest."),
        click.option(
            "--suite", "-s", default=DEFAULT_SUITE, show_default=True, metavar="NAME|FILE.toml",
            help="What to run it on.",
        ),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
