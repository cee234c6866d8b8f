"""Suites of networks that someone trained elsewhere: their code, weights and training data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from genbench.collection.network_rows import NetworkRow, NetworkRows, Truth, read_rows
from genbench.collection.user_code import UserFunction, find_function
from genbench.errors import UserError
from genbench.plugin.registry import load_registry
from genbench.suites import fields
from genbench.suites.suite import Suite, SuiteFields

__all__ = ["CollectionSuite", "DataTable", "NetworksTable", "read_collection"]

_NETWORK = "{network}"
Pattern = Annotated[
    str, Meta(pattern=r"\{network\}", description="a path with {network} in it, as 'weights/{network}.pt'")
]
_number = Meta(description="a number, or a list with one per channel")
Numbers = Annotated[float, _number] | list[float]
_positive = Meta(gt=0, description="a positive number, or a list with one per channel")
PositiveNumbers = Annotated[float, _positive] | list[Annotated[float, Meta(gt=0)]]


class NetworksTable(fields.Table, frozen=True):
    """What the networks are; paths are those from the suite's folder."""

    builder: fields.Text
    """FILE.py:FUNCTION or package.module:FUNCTION of the row's hyperparameters; returns a torch Module."""
    weights: Pattern
    """Of each network's state dict: safetensors, or what `torch.load(weights_only=True)` reads."""
    table: fields.Text
    """CSV or Parquet with one row per network."""
    initial: Pattern | None = None
    """The same before training."""
    strip: fields.Text | None = None
    """Removed from the front of the keys in weight files, as "module."."""


class DataTable(fields.Table, frozen=True, omit_defaults=True):
    """What the networks were trained on: a function that gives it, or a data set and how to prepare it."""

    function: fields.Text | None = None
    """FILE.py:FUNCTION or package.module:FUNCTION of nothing; returns (images, labels)."""
    dataset: fields.Text | None = None
    train_size: fields.Count | None = None
    """So many of the training images, drawn with `seed`; all of them if it is not given."""
    seed: fields.Whole | None = None
    image_side: fields.Count | None = None
    """Images are brought to squares of this side."""
    mean: Numbers | None = None
    """Of pixels from 0 to 1; networks take (pixel − mean) / std."""
    std: PositiveNumbers | None = None


@dataclass(frozen=True, kw_only=True)
class CollectionSuite(Suite):
    """Networks out of files."""

    kind = "collection"

    files: NetworksTable
    data: DataTable
    table: NetworkRows
    builder: UserFunction
    data_function: UserFunction | None

    @property
    def networks(self) -> int:
        """How many networks it has."""
        return len(self.table.rows)

    @property
    def truth(self) -> Truth:
        """What readings are judged by."""
        return self.table.truth

    @property
    def dataset(self) -> str:
        """The data set as this machine finds it: a folder of images may lie beside the suite."""
        name = self.data.dataset or ""
        family, colon, argument = name.partition(":")
        beside = self.path.parent / argument
        return f"{family}:{beside.resolve()}" if colon and argument and beside.is_dir() else name

    def weights_of(self, row: NetworkRow) -> tuple[Path, Path | None]:
        """Files with the weights of a network, after and before training."""
        final = self._file(row, self.files.weights)
        return final, None if self.files.initial is None else self._file(row, self.files.initial)

    def _file(self, row: NetworkRow, pattern: str) -> Path:
        file = self.path.parent / pattern.replace(_NETWORK, row.name)
        if not file.is_file():
            raise UserError(f"{self.path}: there is no weight file {file} of network {row.name}")
        return file.resolve()

    def content(self) -> fields.Toml:
        """Everything that determines networks and truths, but what is in the files."""
        return {"networks": self.files.given(), "data": self.data.given(), "rows": self.table.content()}


def read_collection(path: Path, content: fields.Toml, common: SuiteFields) -> CollectionSuite:
    """Check the tables [networks] and [data], and the table of networks."""
    files, data = NetworksTable.read(path, content, "networks"), DataTable.read(path, content, "data")
    _check_data(path, data)
    function = data.function and find_function(data.function, "data.function", path)
    return CollectionSuite(
        **common,
        files=files,
        data=data,
        table=read_rows(path.parent / files.table),
        builder=find_function(files.builder, "networks.builder", path),
        data_function=function or None,
    )


def _check_data(path: Path, data: DataTable) -> None:
    if (data.function is None) == (data.dataset is None):
        found = "neither" if data.function is None else "both"
        raise UserError(f"{path}: [data] needs exactly one of dataset and function, found {found}")
    if data.dataset is not None:
        try:
            load_registry().resolve("datasets", data.dataset)
        except UserError as problem:
            raise UserError(f"{path}: data.dataset: {problem}") from None
        return
    for name in data.given():
        if name != "function":
            raise UserError(
                f"{path}: data.{name} prepares the images of a data set; data.function returns them as the "
                "networks take them, so drop it"
            )
