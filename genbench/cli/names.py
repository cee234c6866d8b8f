"""Names that a shell completes: measures, suites and data sets. Asked for by a press of Tab alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["complete_measures", "complete_suites"]


def complete_measures(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
    """Names with their summaries; a path is left to the shell."""
    from click.shell_completion import CompletionItem

    from genbench.plugin.registry import load_registry

    if "/" in text or text.startswith("."):
        return [CompletionItem(text, type="file")]
    found = load_registry().measures
    return [
        CompletionItem(name, help=found[name].item.summary) for name in sorted(found) if name.startswith(text)
    ]


def complete_suites(ctx: click.Context, param: click.Parameter, text: str) -> list[CompletionItem]:
    """Names of suites; a path is left to the shell."""
    from click.shell_completion import CompletionItem

    from genbench.plugin.registry import load_registry

    if "/" in text or text.startswith("."):
        return [CompletionItem(text, type="file")]
    return [CompletionItem(name) for name in sorted(load_registry().suites) if name.startswith(text)]
