"""Make `import torchvision` work where its compiled operators cannot load.

timm and open_clip import torchvision for its transforms. A torchvision built for CUDA beside a CPU torch
fails while it registers fake versions of two compiled operators, `nms` and `qnms`, because their schemas
were never declared. Declaring the schemas first is enough; nothing in genbench calls the operators.

Import this module before timm, open_clip or torchvision.
"""

from __future__ import annotations

import importlib.util
import sys

import torch

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# The schemas live as long as this object; dropping it would undeclare them.
_declared: torch.library.Library | None = None


def _compiled_operators_load() -> bool:
    """Whether torchvision's own extension loads; asked before torchvision itself is imported."""
    spec = importlib.util.find_spec("torchvision")
    if spec is None or not spec.submodule_search_locations:
        return True  # not installed: the import error that follows is the right message
    import pathlib

    for folder in spec.submodule_search_locations:
        for extension in sorted(pathlib.Path(folder).glob("_C*.so")):
            try:
                torch.ops.load_library(str(extension))
            except (OSError, RuntimeError):
                return False
            return True
    return False


def _declare_missing_operators() -> None:
    global _declared
    if "torchvision" in sys.modules or _compiled_operators_load():
        return
    _declared = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        _declared.define(operator + _NMS)


_declare_missing_operators()
