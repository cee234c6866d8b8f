"""Reads a pickle that holds dictionaries, lists, text, numbers and arrays of numbers, without unpickling it.

Instructions are read one by one and carried out here; of those that name or call something, only the ways in
which numpy and Python 2 write an array and bytes are known, and nothing of them is called. Anything else ends
the reading.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable, Iterator
from typing import Any, Final

from genbench._lazy import np

__all__ = ["NotPlain", "read_plain_pickle"]


class NotPlain(ValueError):
    """The file holds something else, or is damaged; says what."""


class _Name(str):
    """What an instruction names: "module name"; only stands for it."""


class _Type:
    """A type of numbers, as an array names it."""

    def __init__(self, name: str) -> None:
        if name not in _TYPES:
            raise NotPlain(f"it has an array of {name[:20]!r}, which are no plain numbers")
        self.name = name
        self.order = "<"


class _Array:
    """An array whose numbers have not come yet, or have."""

    value: Any = None


_ARRAY_OF = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_KNOWN = frozenset({*_ARRAY_OF, "numpy ndarray", "numpy dtype", "_codecs encode"})
_TYPES = frozenset({"u1", "u2", "u4", "u8", "i1", "i2", "i4", "i8", "f4", "f8"})
_MARK: Final = object()
_MOST = 2**31
"""Bytes of an array."""


def read_plain_pickle(data: bytes) -> Any:
    """What the pickle holds; strings of Python 2 are read as latin-1.

    Raises
    ------
    NotPlain
        If it holds anything else.
    """
    try:
        return _plain(_Machine().run(_instructions(data)))
    except NotPlain:
        raise
    except (
        ValueError,
        TypeError,
        KeyError,
        IndexError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise NotPlain(f"it is damaged ({error})") from None


def _instructions(data: bytes) -> Iterator[tuple[str, Any]]:
    for instruction, argument, _ in pickletools.genops(data):
        yield instruction.name, argument


class _Machine:
    """The stack and the memory of a pickle."""

    def __init__(self) -> None:
        self._stack: list[Any] = []
        self._memory: dict[int, Any] = {}

    def run(self, instructions: Iterator[tuple[str, Any]]) -> Any:
        """Carry them out; the last value."""
        for name, argument in instructions:
            if name == "STOP":
                return self._stack.pop()
            if name in _PUSHED:
                self._stack.append(_text(argument))
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name]())
            elif name in _IGNORED:
                continue
            elif name in _STEPS:
                _STEPS[name](self, argument)
            else:
                raise NotPlain(f"it has the instruction {name}")
        raise NotPlain("it has no end")

    def _to_mark(self) -> list[Any]:
        found = []
        while (value := self._stack.pop()) is not _MARK:
            found.append(value)
        return found[::-1]

    def tuple_of(self, count: int) -> None:
        """Join the last values."""
        values = tuple(self._stack[len(self._stack) - count :])
        del self._stack[len(self._stack) - count :]
        self._stack.append(values)

    def put(self, place: int) -> None:
        """Remember the last value."""
        self._memory[place] = self._stack[-1]

    def get(self, place: int) -> None:
        """Take a value that was remembered."""
        self._stack.append(self._memory[place])

    def extend(self, values: list[Any]) -> None:
        """Add to a list."""
        if not isinstance(self._stack[-1], list):
            raise NotPlain("it adds to something that is no list")
        self._stack[-1].extend(values)

    def fill(self, values: list[Any]) -> None:
        """Add to a dictionary."""
        if not isinstance(self._stack[-1], dict) or len(values) % 2:
            raise NotPlain("it adds to something that is no dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, str) or isinstance(key, _Name):
                raise NotPlain("it has a dictionary with keys that are no text")
            self._stack[-1][key] = value

    def call(self) -> None:
        """What the known ways to write an array and bytes come to."""
        arguments, function = self._stack.pop(), self._stack.pop()
        name = str(function) if isinstance(function, _Name) else ""
        if name in _ARRAY_OF and arguments and arguments[0] == _Name("numpy ndarray"):
            self._stack.append(_Array())
        elif name == "numpy dtype":
            self._stack.append(_Type(str(arguments[0])))
        elif name == "_codecs encode" and arguments[1] == "latin1":
            self._stack.append(str(arguments[0]))
        else:
            raise NotPlain("it makes something that is no array")

    def build(self) -> None:
        """Give an array its numbers, or a type its order of bytes."""
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, _Type) and isinstance(state, tuple) and state[1] in ("<", ">", "|", "="):
            target.order = str(state[1])
        elif isinstance(target, _Array) and isinstance(state, tuple) and len(state) == 5:
            target.value = _numbers(*state[1:])
        else:
            raise NotPlain("it gives something a state that is no array")

    def name(self, argument: str) -> None:
        """Name something; what is not known ends the reading here."""
        if argument not in _KNOWN:
            raise NotPlain(f"it asks for {argument.replace(' ', '.')[:100]}")
        self._stack.append(_Name(argument))

    def name_from_stack(self) -> None:
        """The same, by the last two values."""
        last, module = self._stack.pop(), self._stack.pop()
        self.name(f"{module} {last}")

    def drop_to_mark(self) -> list[Any]:
        """All values since the mark."""
        return self._to_mark()

    def mark(self) -> None:
        """Begin values that belong together."""
        self._stack.append(_MARK)

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def last(self) -> Any:
        """Take the last value."""
        return self._stack.pop()

    def size(self) -> int:
        """Values that are remembered."""
        return len(self._memory)


def _numbers(shape: Any, number: Any, by_columns: Any, content: Any) -> Any:
    if not isinstance(number, _Type) or not isinstance(content, str):
        raise NotPlain("it has an array that is not of plain numbers")
    if not isinstance(shape, tuple) or not all(isinstance(n, int) and 0 <= n < _MOST for n in shape):
        raise NotPlain("it has an array of no shape")
    data = content.encode("latin-1")
    dtype = np.dtype(f"{number.order if number.order in '<>' else '='}{number.name}")
    if math.prod(shape) * dtype.itemsize != len(data):
        raise NotPlain("it has an array with fewer or more numbers than its shape says")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if by_columns else "C")


def _plain(value: Any) -> Any:
    """With arrays in the place of what stood for them."""
    if isinstance(value, _Array) and value.value is not None:
        return value.value
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (_Name, _Type, _Array)) or value is _MARK:
        raise NotPlain("it holds something that is neither text, number nor array")
    return value


def _text(argument: Any) -> Any:
    return argument.decode("latin-1") if isinstance(argument, (bytes, bytearray)) else argument


_PUSHED = frozenset(
    {
        "BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING",
        "STRING", "UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BINBYTES", "SHORT_BINBYTES",
        "BINBYTES8",
    }
)  # fmt: skip
_CONSTANTS: dict[str, Callable[[], Any]] = {
    "NONE": lambda: None,
    "NEWTRUE": lambda: True,
    "NEWFALSE": lambda: False,
    "EMPTY_DICT": dict,
    "EMPTY_LIST": list,
    "EMPTY_TUPLE": tuple,
}
_IGNORED = frozenset({"PROTO", "FRAME"})
_STEPS: dict[str, Callable[[_Machine, Any], None]] = {
    "MARK": lambda machine, _: machine.mark(),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.drop_to_mark())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "LIST": lambda machine, _: machine.push(machine.drop_to_mark()),
    "APPEND": lambda machine, _: machine.extend([machine.last()]),
    "APPENDS": lambda machine, _: machine.extend(machine.drop_to_mark()),
    "SETITEM": lambda machine, _: machine.fill([machine.last(), machine.last()][::-1]),
    "SETITEMS": lambda machine, _: machine.fill(machine.drop_to_mark()),
    "PUT": lambda machine, place: machine.put(place),
    "BINPUT": lambda machine, place: machine.put(place),
    "LONG_BINPUT": lambda machine, place: machine.put(place),
    "MEMOIZE": lambda machine, _: machine.put(machine.size()),
    "GET": lambda machine, place: machine.get(place),
    "BINGET": lambda machine, place: machine.get(place),
    "LONG_BINGET": lambda machine, place: machine.get(place),
    "GLOBAL": lambda machine, argument: machine.name(argument),
    "STACK_GLOBAL": lambda machine, _: machine.name_from_stack(),
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
}
