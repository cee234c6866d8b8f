"""`python -m genbench` is `genbench`."""

from genbench.cli import main

main()
