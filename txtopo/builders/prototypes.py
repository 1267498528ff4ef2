"""Prototypes: pickled copies of the user's spouts and bolts; finds what cannot be pickled.

If an object cannot be pickled, the error names the path of the attribute to blame. Pickle itself
only says ``cannot pickle '_thread.lock' object``.
"""

from __future__ import annotations

import functools
import types
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from txtopo.builders.script_globals import changed_globals
from txtopo.errors import TopologyError, TopologyWarning
from txtopo.groupings import CustomGrouping
from txtopo.stages.pickling import Prototype, dumps
from txtopo.topology.bolt_kinds import PERSISTENT_AGGREGATE
from txtopo.topology.component import Component, Subscription

T = TypeVar("T")

# Above this size copies slow down every start and every worker. (Spark warns of tasks of more than
# 1 MiB, but a prototype is broadcast, not sent with every task.)
PICKLE_BYTES_MAX = 10 * 1024 * 1024
# Object graphs are followed to this depth; the error shows the path found so far.
PATH_STEPS_MAX = 20


def snapshot(component: Component) -> Component:
    """Return the component with copies of the user's objects as they are now.

    Raises:
        TopologyError: An object cannot be pickled; repair the attribute that the message names.
    """
    subscriptions = tuple(_copied(component.id, each) for each in component.subscriptions)
    if component.kind == PERSISTENT_AGGREGATE:
        # It never changes, and its state belongs to the driver.
        return replace(component, subscriptions=subscriptions)
    what = f"{'spout' if component.kind.spout else 'bolt'} {component.id!r}"
    prototype = _copy(what, component.prototype, component.id)
    return replace(component, prototype=prototype, subscriptions=subscriptions)


def _copied(component: str, subscription: Subscription) -> Subscription:
    if not isinstance(subscription.grouping, CustomGrouping):
        return subscription
    what = f"custom grouping of bolt {component!r}"
    return replace(subscription, grouping=_copy(what, subscription.grouping, component))


def _copy(what: str, original: T, component: str) -> T:
    try:
        pickled = dumps(original)
    except Exception as error:  # a user's __reduce__ may raise anything
        path, culprit = _culprit(original)
        raise TopologyError(
            f"{what} cannot be pickled: {path} is {_kind(culprit)} ({error}); {_remedy(culprit)}",
            component=component,
            path=path,
        ) from error
    if len(pickled) > PICKLE_BYTES_MAX:
        warnings.warn(
            f"{what} is too large; got {len(pickled) / (1 << 20):.1f} MiB pickled; expected at "
            f"most {PICKLE_BYTES_MAX >> 20} MiB; load the data in prepare() or read it with a "
            "spout",
            TopologyWarning,
            stacklevel=4,  # the caller of build_topology, which calls snapshot by map
        )
    try:
        prototype = Prototype(original)
        copy = prototype.copy()
    except Exception as error:  # a user's __setstate__ may raise anything
        raise TopologyError(
            f"{what} can be pickled but not read back: {type(error).__name__}: {error}; look at "
            "its __reduce__, __setstate__ or __init__",
            component=component,
        ) from error
    for name, function in changed_globals(prototype.shared).items():
        warnings.warn(
            f"{what} changes the global {name!r} of its script, in {function}(); on Spark each "
            "worker has its own copy, so the script does not see the change, and in the driver "
            "the change is lost when the process ends; keep anything that must last in a state "
            "or a database",
            TopologyWarning,
            stacklevel=4,
        )
    return copy


def _culprit(root: object) -> tuple[str, object]:
    """Return the path to the innermost object that cannot be pickled, and that object."""
    path, culprit = "self", root
    seen = {id(root)}
    for _ in range(PATH_STEPS_MAX):
        for step, part in _parts(culprit):
            if id(part) not in seen and not _picklable(part):
                seen.add(id(part))
                path, culprit = path + step, part
                break
        else:
            break
    return path, culprit


def _picklable(part: object) -> bool:
    try:
        dumps(part)
    except Exception:  # noqa: BLE001 - whatever it is, it cannot be pickled
        return False
    return True


def _parts(whole: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of an object, each with its step in the path."""
    if _of_spark(whole):
        return
    if isinstance(whole, types.MethodType):
        yield ".__self__", whole.__self__
        yield ".__func__", whole.__func__
    elif isinstance(whole, types.FunctionType):
        yield from _variables(whole)
    elif isinstance(whole, functools.partial):
        yield ".func", whole.func
        yield ".args", whole.args
        yield ".keywords", whole.keywords
    elif isinstance(whole, Mapping):
        yield from ((f"[{key!r}]", value) for key, value in whole.items())
        yield from ((f" key {key!r}", key) for key in whole)
    elif isinstance(whole, list | tuple):
        yield from ((f"[{at}]", value) for at, value in enumerate(whole))
    elif isinstance(whole, set | frozenset):
        yield from ((f"{{{value!r}}}", value) for value in whole)
    if isinstance(whole, type):
        yield from ((f".{name}", value) for name, value in vars(whole).items())
    elif not isinstance(whole, types.FunctionType):
        yield from _attributes(whole)


def _attributes(whole: object) -> Iterator[tuple[str, object]]:
    yield from ((f".{name}", value) for name, value in getattr(whole, "__dict__", {}).items())
    for kind in type(whole).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if hasattr(whole, name):
                yield f".{name}", getattr(whole, name)
    # The class of an object in __main__ travels by value, its methods and their globals too.
    yield ".__class__", type(whole)


def _variables(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        yield f" variable {name!r}", cell.cell_contents
    for name in code.co_names:
        if name in function.__globals__:
            yield f" global {name!r}", function.__globals__[name]
    for at, value in enumerate(function.__defaults__ or ()):
        yield f".__defaults__[{at}]", value


def _of_spark(whole: object) -> bool:
    return type(whole).__module__.split(".")[0] in ("pyspark", "py4j")


def _kind(culprit: object) -> str:
    kind = type(culprit)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
    return f"a {name}"


def _remedy(culprit: object) -> str:
    if _of_spark(culprit):
        return "sessions and DataFrames exist only in the driver; read the data with a spout"
    return "create it in prepare(), which is called in each task"
