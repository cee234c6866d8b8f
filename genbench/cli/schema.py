"""`genbench schema`: the format of result records."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks instead of one-line errors.")
@click.option("--json", "as_json", is_flag=True, help="No difference: it is a JSON document.")
def schema(as_json: bool) -> None:
    """Print the JSON schema of result records."""
    from genbench.records.schema import record_schema

    click.echo(json.dumps(record_schema(), indent=1, ensure_ascii=False))
