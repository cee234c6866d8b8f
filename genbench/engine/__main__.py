"""The process that workers are forked from: `python -m genbench.engine PARENT_PID CONTROL_FD SCRATCH`."""

from __future__ import annotations

import gc
import socket
import sys
from pathlib import Path


def _start() -> None:
    # Until all is imported: the collector would look, again and again, at a million objects that stay.
    gc.disable()
    from genbench.engine.nursery import main

    main(int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2])), Path(sys.argv[3]))


if __name__ == "__main__":
    _start()
