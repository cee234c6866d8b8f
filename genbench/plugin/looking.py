"""The process that asks a plugin whether something of it is available on this machine.

Started by `genbench.plugin.elsewhere` as `python -m genbench.plugin.looking`, with a `Question` on standard
input; the last line of its output is the answer.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import msgspec

from genbench.errors import described
from genbench.plugin.elsewhere import Question, real_item
from genbench.plugin.offers import Availability, BackboneRequest, DataRequest

__all__ = ["main"]


def main() -> None:
    """Answer one question."""
    question = msgspec.json.decode(sys.stdin.buffer.read(), type=Question)
    form = DataRequest if question.kind == "datasets" else BackboneRequest
    request = msgspec.convert(question.request, form, dec_hook=_path)
    try:
        found = real_item(question.source, question.kind, question.name).available(request)
    except (Exception, SystemExit) as problem:
        found = Availability(False, described(problem))
    sys.stdout.flush()
    sys.stdout.buffer.write(b"\n" + msgspec.json.encode(found))
    sys.stdout.flush()


def _path(wanted: type, value: Any) -> Any:
    return Path(value) if wanted is Path else value


if __name__ == "__main__":
    main()
