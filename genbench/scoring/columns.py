"""Which column of a record table plays which role: told by the caller, or by its name."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from genbench.errors import UserError

__all__ = ["Columns", "KnownMeasure", "find_columns", "read_columns", "short_name"]

# The names that SPEC.md gives to a record table, and those under which the runs of 001 were published.
_SEED = ("seed", "hp.seed")
_GAP = ("gap", "gen.gap")
_OOD = ("gap_ood", "gen.gap_ood")
_OTHER = ("heldout_ece",)
_TEST_ERROR = ("test_error", "gen.test_error")
_TEST_ACCURACY = ("test_accuracy", "test_acc", "gen.test_acc", "gen.val_acc")
_TEST_SIZE = ("test_size", "test_dataset_size")
_TRAIN_LOSS = ("train_loss", "training_loss", "cross_entropy")
_TRAIN_ACCURACY = ("train_accuracy", "train_acc", "gen.train_acc")
_SIZE = ("parameters", "weights")
_CONVERGED = ("converged", "is.converged", "is.high_train_accuracy")
_UNCONVERGED = ("unconverged", "is.unconverged")
_PREFIXES = ("hp.", "complexity.", "gen.")


class KnownMeasure(Protocol):
    """What genbench knows of a measure that it has; `genbench.plugin.contract.Measure` is one."""

    @property
    def higher_means(self) -> str:
        """`better` or `worse`."""

    @property
    def logarithm(self) -> bool:
        """Whether the value already is a logarithm."""


@dataclass(frozen=True)
class Columns:
    """Names of columns by role; what is left empty is found by `find_columns`."""

    hyperparameters: tuple[str, ...] = ()
    measures: tuple[str, ...] = ()
    seed: str = ""
    gap: str = ""
    """Training accuracy − test accuracy."""
    ood: tuple[str, ...] = ()
    """Gaps to shifted test sets, and other targets that `genbench score --target` takes."""
    test_error: str = ""
    test_accuracy: str = ""
    """Read as 1 − test error where there is no column of test errors."""
    test_size: str | int = ""
    """A column, or one number for the whole table."""
    train_loss: str = ""
    train_accuracy: str = ""
    size: str = ""
    """Number of weights; this and the two above are for the questions of a board alone."""
    converged: tuple[str, ...] = ()
    """Rows in which one of these is false are left out."""
    unconverged: tuple[str, ...] = ()
    """Rows in which one of these is true are left out."""
    group_by: tuple[str, ...] = ()
    """Hyperparameters that make the groups of CMS."""
    higher_is_better: tuple[str, ...] = ()
    """Measures that enter as −C."""
    logarithm: tuple[str, ...] = ()
    """Measures that already are logarithms, besides those named `log_…`."""


def short_name(column: str) -> str:
    """A column's name without the prefix that tells its role."""
    return next((column[len(p) :] for p in _PREFIXES if column.startswith(p) and column != p), column)


def read_columns(path: str | Path) -> Columns:
    """A mapping as TOML, its keys the fields of `Columns`: `gap = "my_gap"`, `measures = ["a", "b"]`."""
    try:
        given = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"no file {path}") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as problem:
        raise UserError(f"{path} cannot be read as TOML ({' '.join(str(problem).split())})") from None
    roles = {field.name: field.default for field in fields(Columns)}
    for key, value in given.items():
        if key not in roles:
            raise UserError(f"{path}: unknown key {key!r}; {_suggest(key, roles)}")
        if isinstance(roles[key], tuple):
            names = [value] if isinstance(value, str) else value
            if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
                raise UserError(f"{path}: {key} must be a list of column names")
            given[key] = tuple(names)
        elif not isinstance(value, str) and not (key == "test_size" and type(value) is int):
            raise UserError(f"{path}: {key} must be the name of a column")
    return Columns(**given)


