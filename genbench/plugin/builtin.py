"""Everything built in, registered through the same hooks that outsiders use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from genbench.plugin.hookspecs import hookimpl
from genbench.plugin.offers import Executor, SuiteFile
from genbench.plugin.suite_kind import SuiteKind

if TYPE_CHECKING:
    from genbench.engine.executors import CellExecutor
    from genbench.plugin.contract import Measure
    from genbench.plugin.offers import Backbone, Dataset, Degradation, ExecutorRequest

_SUITES = Path(__file__).parent.parent / "suites"


@hookimpl
def genbench_measures() -> list[Measure]:
    """Measures of the papers and the baselines."""
    from genbench.measures import MEASURES

    return MEASURES


@hookimpl
def genbench_datasets() -> list[Dataset]:
    """Embedded data sets, and readers for those on disk."""
    from genbench.data import digits, fashion14, folder, glyphs, imagenet, torchvision_sets

    embedded = [glyphs.DATASET, digits.DATASET, fashion14.DATASET]
    return [*embedded, *torchvision_sets.DATASETS, *imagenet.DATASETS, *folder.DATASETS]


@hookimpl
def genbench_backbones() -> list[Backbone]:
    """Pretrained networks."""
    from genbench.zoo import clip, efficientnet, lite, mini, timm_models

    published = [*clip.BACKBONES, *efficientnet.BACKBONES, *lite.BACKBONES, *timm_models.BACKBONES]
    return [*mini.BACKBONES, *published]


@hookimpl
def genbench_degradations() -> list[Degradation]:
    """Ways to degrade images to a target SSIM, the default first."""
    from genbench.testbed.degradations import DEGRADATIONS

    return DEGRADATIONS


@hookimpl
def genbench_suites() -> list[SuiteFile]:
    """The suites that ship with genbench, named by their files."""
    return [SuiteFile(path.stem, path) for path in sorted(_SUITES.glob("*.toml"))]


@hookimpl
def genbench_suite_kinds() -> list[SuiteKind]:
    """Kinds of suites."""

    def testbed() -> object:
        from genbench.testbed.kind import TestbedKind

        return TestbedKind()

    def population() -> object:
        from genbench.population.kind import PopulationKind

        return PopulationKind()

    def collection() -> object:
        from genbench.collection.kind import CollectionKind

        return CollectionKind()

    return [
        SuiteKind("testbed", "pretrained backbones adapted and tested over zero-shot share × SSIM", testbed),
        SuiteKind("population", "networks trained from scratch over a grid of settings", population),
        SuiteKind("collection", "a researcher's own trained networks and their truths", collection),
    ]


@hookimpl
def genbench_executors() -> list[Executor]:
    """Worker processes on this machine, and on those of a cluster."""
    from genbench.engine.local import LocalExecutor

    def on_ray(request: ExecutorRequest) -> CellExecutor:
        from genbench.cluster.executor import RayExecutor

        return RayExecutor(request)

    return [
        Executor("local", "worker processes on this machine", LocalExecutor),
        Executor("ray", "the machines of a Ray cluster; see --address", on_ray, elsewhere=True),
    ]
