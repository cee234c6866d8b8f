"""The command line. Commands are imported when they are called, so that `--help` stays instant."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from genbench.cli.common import debugging
from genbench.errors import UserError

__all__ = ["main", "main_group"]

_COMMANDS = {
    "run": "genbench.cli.run:run",
    "plan": "genbench.cli.run:plan",
    "audit": "genbench.cli.audit:audit",
    "try": "genbench.cli.trial:try_",
    "read": "genbench.cli.read:read",
    "compare": "genbench.cli.compare:compare",
    "score": "genbench.cli.score:score",
    "judge": "genbench.cli.judge:judge",
    "networks": "genbench.cli.judge:networks",
    "calibrate": "genbench.cli.judge:calibrate",
    "tradeoff": "genbench.cli.tradeoff:tradeoff",
    "cube": "genbench.cli.cube:cube",
    "pack": "genbench.cli.pack:pack",
    "measures": "genbench.cli.listings:measures",
    "suites": "genbench.cli.listings:suites",
    "backbones": "genbench.cli.listings:backbones",
    "datasets": "genbench.cli.listings:datasets",
    "plugins": "genbench.cli.listings:plugins",
    "leaderboard": "genbench.cli.leaderboard:leaderboard",
    "reproduce": "genbench.cli.reproduce:reproduce",
    "export": "genbench.cli.export:export",
    "schema": "genbench.cli.schema:schema",
    "check": "genbench.cli.author:check",
    "new": "genbench.cli.author:new",
    "open": "genbench.cli.housekeeping:open_",
    "gc": "genbench.cli.housekeeping:gc",
    "completion": "genbench.cli.housekeeping:completion",
    "doctor": "genbench.cli.doctor:doctor",
}


class _Commands(click.Group):
    """Finds commands by name in `_COMMANDS` and suggests the nearest for a wrong one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _COMMANDS and not args[0].startswith("-"):
            from difflib import get_close_matches

            near = get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else "`genbench --help` lists them all"
            raise click.UsageError(f"unknown command {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    """torch is not imported for it: its files say what it is."""
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    from genbench._version import __version__

    try:
        torch = f"torch {version('torch')}"
    except PackageNotFoundError:
        torch = "no torch"
    python = ".".join(map(str, sys.version_info[:3]))
    click.echo(f"genbench {__version__} ({torch}, Python {python})")
    ctx.exit()


@click.group(
    cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version,
    help="Show the versions of genbench, torch and Python, and exit.",
)  # fmt: skip
def _genbench() -> None:
    """Test generalization measures of deep networks against held-out truth.

    \b
    genbench run --measure path_norm      score a measure on the default suite
    genbench try ./mine.py                try your own on one network, under your debugger
    genbench run --measure ./mine.py      score it
    genbench measures                     what can be scored
    genbench new mymeasure                start a measure of your own as a package
    """


main_group = _genbench
"""For whoever must know all commands."""


def main(args: list[str] | None = None) -> None:
    """Entry point: one sentence and exit code 2 for what a person can fix, no traceback."""
    try:
        code = _genbench.main(args, prog_name="genbench", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as problem:
        click.echo(problem.format_message())
        code = 0
    except click.ClickException as problem:
        where = getattr(problem, "ctx", None)
        command = where.command_path if where is not None else "genbench"
        message = " ".join(problem.format_message().split()).rstrip(".")
        if "did you mean" not in message.lower() and "lists them" not in message:
            message += f"; see `{command} --help`"
        _fail(message)
    except UserError as problem:
        if debugging():
            raise
        _fail(str(problem))
    except (click.Abort, KeyboardInterrupt):
        click.echo("genbench: stopped; run the same command again to go on from here", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader has gone (`genbench measures | head`): keep Python from complaining at exit too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(141)
    except Exception as problem:
        if debugging():
            raise
        _fail(
            f"internal error, {type(problem).__name__}: {' '.join(str(problem).split())}; "
            "run the command with --debug for the traceback and report it",
            code=70,
        )
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str, code: int = 2) -> None:
    click.echo(f"genbench: {message}", err=True)
    sys.exit(code)