def find_columns(
    names: Sequence[str],
    given: Columns,
    source: str,
    known_measures: Mapping[str, KnownMeasure] | None = None,
) -> Columns:
    """Check the columns that were named and find the others by convention.

    Where several columns may be named, a pattern such as `*_adjusted` stands for all that fit it.
    Hyperparameters are `hp.…`; measures are `complexity.…`, or without any such column those in
    `known_measures`, which also say which way a measure points; targets are `gap`, `gap_ood_…`,
    `test_error`, with or without `gen.` before them, and `heldout_ece`.
    """
    known = known_measures or {}
    given = _without_patterns(given, names, source)
    for column in _named(given):
        if column not in names:
            raise UserError(f"{source}: no column {column!r}; {_suggest(column, names)}")
    seed = given.seed or _first(names, _SEED)
    taken = {seed, given.gap, given.test_error, given.test_accuracy, given.test_size}
    measures = given.measures or _starting(names, "complexity.")
    measures = measures or tuple(n for n in names if n in known and n not in taken)
    hyperparameters = given.hyperparameters or tuple(
        name for name in _starting(names, "hp.") if name not in taken and name not in measures
    )
    found = replace(
        given,
        hyperparameters=hyperparameters,
        measures=measures,
        seed=seed,
        gap=given.gap or _first(names, _GAP),
        ood=given.ood
        or tuple(n for n in names if (n.startswith(_OOD) or n in _OTHER) and n not in (*taken, *measures)),
        test_error=given.test_error or ("" if given.test_accuracy else _first(names, _TEST_ERROR)),
        test_accuracy=given.test_accuracy or _first(names, _TEST_ACCURACY),
        test_size=given.test_size or _first(names, _TEST_SIZE),
        train_loss=given.train_loss or _first(names, _TRAIN_LOSS),
        train_accuracy=given.train_accuracy or _first(names, _TRAIN_ACCURACY),
        size=given.size or _first(names, _SIZE),
        converged=given.converged or tuple(n for n in _CONVERGED if n in names),
        unconverged=given.unconverged or tuple(n for n in _UNCONVERGED if n in names),
    )
    _check_roles(found, source)
    shown = [short_name(name) for name in measures]
    for name in (*given.higher_is_better, *given.logarithm):
        if short_name(name) not in shown:
            raise UserError(f"{source}: no measure {name!r}; {_suggest(short_name(name), shown)}")
    return replace(
        found,
        higher_is_better=(
            *given.higher_is_better,
            *(n for n in shown if n in known and known[n].higher_means == "better"),
        ),
        logarithm=(*given.logarithm, *(n for n in shown if n in known and known[n].logarithm)),
    )


def _check_roles(columns: Columns, source: str) -> None:
    needed: list[tuple[object, str]] = [
        (columns.gap, "no column 'gap' (training accuracy − test accuracy); name yours with --gap COLUMN"),
        (columns.seed, "no column 'seed'; name yours with --seed-column COLUMN"),
        (
            columns.hyperparameters,
            "no hyperparameter columns; start their names with 'hp.', or name them with --hp A,B",
        ),
        (
            columns.measures,
            "no measure columns; start their names with 'complexity.', or name them with --measures A,B",
        ),
    ]
    for role, sentence in needed:
        if not role:
            raise UserError(f"{source}: {sentence}")
    roles: dict[str, str] = {}
    for role_name, group in (
        ("a hyperparameter", columns.hyperparameters),
        ("a measure", columns.measures),
        ("the seed", (columns.seed,)),
        ("a target", (columns.gap, *columns.ood)),
    ):
        for column in group:
            if column in roles:
                raise UserError(
                    f"{source}: column {column!r} is named as {roles[column]} and as {role_name}; "
                    "give it one role"
                )
            roles[column] = role_name
    shown: dict[str, str] = {}
    for column in (*columns.hyperparameters, *columns.measures):
        if short_name(column) in shown:
            raise UserError(
                f"{source}: columns {shown[short_name(column)]!r} and {column!r} are both shown as "
                f"{short_name(column)!r}; rename one"
            )
        shown[short_name(column)] = column


def _without_patterns(given: Columns, names: Sequence[str], source: str) -> Columns:
    """`complexity.*_adjusted` as the columns that fit it, in the table's order."""

    def meant(name: str, among: Sequence[str]) -> list[str]:
        if name in among or not any(mark in name for mark in "*?["):
            return [name]
        found = [c for c in among if fnmatchcase(c, name) or fnmatchcase(short_name(c), name)]
        if not found:
            raise UserError(f"{source}: no column fits {name!r}; {_suggest(name, among)}")
        return found

    def expanded(group: Sequence[str], among: Sequence[str]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for name in group for column in meant(name, among)))

    lists = ("hyperparameters", "measures", "ood", "converged", "unconverged")
    columns: dict[str, Any] = {role: expanded(getattr(given, role), names) for role in lists}
    measures = columns["measures"] or _starting(names, "complexity.")
    for role in ("higher_is_better", "logarithm"):
        columns[role] = expanded(getattr(given, role), measures)
    return replace(given, **columns)


def _named(given: Columns) -> list[str]:
    single = [given.seed, given.gap, given.test_error, given.test_accuracy, given.test_size]
    single += [given.train_loss, given.train_accuracy, given.size]
    lists = (given.hyperparameters, given.measures, given.ood, given.converged, given.unconverged)
    return [n for n in single if isinstance(n, str) and n] + [n for group in lists for n in group]


def _first(names: Sequence[str], candidates: Sequence[str]) -> str:
    return next((name for name in candidates if name in names), "")


def _starting(names: Sequence[str], prefix: str) -> tuple[str, ...]:
    return tuple(name for name in names if name.startswith(prefix) and name != prefix)


def _suggest(name: str, known: Collection[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {near[0]!r}?" if near else f"there are {', '.join(list(known)[:12])}"
