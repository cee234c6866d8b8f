"""Suites: what is tested, as TOML files that are checked before anything runs; and the seam between kinds."""

from genbench.suites.suite import Suite, load_suite, read_suite

__all__ = ["Suite", "load_suite", "read_suite"]
