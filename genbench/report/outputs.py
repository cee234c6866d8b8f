"""What measures printed and where they failed, for `--debug`."""

from __future__ import annotations

from collections.abc import Iterable

from genbench.engine.cells import Outcome

__all__ = ["output_blocks"]


def output_blocks(readings: Iterable[tuple[str, str, Outcome]]) -> list[str]:
    """One text per different output, tracebacks included, with the readings that gave it.

    Parameters
    ----------
    readings : measure, network, and how it ended.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for measure, network, outcome in readings:
        if outcome.output.strip():
            found.setdefault((measure, outcome.output.rstrip()), []).append(network)
    blocks = []
    for (measure, text), networks in found.items():
        more = f" and {len(networks) - 1} more" if len(networks) > 1 else ""
        blocks.append(f"output of {measure} on {networks[0]}{more}:\n{text}\n")
    return blocks
