"""Suites: what is tested, as TOML files that are checked before anything runs."""

from genbench.population.suite import PopulationSuite
from genbench.suites.suite import Suite, load_suite, read_suite
from genbench.testbed.suite import TestbedSuite

__all__ = ["PopulationSuite", "Suite", "TestbedSuite", "load_suite", "read_suite"]
