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
    pack_place: str | None
    """A folder, or an address."""

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
        from genbench.packs.fetch import is_address, parse_address
        from genbench.suites.evidence_packs import find_pack, pack_in, published_pack

        place = self.pack_place
        if place is not None and self.from_scratch:
            raise UserError("--pack and --from-scratch exclude each other; choose one")
        if self.from_scratch:
            return None
        if place is not None and not is_address(place):
            return pack_in(Path(place), suite)
        address = suite.published if place is None else parse_address(place)
        shipped = find_pack(suite) if place is None else None
        # A suite with other settings has other evidence than what was published for it.
        if shipped is not None or address is None or (place is None and suite.changed):
            return shipped
        from genbench.cli.fetching import FetchBar

        with FetchBar(address.url) as bar:
            found = published_pack(suite, address, bar)
        if place is not None and address.sha256 is None and suite.published is None:
            click.echo(f"to have this very pack again: --pack '{found.address}'", err=True)
        return found


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
            help="What to run it on.",
        ),
    ):  # fmt: skip
        decorated = option(decorated)
    return decorated  # type: ignore[no-any-return]
