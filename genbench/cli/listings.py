"""Commands that list what there is. None of them imports torch."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from genbench.cli.common import common_options
from genbench.display.papers import paper_of
from genbench.display.tables import print_json, print_table, print_text, readable_columns

if TYPE_CHECKING:
    from genbench.plugin.contract import Measure
    from genbench.plugin.registry import Entry, PluginReport


_NEED_LETTERS = {
    "weights": "w", "initial_weights": "i", "training_data": "d", "gradients": "g", "trace": "t",
}  # fmt: skip


@click.command()
@click.argument("name", required=False)
@common_options
def measures(name: str | None, as_json: bool) -> None:
    """List the measures, or show one.

    With NAME: its formula, reference and what it needs.
    """
    from genbench.plugin.registry import find_measure, load_registry

    if name is not None:
        entries = find_measure(name)
        if as_json:
            print_json([_measure_record(entry) for entry in entries])
        else:
            for entry in entries:
                _show_measure(entry)
        return
    records = [_measure_record(entry) for entry in load_registry().measures.values()]
    if as_json:
        print_json(records)
        return
    for record in records:
        record["needs"] = "".join(_NEED_LETTERS[need] for need in record["needs"])
    every = ["name", "category", "paper", "needs", "cost", "summary"]
    columns = readable_columns(every, records, "summary", ["paper", "needs", "cost", "category"])
    print_table(columns, records)
    letters = ", ".join(f"{letter} = {need}" for need, letter in _NEED_LETTERS.items())
    words = [f"{len(records)} measures"]
    if "needs" in columns:
        words.append(f"needs: {letters}")
    if "cost" in columns:
        words.append(
            "cost: low = weights or one pass over the training set, medium = gradients or tens of passes, "
            "high = hundreds of passes"
        )
    if left := [column for column in every if column not in columns]:
        words.append(f"a wider terminal shows {', '.join(left)}")
    print_text("; ".join(words), err=True)
    print_text("genbench measures NAME shows one; genbench run --measure NAME scores it", err=True)


def _measure_record(entry: Entry[Measure]) -> dict[str, Any]:
    measure = entry.item
    record = {f.name: getattr(measure, f.name) for f in fields(measure) if f.name != "function"}
    return {
        **record,
        "needs": sorted(measure.needs),
        "description": measure.description,
        "reference": _reference(measure.paper),
        "source": str(entry.source),
    }


def _reference(reference: str) -> str:
    """ "001 (27)" as a citation with the equation; what an outsider wrote stays as it is."""
    paper, place = paper_of(reference)
    return place if paper is None else "; ".join(filter(None, [paper.citation, place]))


def _show_measure(entry: Entry[Measure]) -> None:
    record = _measure_record(entry)
    click.echo(f"{record.pop('name')}\n\n{record.pop('description')}\n")
    for key, value in record.items():
        if key != "summary" and value not in ("", []):
            shown = ", ".join(value) if isinstance(value, list) else value
            click.echo(f"  {key.replace('_', ' ')}: {shown}")


@click.command()
@common_options
def suites(as_json: bool) -> None:
    """List the suites, and which can be run here."""
    from genbench.errors import UserError
    from genbench.plugin.registry import load_registry
    from genbench.suites import read_suite
    from genbench.suites.evidence_packs import find_pack
    from genbench.suites.kind import kind_of

    records: list[dict[str, Any]] = []
    for name, entry in load_registry().suites.items():
        missing: list[str] = []
        try:
            suite = read_suite(entry.item.path)
            if find_pack(suite) is None and suite.published is None:
                missing = kind_of(suite).missing(suite)
            status = "missing" if missing else "ready"
            summary, networks = suite.summary, str(suite.networks)
        except UserError as problem:
            status, summary, networks = "broken", str(problem), ""
        records.append(
            {
                "name": name,
                "networks": networks,
                "status": status,
                "missing": missing,
                "summary": summary,
                "source": str(entry.source),
                "path": str(entry.item.path),
            }
        )
    if as_json:
        print_json(records)
    else:
        columns = ["name", "networks", "status", "summary", "source"]
        columns = readable_columns(columns, records, "summary", ["source", "networks"])
        print_table(columns, records, right=["networks"])
        for one in records:
            if one["missing"]:
                more = f" (and {len(one['missing']) - 1} more)" if len(one["missing"]) > 1 else ""
                print_text(f"{one['name']} needs {one['missing'][0]}{more}", err=True)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--weights", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Look for weight files in this folder first.",
)  # fmt: skip
@common_options
def backbones(name: str | None, weights: Path | None, as_json: bool) -> None:
    """List pretrained networks, and which are ready here.

    With NAME: where its weights were found, or what to fetch and where to put it.
    """
    from genbench.plugin.offers import BackboneRequest

    records = []
    for item, argument in _chosen("backbones", name):
        found = item.available(BackboneRequest(argument, weights))
        records.append(
            {
                "name": item.name + argument,
                "family": item.family,
                "weights": item.weight_count,
                "features": item.feature_width,
                "input": item.image_size,
                "status": "ready" if found.ready else "missing",
                "source": item.source,
                "detail": found.detail,
                "summary": item.summary,
            }
        )
    _print_available(records, ["name", "weights", "features", "input", "status", "source"], as_json)


@click.command()
@click.argument("name", required=False)
@click.option(
    "--root", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR",
    help="Folder that holds data sets.",
)  # fmt: skip
@common_options
def datasets(name: str | None, root: Path | None, as_json: bool) -> None:
    """List data sets, and which are ready here.

    With NAME: where it was found, or what to put where.
    """
    from genbench.plugin.offers import DataRequest

    records = []
    for item, argument in _chosen("datasets", name):
        found = item.available(DataRequest(argument, root))
        size = item.image_size
        records.append(
            {
                "name": item.name + argument,
                "classes": item.classes,
                "image": None if size is None else f"{size[0]}×{size[1]}×{size[2]}",
                "status": "ready" if found.ready else "missing",
                "source": item.source,
                "detail": found.detail,
                "summary": item.summary,
            }
        )
    _print_available(records, ["name", "classes", "image", "status", "summary"], as_json)


def _chosen(kind: str, name: str | None) -> list[tuple[Any, str]]:
    """The record called `name` with its argument, or all of them."""
    from genbench.plugin.registry import load_registry

    registry = load_registry()
    if name is None:
        return [(entry.item, "") for entry in getattr(registry, kind).values()]
    entry, argument = registry.resolve(kind, name)
    return [(entry.item, argument)]


def _print_available(records: list[dict[str, Any]], columns: list[str], as_json: bool) -> None:
    if as_json:
        print_json(records)
        return
    for record in records:
        for column, value in record.items():
            record[column] = "" if value is None else f"{value:,}" if column == "weights" else value
    print_table(columns, records, right=["weights", "features", "input", "classes"])
    if len(records) == 1:
        click.echo(records[0]["detail"])
    elif any(record["status"] == "missing" for record in records):
        click.echo("with a name, this command says what to fetch and where to put it", err=True)


@click.command()
@common_options
def plugins(as_json: bool) -> None:
    """List plugins; a broken one with the reason."""
    from genbench.plugin.registry import load_registry

    reports = load_registry().plugins
    if as_json:
        print_json([_plugin_record(report) for report in reports])
        return
    print_table(
        ["plugin", "version", "status", "offers", "ms"], [_plugin_row(r) for r in reports], right=["ms"]
    )
    for report in reports:
        for problem in report.problems:
            click.echo(f"{report.source.plugin} ({report.source}): {problem}")
        if report.trace:
            click.echo("    " + report.trace.rstrip().replace("\n", "\n    "))
        if report.heavy_imports:
            names = ", ".join(report.heavy_imports)
            click.echo(
                f"{report.source.plugin} ({report.source}): imports {names} while loading, which slows every "
                "command down; move the import into the function that needs it"
            )


def _plugin_row(report: PluginReport) -> dict[str, str]:
    offers = "; ".join(f"{len(names)} {kind}" for kind, names in report.offers.items())
    return {
        "plugin": report.source.plugin,
        "version": str(report.source),
        "status": "ok" if report.ok else "broken",
        "offers": offers,
        "ms": f"{report.seconds * 1000:.0f}",
    }


def _plugin_record(report: PluginReport) -> dict[str, Any]:
    return {
        "plugin": report.source.plugin,
        "kind": report.source.kind,
        "distribution": report.source.distribution,
        "version": report.source.version,
        "ok": report.ok,
        "offers": report.offers,
        "problems": report.problems,
        "traceback": report.trace,
        "seconds": report.seconds,
        "heavy_imports": report.heavy_imports,
    }
