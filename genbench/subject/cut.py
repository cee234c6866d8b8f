"""Cuts a folded network in two at the output of one of its blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import fx, nn

from genbench.errors import NotApplicable
from genbench.subject.folding import FoldedNetwork

__all__ = ["CutNetwork", "cut_after_block"]

_ACTIVATIONS = ("relu", "silu", "gelu", "sigmoid", "tanh", "elu", "mish", "hardswish", "mul")


@dataclass(frozen=True)
class CutNetwork:
    """`rest(first(x))` is the network's output; in between is the output of a block."""

    first: nn.Module
    rest: nn.Module
    where: str
    """Name of the block or the node at which it was cut."""


def cut_after_block(folded: FoldedNetwork, number: int = 1) -> CutNetwork:
    """Cut where everything that follows depends on the input through one tensor alone.

    The first block is the first submodule to end at such a place, with the submodules around it, that holds
    at least two and at most half of the network's layers: the first residual stage, the first NiN block. In
    a network without such submodules it is the first layer with its activation. The second block is the same
    behind the first, and so on.
    """
    nodes = list(folded.module.graph.nodes)
    layers = set(folded.layer_names)
    blocks = _block_ends(nodes, layers)
    meeting = [(end, name) for end, name in sorted(blocks.items()) if _all_through(nodes, end)]
    places = _stages(meeting) if meeting else _activations(folded, nodes, layers)
    for count, (index, name) in enumerate(places, start=1):
        if count == number:
            return _cut(folded, nodes, index, name)
    if number == 1:
        raise NotApplicable("the network has no first block: nowhere do all paths meet behind a layer")
    raise NotApplicable(f"the network has no block {number} at whose end all paths meet")


def _stages(meeting: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Ends and names of one block after the other."""
    while meeting:
        # A gate or a single block may end there too; what counts is the stage around them.
        inner = meeting[0][1]
        last = max((e, n) for e, n in meeting if n == inner or inner.startswith(f"{n}."))
        yield last
        meeting = [(end, name) for end, name in meeting if end > last[0]]


def _activations(folded: FoldedNetwork, nodes: list[fx.Node], layers: set[str]) -> Iterator[tuple[int, str]]:
    """Places and names of the activation behind one layer after the other."""
    seen = False
    for index, node in enumerate(nodes):
        seen = seen or (node.op == "call_module" and node.target in layers)
        if seen and _is_activation(folded, node) and _all_through(nodes, index):
            yield index, node.name
            seen = False


def _block_ends(nodes: list[fx.Node], layers: set[str]) -> dict[int, str]:
    """Index of the last node of every candidate submodule."""
    held: dict[str, set[str]] = {}
    last: dict[str, int] = {}
    for index, node in enumerate(nodes):
        for name in node.meta.get("nn_module_stack", {}):
            last[name] = index
            if node.op == "call_module" and node.target in layers:
                held.setdefault(name, set()).add(str(node.target))
    ends: dict[int, str] = {}
    for name, inside in held.items():
        if name and name not in layers and 2 <= len(inside) <= len(layers) / 2:
            ends.setdefault(last[name], name)
    return ends


def _is_activation(folded: FoldedNetwork, node: fx.Node) -> bool:
    if node.op == "call_module":
        name = type(folded.module.get_submodule(str(node.target))).__name__.lower()
    elif node.op == "call_function":
        name = getattr(node.target, "__name__", "")
    else:
        name = str(node.target) if node.op == "call_method" else ""
    return name.rstrip("_") in _ACTIVATIONS


def _constant(node: fx.Node) -> bool:
    """Whether a node depends on parameters alone."""
    return node.op == "get_attr" or (
        node.op in ("call_function", "call_method")
        and bool(node.all_input_nodes)
        and all(_constant(source) for source in node.all_input_nodes)
    )


def _all_through(nodes: list[fx.Node], index: int) -> bool:
    before = set(nodes[:index])
    return all(
        source not in before or _constant(source)
        for node in nodes[index + 1 :]
        if not _constant(node)
        for source in node.all_input_nodes
    )


def _cut(folded: FoldedNetwork, nodes: list[fx.Node], index: int, where: str) -> CutNetwork:
    first, rest = fx.Graph(), fx.Graph()
    copied: dict[fx.Node, fx.Node] = {}
    for node in nodes[: index + 1]:
        copied[node] = first.node_copy(node, lambda source: copied[source])
    first.output(copied[nodes[index]])
    later = {nodes[index]: rest.placeholder("hidden")}
    for position, node in enumerate(nodes):
        if position > index or _constant(node):
            later[node] = rest.node_copy(node, lambda source: later[source])
    return CutNetwork(
        fx.GraphModule(folded.module, first).eval(), fx.GraphModule(folded.module, rest).eval(), where
    )
