"""Options that choose a suite, change its fields and say where its evidence comes from."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from genbench.api.execution import Execution, execution_arguments
from genbench.api.suites import DEFAULT_SUITE
from genbench.cli.names import complete_suites

if TYPE_CHECKING:
    from genbench.api.suites import LoadedSuite
    from genbench.suites.fields import Toml

__all__ = ["SuiteChoice", "suite_options"]

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class SuiteChoice:
    """What the options said."""

    spec: str
    quick: bool
    dataset: str | None
    backbones: str | None
    settings: tuple[str, ...]
    from_scratch: bool
    pack_place: str | None
    """A folder, or an address."""

    def open(self, store: Path | None = None, execution: Execution | None = None) -> LoadedSuite:
        """The suite with its fields replaced by the options, and where its evidence comes from."""
        from genbench.api.suites import load_suite

        return load_suite(
            self.spec,
            quick=self.quick,
            changes=self._changes(),
            pack=self.pack_place,
            from_scratch=self.from_scratch,
            store=store,
            **({} if execution is None else execution_arguments(execution)),
        )

    def _changes(self) -> Toml:
        changes: dict[str, Any] = {}
        if self.dataset is not None:
            changes["data.dataset"] = self.dataset
        if self.backbones is not None:
            changes["testbed.backbones"] = [name for name in self.backbones.split(",") if name]
        for text in self.settings:
            key, value = _setting(text)
            changes[key] = value
        return changes


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
        pack: str | None,
        **options: Any,
    ) -> Any:
        choice = SuiteChoice(suite, quick, dataset, backbones, settings, from_scratch, pack)
        return function(*args, choice=choice, **options)

    decorated: Any = command
    for option in (
        click.option(
            "--pack", metavar="DIR|URL",
            help="Take networks and their evidence from this evidence pack: a folder, https://… or hf://….",
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
            help="What to run it on.", shell_complete=complete_suites,
        ),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
