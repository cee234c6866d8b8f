"""Make `import torchvision` work where its compiled operators cannot load.

timm and open_clip import torchvision for its transforms. A torchvision built for CUDA beside a CPU torch
fails while it registers fake versions of two compiled operators, `nms` and `qnms`, because their schemas
were never declared. Declaring the schemas first is enough; nothing in genbench calls the operators.

Importing this module has them declared when torchvision is first imported, by whomever: the zoo, a plugin or
a user's own file. It imports neither torch nor torchvision itself, so that every process can afford it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# The schemas live as long as this object; dropping it would undeclare them.
_declared: object = None


class _TorchvisionFinder:
    """Finds torchvision where the others find it, and has its loader declare the schemas first."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != "torchvision":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        if spec is None or spec.loader is None:
            return spec  # not installed: the import error that follows is the right message
        execute = spec.loader.exec_module

        def declare_and_execute(module: ModuleType) -> None:
            _declare_missing_operators(spec)
            execute(module)

        spec.loader.exec_module = declare_and_execute  # type: ignore[method-assign]
        return spec


def _compiled_operators_load(spec: ModuleSpec) -> bool:
    """Whether torchvision's own extension loads; asked before torchvision itself is imported."""
    import pathlib

    import torch

    for folder in spec.submodule_search_locations or ():
        for extension in sorted(pathlib.Path(folder).glob("_C*.so")):
            try:
                torch.ops.load_library(str(extension))
            except (OSError, RuntimeError):
                return False
            return True
    return False


def _declare_missing_operators(spec: ModuleSpec) -> None:
    global _declared
    if _declared is not None or _compiled_operators_load(spec):
        return
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + _NMS)
    _declared = library


sys.meta_path.insert(0, _TorchvisionFinder())
