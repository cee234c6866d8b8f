"""`genbench.load_suite`: a suite with its networks, settings and truths as tables, and its subjects."""

from __future__ import annotations

import os
import sys
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from genbench.api.execution import Execution, ExecutionArguments, default_store
from genbench.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from genbench.api.networks import SuiteSubject
    from genbench.packs.pack import Pack
    from genbench.suites.evidence import Evidence
    from genbench.suites.fields import Toml
    from genbench.suites.plan import EvidencePlan
    from genbench.suites.suite import Suite

__all__ = ["DEFAULT_SUITE", "AnySuite", "LoadedSuite", "load_suite", "open_suite"]

DEFAULT_SUITE = "mini"


def load_suite(
    suite: str | Path = DEFAULT_SUITE,
    *,
    quick: bool = False,
    changes: Toml | None = None,
    pack: str | Path | None = None,
    from_scratch: bool = False,
    store: str | Path | None = None,
    **execution: Unpack[ExecutionArguments],
) -> LoadedSuite:
    """A suite by its name, or from a TOML file.

    >>> import genbench
    >>> suite = genbench.load_suite("mini")
    >>> len(suite), suite.names[0]
    (174, 'mini-clip:short2/a1')

    Parameters
    ----------
    quick : a small subset to try out; kept apart from the rest.
    changes : fields to replace, as {"testbed.kappa": "cohen"}.
    pack : the evidence to use, in place of the one that ships with the suite: a folder, or the address of one
        that was published (https://…, hf://…), which is fetched once.
    from_scratch : train all networks here instead.
    store : the folder that keeps every result; by default GENBENCH_STORE, or `.genbench`.
    execution : `jobs`, `device`, `threads`, `timeout`, `memory`, `executor` of what has to be computed.
    """
    from genbench.suites.suite import load_suite as load

    found = load(os.fspath(suite), quick=quick, changes=changes)
    if pack is not None and from_scratch:
        raise UserError("--pack and --from-scratch exclude each other; choose one")
    evidence = None if from_scratch else _pack(found, None if pack is None else os.fspath(pack))
    return LoadedSuite(found, evidence, Path(store or default_store()), Execution(**execution))


def _pack(suite: Suite, place: str | None) -> Pack | None:
    """The evidence that was asked for, or else what ships with the suite or was published for it."""
    from genbench.packs.fetch import is_address, parse_address
    from genbench.suites.evidence_packs import find_pack, pack_in, published_pack

    if place is not None and not is_address(place):
        return pack_in(Path(place), suite)
    address = suite.published if place is None else parse_address(place)
    shipped = find_pack(suite) if place is None else None
    # A suite with other settings has other evidence than what was published for it.
    if shipped is not None or address is None or (place is None and suite.changed):
        return shipped
    from genbench.report.fetching import FetchBar

    with FetchBar(address.url) as bar:
        found = published_pack(suite, address, bar)
    if place is not None and address.sha256 is None and suite.published is None:
        print(f"to have this very pack again: --pack '{found.address}'", file=sys.stderr)
    return found


