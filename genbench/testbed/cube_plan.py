"""The cell of a family's cube, apart from the other cells of a testbed: it has a version of its own."""

from __future__ import annotations

from collections.abc import Mapping

from genbench.engine.cells import Cell, Step, make_cell
from genbench.testbed.step_types import CubeInputs
from genbench.testbed.suite import TestbedSuite

__all__ = ["CUBE", "cube_cell"]

CUBE = Step("cube", "genbench.testbed.cube_steps:cube", "make cube")

_VERSION = 2
"""Code version of the step; raise it when it would give other bits."""


def cube_cell(suite: TestbedSuite, family: str, backbones: list[str], parents: Mapping[str, Cell]) -> Cell:
    """The cube of one family.

    Parameters
    ----------
    parents : evidence of its networks by their names, `heldout` images and `noise`.
    """
    return make_cell(
        CUBE,
        f"cube of {family}",
        CubeInputs(
            step=_VERSION,
            suite=suite.name,
            quick=suite.quick,
            family=family,
            backbones=backbones,
            adaptations=suite.adaptation_names,
            seen=suite.data.seen,
            zero_shot=suite.testbed.zero_shot,
            ssim=suite.testbed.ssim,
            dataset=suite.data.dataset,
            settings=dict(suite.content()),
        ),
        parents,
    )
