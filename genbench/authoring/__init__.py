"""Starting a measure as a package, or a collection of networks: what `genbench new` writes."""

from genbench.authoring.collection import write_collection
from genbench.authoring.package import package_files, write_package

__all__ = ["package_files", "write_collection", "write_package"]
