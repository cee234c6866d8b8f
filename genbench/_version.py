"""The version of genbench, for rooms that must not know its public face."""

__all__ = ["__version__"]

__version__ = "0.1.0"
