"""`genbench.Monitor`: measures of a network while it trains."""

from __future__ import annotations

import copy
import csv
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from genbench.api.planning import as_measures
from genbench.api.readings import AnyMeasure, find_one, read
from genbench.errors import NotApplicable, UserError
from genbench.plugin.contract import Measure

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure
    from torch import Tensor, nn

    from genbench.subject.inputs import Inputs

__all__ = ["Monitor"]

Row = Mapping[str, float | None]
"""Measure to its value after an epoch; None where it does not apply."""


class ScalarWriter(Protocol):
    """What TensorBoard's SummaryWriter is to a monitor."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Take one number."""


Log = str | Path | ScalarWriter | Callable[[int, Row], object]
"""Where readings go: a CSV file, a SummaryWriter, or a function of the epoch and the readings."""


class Monitor:
    """Reads measures off a network after every epoch of its training, or every so many.

        monitor = genbench.Monitor(["path_norm", "sharpness"], (inputs, labels), every=2, log="curves.csv")
        monitor.start(model)                      # its weights now are the initial ones
        for epoch in range(10):
            train(model)
            monitor.step(model, epoch)
        monitor.plot()

    The network is copied before it is read: its mode, its gradients and all generators of random numbers are
    afterwards as they were, so that training goes the same way with and without.
    """

    def __init__(
        self,
        measures: AnyMeasure | Iterable[AnyMeasure],
        data: tuple[Tensor | Inputs, Tensor] | Iterable[tuple[Tensor, Tensor]],
        *,
        every: int = 1,
        log: Log | Sequence[Log] = (),
        classes: int | None = None,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        """Get ready; nothing is read yet.

        Parameters
        ----------
        measures : names, files or `genbench.Measure`s.
        data : the training set as tensors (inputs, labels), or batches of such; copied once.
        every : epochs from one reading to the next.
        log : CSV file, TensorBoard writer or function, or several.
        threads : of torch while a measure is read; None leaves them as they are.
        """
        from genbench.subject.inputs import gathered

        if every < 1:
            raise UserError(f"every={every}: a monitor reads every epoch (1), every second (2), …")
        self._measures = [
            one if isinstance(one, Measure) else find_one(one).item for one in as_measures(measures)
        ]
        if not self._measures:
            raise UserError("say what to read: the name of a measure, a file, or a genbench.Measure")
        self._inputs, self._labels = gathered(data)
        self._every, self._classes, self._seed, self._threads = every, classes, seed, threads
        self._logs = _logs(log)
        self._initial: nn.Module | None = None
        self.rows: list[dict[str, Any]] = []
        """One per reading: epoch, then measure to value."""
        self.reasons: dict[str, str] = {}
        """Measure to why it does not apply, of those that do not."""

    def start(self, model: nn.Module) -> None:
        """Remember the network as its training starts, for measures that compare with it."""
        self._initial = copy.deepcopy(model)

    def step(self, model: nn.Module, epoch: int) -> Row:
        """Read the measures, if this epoch's turn it is; gives what was read."""
        from genbench.subject.subject import Subject

        if epoch % self._every:
            return {}
        device = next((p.device for p in model.parameters()), self._inputs.device)
        subject = Subject.from_module(
            model,
            data=(self._inputs.to(device), self._labels.to(device)),
            initial=self._initial,
            classes=self._classes,
            seed=self._seed,
            name=f"epoch {epoch}",
        )
        row: dict[str, float | None] = {}
        for measure in self._measures:
            try:
                row[measure.name] = float(read(measure, subject, threads=self._threads))
            except NotApplicable as refusal:
                row[measure.name] = None
                self.reasons[measure.name] = str(refusal)
        self.rows.append({"epoch": epoch, **row})
        for log in self._logs:
            log(epoch, row)
        return row

    @property
    def frame(self) -> pd.DataFrame:
        """Epoch to the value of every measure."""
        import pandas as pd

        columns = ["epoch", *(measure.name for measure in self._measures)]
        return pd.DataFrame(self.rows, columns=columns).set_index("epoch").astype(float)

    def plot(self) -> Figure:
        """Curves of all measures, one below the other."""
        from genbench.display.curves import curves

        frame = self.frame
        return curves("epoch", frame.index.tolist(), {str(name): frame[name].tolist() for name in frame})

    def _repr_html_(self) -> str:
        from genbench.api.views import figure_html

        return (
            figure_html(self.plot(), "measures over training") if self.rows else "<p>nothing was read yet</p>"
        )

    def callback(self, network: Callable[[Any], nn.Module] = lambda module: module) -> Any:
        """A Lightning callback that starts with the fit and reads after every training epoch.

        Parameters
        ----------
        network : gives the network of a LightningModule, for example `lambda module: module.model`; by
            default the module itself, which is copied.
        """
        try:
            from lightning.pytorch import Callback
        except ImportError:
            raise UserError("the callback needs Lightning; run `pip install 'genbench[lightning]'`") from None
        monitor = self

        class MonitorCallback(Callback):  # type: ignore[misc]
            """Reads the monitor's measures."""

            def on_fit_start(self, trainer: Any, pl_module: Any) -> None:
                """The initial weights."""
                monitor.start(_detached(network(pl_module)))

            def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
                """A reading."""
                monitor.step(_detached(network(pl_module)), trainer.current_epoch)

        return MonitorCallback()


def _detached(module: nn.Module) -> nn.Module:
    """A module without its trainer, which cannot be copied and holds the data."""
    if not hasattr(module, "_trainer"):
        return module
    held: Any = module
    trainer, held._trainer = held._trainer, None
    try:
        return copy.deepcopy(module)
    finally:
        held._trainer = trainer


def _logs(given: Log | Sequence[Log]) -> list[Callable[[int, Row], object]]:
    several = given if isinstance(given, (list, tuple)) else [given]
    return [_log(one) for one in several]


def _log(target: Any) -> Callable[[int, Row], object]:
    if isinstance(target, (str, Path)):
        return _CsvLog(Path(target))
    if hasattr(target, "add_scalar"):
        return lambda epoch, row: [
            target.add_scalar(f"genbench/{name}", value, epoch)
            for name, value in row.items()
            if value is not None
        ]
    if callable(target):
        called: Callable[[int, Row], object] = target
        return called
    raise UserError(f"log={target!r}: give a CSV file, a SummaryWriter or a function of epoch and readings")


class _CsvLog:
    """A file with one line per reading, whole after each."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if path.suffix != ".csv":
            raise UserError(f"log={path}: curves are CSV; give a file that ends in .csv")

    def __call__(self, epoch: int, row: Row) -> None:
        new = not self._path.exists()
        with self._path.open("a", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            if new:
                writer.writerow(["epoch", *row])
            writer.writerow([epoch, *("" if value is None else value for value in row.values())])
