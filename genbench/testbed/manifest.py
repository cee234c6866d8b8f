"""What the pack of a testbed lists."""

from __future__ import annotations

from genbench.packs.manifest import Manifest, Packed

__all__ = ["CUBE_FILE", "TestbedManifest"]

CUBE_FILE = "cube.nc"


class TestbedManifest(Manifest, frozen=True, kw_only=True):
    """Weights and trace per network, a cube per family."""

    __test__ = False  # not a test, whatever pytest makes of its name

    networks: dict[str, Packed]
    cubes: dict[str, Packed]
