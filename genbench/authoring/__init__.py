"""Starting a measure as a package of its own: what `genbench new` writes."""

from genbench.authoring.package import package_files, write_package

__all__ = ["package_files", "write_package"]