class LoadedSuite:
    """A suite, where its evidence comes from, and the store that keeps its results."""

    def __init__(self, suite: Suite, pack: Pack | None, store: Path, execution: Execution) -> None:
        self.suite = suite
        """What its file says."""
        self.pack = pack
        """Networks and truths as files; None if they are made here."""
        self.store = store
        self.execution = execution
        self._subjects: dict[str, SuiteSubject] = {}

    @property
    def name(self) -> str:
        """Of the suite."""
        return self.suite.name

    @property
    def summary(self) -> str:
        """In a line."""
        return self.suite.summary

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        return f"<suite {self.suite.title}: {self.summary}; {len(self)} networks>"

    def _repr_html_(self) -> str:
        from genbench.api.views import suite_view

        return suite_view(self)

    @cached_property
    def plan(self) -> EvidencePlan:
        """How its networks are made and their truths found."""
        from genbench.suites.kind import kind_of

        return kind_of(self.suite).plan(self.suite, self.pack)

    @cached_property
    def names(self) -> list[str]:
        """Of all networks, in the suite's order."""
        return [network.label for network in self.plan.networks]

    @cached_property
    def evidence(self) -> Evidence:
        """Truths and networks, from the pack; without one they are computed, which may mean training."""
        return self.find_evidence()

    def find_evidence(self, *, quiet: bool = False) -> Evidence:
        """The same, with lines instead of bars if `quiet`."""
        from genbench.suites.kind import kind_of

        if self.pack is not None:
            return kind_of(self.suite).packed_evidence(self.suite, self.pack)
        return self.compute_evidence(quiet=quiet)

    def compute_evidence(self, *, quiet: bool = False) -> Evidence:
        """By cells that are kept in the store, those of a pack too."""
        from genbench.report.progress import make_progress
        from genbench.runs.execute import find_evidence, require_ready, workers_of
        from genbench.runs.plan import make_plan

        how = self.execution.settle()
        plan = make_plan(self.suite, [], pack=self.pack)
        require_ready(plan, self.execution.executor)
        jobs = workers_of(plan, self.store, how)
        with make_progress(plan, self.store, jobs=jobs, quiet=quiet) as progress:
            return find_evidence(plan, self.store, progress, **how)

    @property
    def settings(self) -> pd.DataFrame:
        """Network to its settings; nothing is computed for it."""
        import pandas as pd

        rows = {network.label: dict(network.hyperparameters) for network in self.plan.networks}
        return _frame(pd.DataFrame.from_dict(rows, orient="index"))

    @property
    def networks(self) -> pd.DataFrame:
        """Network to what may be told of it before it is judged: architecture, weights, settings."""
        from msgspec import to_builtins

        return _flat({name: to_builtins(one) for name, one in self.evidence.public().items()})

    @property
    def truths(self) -> pd.DataFrame:
        """Network to all that is known of it; the column `truth` is what scatter plots show."""
        from msgspec import Struct, to_builtins

        from genbench.suites.result import Judged

        pages = self.evidence.pages(Judged([]))
        known = {
            name: {
                "truth": pages.truth(name),
                **(to_builtins(one) if isinstance(one, Struct) else dict(one)),
            }
            for name, one in self.evidence.known.items()
        }
        return _flat(known)

    def sizes(self) -> dict[str, int]:
        """Network to its number of weights, as its pack says; empty without a pack."""
        # What cells of a pack say of their networks is at hand; their evidence takes a second to read.
        results = {one.label: one.network.inputs.get("result") for one in self.plan.networks}
        known = {
            name: int(result["weights"])
            for name, result in results.items()
            if isinstance(result, dict) and "weights" in result
        }
        if known or self.pack is None:
            return known
        public = self.evidence.public()
        weights = {name: getattr(one, "weights", None) for name, one in public.items()}
        return {name: count for name, count in weights.items() if count is not None}

    @cached_property
    def smallest(self) -> str:
        """The network with the fewest weights, where that is known; else the first."""
        known = self.sizes()
        return min(known, key=lambda name: known[name]) if known else self.names[0]

    def subject(self, network: str | None = None) -> SuiteSubject:
        """One network as measures see it; by default the smallest. What measures share is kept with it."""
        from genbench.api.networks import load_subject

        name = self.smallest if network is None else self.find(network)
        if name not in self._subjects:
            (cells,) = [one for one in self.plan.networks if one.label == name]
            how = self.execution.settle()
            self._subjects[name] = load_subject(self.suite, self.plan, cells, self.store, how)
        return self._subjects[name]

    def find(self, network: str) -> str:
        """A network by its name, or by the end of it that only one has: "short4/a1"."""
        if network in self.names:
            return network
        ends = [name for name in self.names if name.endswith((f":{network}", f"/{network}"))]
        if len(ends) == 1:
            return ends[0]
        from genbench.plugin.registry import unknown_name

        listing = f"genbench networks --suite {self.suite.name}"
        raise UserError(unknown_name("network", network, self.names, listing))


AnySuite = str | Path | LoadedSuite
"""A suite by name, as a TOML file, or loaded."""


def open_suite(chosen: AnySuite, store: str | Path | None = None, **options: Any) -> LoadedSuite:
    """The suite, loaded if it is not; `options` are those of `load_suite`."""
    if not isinstance(chosen, LoadedSuite):
        return load_suite(chosen, store=store, **options)
    given = [name for name in ("quick", "changes", "pack", "from_scratch") if options.pop(name, None)]
    if given:
        raise UserError(f"{given[0]} is said when a suite is loaded: genbench.load_suite(…, {given[0]}=…)")
    execution = Execution(**options) if options else chosen.execution
    return LoadedSuite(chosen.suite, chosen.pack, chosen.store if store is None else Path(store), execution)


def _flat(rows: dict[str, Any]) -> pd.DataFrame:
    """Mappings within a row become columns of their own, "settings.depth"."""
    import pandas as pd

    frame = pd.json_normalize(list(rows.values()))
    frame.index = pd.Index(list(rows))
    return _frame(frame)


def _frame(frame: pd.DataFrame) -> pd.DataFrame:
    frame.index.name = "network"
    return frame
