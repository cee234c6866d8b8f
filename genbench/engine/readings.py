"""SQLite (WAL) table of the readings in a store, for queries, and the history of every cell's computation.

The cells' folders are the truth. A missing or damaged table is rebuilt from them; only the history of
starts and failures is lost with it.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from genbench.engine.cells import Cell, Outcome, Step
from genbench.engine.store import Store, disk_full
from genbench.errors import StoreError

__all__ = ["READING", "ReadingTable"]

READING = Step("reading", "", "take reading", seconds=0.5)
"""One measure on one network: the cells that have a row. Hosts take readings themselves."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS readings (
    key TEXT PRIMARY KEY, suite TEXT NOT NULL, quick INTEGER NOT NULL, subject TEXT NOT NULL,
    measure TEXT NOT NULL, status TEXT NOT NULL, reason TEXT NOT NULL, value REAL,
    seconds REAL NOT NULL, shared_seconds REAL NOT NULL, peak_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX IF NOT EXISTS readings_by_measure ON readings (suite, quick, measure);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY, time REAL NOT NULL, key TEXT NOT NULL, kind TEXT NOT NULL,
    event TEXT NOT NULL, seconds REAL NOT NULL
) STRICT;
"""
_BUSY_SECONDS = 60.0
"""To wait for other runs that write."""
_PUT = "INSERT OR REPLACE INTO readings VALUES (?,?,?,?,?,?,?,?,?,?,?)"
_EVENT = "INSERT INTO events (time, key, kind, event, seconds) VALUES (?,?,?,?,?)"


class ReadingTable:
    """Readings of a store by suite, measure and subject."""

    def __init__(self, store: Store) -> None:
        self.path = store.root / "readings.sqlite"
        self.repaired = ""
        """What was wrong with the file, if it had to be rebuilt."""
        missing = not self.path.exists()
        try:
            self._connection = self._opened()
        except sqlite3.DatabaseError as problem:
            if isinstance(problem, sqlite3.OperationalError):
                raise _unusable(self.path, problem) from problem
            self.repaired = f"{self.path}: is damaged ({problem}); rebuilt from the stored cells"
            # Kept for whoever wants to look; its name keeps a second rebuild from hiding the first.
            self.path.replace(self.path.with_name(f"readings.damaged-{time.time_ns()}.sqlite"))
            for tail in ("-wal", "-shm"):
                Path(f"{self.path}{tail}").unlink(missing_ok=True)
            self._connection = self._open()
        if missing or self.repaired:
            self._fill_from(store)

    def _opened(self) -> sqlite3.Connection:
        """Open it; SQLite itself does not wait where two runs set up its log, or take up one after a kill."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            try:
                return self._open()
            except sqlite3.OperationalError as problem:
                if problem.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(0.02)

    def _open(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, timeout=_BUSY_SECONDS, isolation_level=None)
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.execute("PRAGMA synchronous=NORMAL")
            connection.executescript(_SCHEMA)
            verdict = connection.execute("PRAGMA integrity_check").fetchone()[0]
        except sqlite3.DatabaseError:
            connection.close()
            raise
        if verdict != "ok":
            connection.close()
            raise sqlite3.DatabaseError(" ".join(str(verdict).split()))
        return connection

    def _fill_from(self, store: Store) -> None:
        rows = []
        for key in store.finished():
            manifest = store.manifest(key)
            outcome = store.read(key)
            if manifest is not None and manifest["kind"] == READING.name and isinstance(outcome, Outcome):
                rows.append(_row(key, manifest["about"], outcome))
        if rows:
            self._put(rows)

    def close(self) -> None:
        """Release the file."""
        self._connection.close()

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
            except BaseException:
                if self._connection.in_transaction:  # a full disk has rolled back already
                    self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")
        except sqlite3.OperationalError as problem:
            raise _unusable(self.path, problem) from problem

    def _put(self, rows: Sequence[tuple[object, ...]]) -> None:
        with self._writing() as connection:
            connection.executemany(_PUT, rows)

    def started(self, cells: Sequence[Cell]) -> None:
        """Note that computations begin."""
        with self._writing() as connection:
            connection.executemany(_EVENT, [_event(cell, "started", 0.0) for cell in cells])

    def ended(self, ended: Sequence[tuple[Cell, Outcome]]) -> None:
        """Note how computations ended; a failure is kept here only, so that the next run tries again."""
        events = [_event(cell, str(outcome.status), outcome.cost.seconds) for cell, outcome in ended]
        rows = [_row(cell.key, cell.about, outcome) for cell, outcome in ended if cell.step == READING]
        with self._writing() as connection:
            connection.executemany(_EVENT, events)
            connection.executemany(_PUT, rows)

    def ensure(self, cell: Cell, outcome: Outcome) -> str:
        """Make a reading's row what its cell says; a sentence if the row said something else."""
        if cell.step != READING:
            return ""
        row = _row(cell.key, cell.about, outcome)
        found = self._connection.execute("SELECT * FROM readings WHERE key = ?", (cell.key,)).fetchone()
        if found == row:
            return ""
        self._put([row])
        if found is None or outcome.computed:
            return ""
        return f"{self.path}: the row of {cell.label} disagreed with its stored cell; corrected"


def _event(cell: Cell, event: str, seconds: float) -> tuple[object, ...]:
    return (time.time(), cell.key, cell.step.name, event, seconds)


def _row(key: str, about: Mapping[str, str | bool], outcome: Outcome) -> tuple[object, ...]:
    cost = outcome.cost
    return (
        key,
        about["suite"],
        int(about["quick"]),
        about["subject"],
        about["measure"],
        str(outcome.status),
        outcome.reason,
        outcome.value,
        cost.seconds,
        cost.shared_seconds,
        cost.peak_bytes,
    )


def _unusable(path: Path, problem: sqlite3.OperationalError) -> StoreError:
    if "full" in str(problem):
        return disk_full(path)
    return StoreError(f"{path} cannot be used: {problem}; check the permissions or choose another --store")
