"""The Python API: what the command line does, for programs and notebooks.

The command line is a layer over it. The public names are
 those of `genbench` itself: `load_suite`, `read`, `run`, `compare`, `score`.
"""
