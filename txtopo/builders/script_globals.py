"""changed_globals: which globals of the user's script its spouts and bolts change.

Classes and functions of a script or a notebook travel to workers by value, see
:mod:`txtopo.stages.pickling`, and the globals that they name travel with them. So each worker
changes a copy, and the script never sees the change.

A change is found where the code of a function shows it: ``global total``, ``TABLE[key] = …``,
``TABLE.update(…)``, ``SETTINGS.limit = …``. A change under another name (``table = TABLE``) is not
found.
"""

from __future__ import annotations

import dis
from collections.abc import Iterable, Iterator, MutableMapping, MutableSequence, MutableSet
from types import CodeType, FunctionType

from txtopo.stages.pickling import travels_by_value

CONTAINERS = (MutableMapping, MutableSequence, MutableSet)
CHANGING_METHODS = frozenset(
    (
        *("__delitem__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"),
        *("append", "appendleft", "extend", "extendleft", "insert", "popleft", "remove"),
        *("reverse", "rotate", "sort", "move_to_end", "subtract", "add", "discard"),
        *("difference_update", "intersection_update", "symmetric_difference_update"),
    )
)
"""The methods of the containers of Python and ``collections`` that change them."""

JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])
PLACES = {"STORE_SUBSCR": 1, "DELETE_SUBSCR": 1, "STORE_ATTR": 0, "DELETE_ATTR": 0}
"""Instructions that change an object, and how far below the top of the stack the object is."""


def changed_globals(parts: Iterable[object]) -> dict[str, str]:
    """Return the globals that functions change, each with the name of such a function.

    Args:
        parts: Classes and functions; other objects are ignored, and so is what workers import.
    """
    changed: dict[str, str] = {}
    waiting = [function for part in parts for function in _functions(part)]
    seen: set[int] = set()
    while waiting:
        function = waiting.pop(0)
        if id(function) in seen or not travels_by_value(function):
            continue
        seen.add(id(function))
        for code in _codes(function.__code__):
            for name in _changed(code, function.__globals__):
                changed.setdefault(name, function.__qualname__)
            called = (function.__globals__.get(name) for name in code.co_names)
            waiting += [each for each in called if isinstance(each, FunctionType)]
    return changed


def _functions(part: object) -> Iterator[FunctionType]:
    if isinstance(part, FunctionType):
        yield part
    elif isinstance(part, type):
        members = [each for kind in part.__mro__ for each in vars(kind).values()]
        # The function of a class method, a static method or a property.
        members += [getattr(each, "__func__", getattr(each, "fget", None)) for each in members]
        yield from (each for each in members if isinstance(each, FunctionType))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _changed(code: CodeType, known: dict[str, object]) -> Iterator[str]:
    instructions = list(dis.get_instructions(code))
    for at, instruction in enumerate(instructions):
        name = instruction.argval
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield name
        elif (place := PLACES.get(instruction.opname)) is not None:
            target = _loaded_global(instructions[:at], place)
            if target in known and ("ATTR" in instruction.opname or _is_container(known[target])):
                yield target
        elif instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and name in CHANGING_METHODS:
            target = _loaded_global(instructions[:at], 0)
            if target in known and _is_container(known[target]):
                yield target


def _is_container(value: object) -> bool:
    return isinstance(value, CONTAINERS)


def _loaded_global(before: list[dis.Instruction], place: int) -> str:
    """Return the global that loaded the value *place* positions below the top of the stack.

    An element, an attribute or a result comes from the object that it is taken from. The code is
    followed back up to a jump, so a condition within the expression may hide the global.

    Returns:
        Its name; empty if the object does not come from a global.
    """
    for instruction in reversed(before):
        number = instruction.arg or 0
        effect = dis.stack_effect(instruction.opcode, instruction.arg, jump=False)
        if instruction.opname == "SWAP":
            place = {0: number - 1, number - 1: 0}.get(place, place)
        elif instruction.opname == "COPY":
            place = place - 1 if place else number - 1
        elif place < effect:
            return str(instruction.argval) if instruction.opname == "LOAD_GLOBAL" else ""
        else:
            place -= effect
        if instruction.is_jump_target or instruction.opcode in JUMPS:
            break
    return ""
