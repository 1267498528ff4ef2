"""Components: the spouts and bolts of a topology, the kind of each, and which ids are valid."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from txtopo.bolts.bolt import Committer
from txtopo.dead_letters import DeadLetterRule
from txtopo.errors import TopologyError
from txtopo.groupings import Grouping
from txtopo.metadata import BatchMetadata
from txtopo.registered import Registered
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import BASIC_BOLT, BOLTS, BoltKind
from txtopo.topology.spout_kinds import SPOUTS, SpoutKind
from txtopo.traits import Traits, traits_of
from txtopo.tuples import DEFAULT_STREAM, Fields, Stream

Kind = TypeVar("Kind", bound="SpoutKind | BoltKind")


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or bolt of a topology.

    Attributes:
        id: Its id in the topology.
        kind: What the framework does with it.
        prototype: The user's object, which is copied for each task of each attempt.
        parallelism: The number of its tasks.
        streams: Its declared outputs by name.
        subscriptions: Its inputs; at most one for each (source, stream).
        committer: Whether it is a committer, and not only below one.
        states: Its states by name.
        dead_letters: When it makes a dead letter of a record; None for never.
    """

    id: str
    kind: SpoutKind | BoltKind
    prototype: object
    parallelism: int
    streams: Mapping[str, Stream]
    subscriptions: tuple[Subscription, ...] = ()
    committer: bool = False
    states: Mapping[str, State] = field(default_factory=dict)
    dead_letters: DeadLetterRule | None = None

    @property
    def traits(self) -> Traits:
        """The traits that the prototype declares."""
        return traits_of(self.prototype)

    @property
    def spout_kind(self) -> SpoutKind:
        """The kind of the spout, which decides what the framework does with it."""
        assert isinstance(self.kind, SpoutKind)
        return self.kind


@dataclass(frozen=True, slots=True)
class Subscription:
    """One input of a bolt.

    Attributes:
        source: Id of the component that emits.
        stream: Name of its stream.
        grouping: How its tuples are shared among the tasks of the bolt.
    """

    source: str
    stream: str
    grouping: Grouping


def lacks_end(spouts: Sequence[Component], metadata: BatchMetadata, *, adopted: bool) -> bool:
    """Return whether metadata of a batch that states hold does not say where the batch ended.

    The end is durable before the commit of a batch starts, and a replay of a repeatable spout keeps
    it. Without it, another batch would be taken for the one that the states hold.

    Args:
        spouts: The spouts of the topology.
        metadata: The stored metadata.
        adopted: Whether the batch is taken over as it is, and not done again.
    """
    needed = cutting(spouts)
    if not adopted:
        needed = frozenset(filter(metadata.takes_part, needed.intersection(repeating(spouts))))
    return not metadata.is_cut(needed)


def cutting(spouts: Iterable[Component]) -> frozenset[str]:
    """Return the ids of the spouts whose emitters decide where a batch ends."""
    return frozenset(each.id for each in spouts if not each.spout_kind.plans_batches)


def repeating(spouts: Iterable[Component]) -> tuple[str, ...]:
    """Return the ids of the spouts whose replays keep where a batch ended."""
    return tuple(each.id for each in spouts if each.spout_kind.repeats)


def declared_streams(prototype: Any) -> dict[str, Stream]:
    """Return the streams that a spout or bolt declares, by name.

    ``output_fields`` declares the stream ``default``; ``output_streams`` declares others, as
    ``Stream`` or ``Fields``.
    """
    streams: dict[str, Stream] = {}
    fields = prototype.output_fields
    if fields is not None:
        streams[DEFAULT_STREAM] = Stream(fields)
    for name, declared in (prototype.output_streams or {}).items():
        streams[name] = Stream(declared) if isinstance(declared, Fields) else declared
    return streams


RELIABLE_KINDS: Registered[Mapping[type, SpoutKind | BoltKind]] = Registered(
    "kinds of at-least-once topologies"
)
"""The kinds of spouts and bolts that a ``TopologyBuilder`` takes, by the class of the user."""

DEFAULT_ID = "topology"
"""The id of an at-least-once topology that was given none."""

ASYNC = "async"
"""Why a function does not run when it is called: it makes a coroutine."""

COMMIT = {"commit": ("frame", "attempt")}
"""The method of a ``DataFrameBolt`` that is a committer."""


def spout_kind(id: str, spout: object, kinds: Mapping[type, SpoutKind] = SPOUTS) -> SpoutKind:
    """Return the kind of a spout.

    Raises:
        TopologyError: The object is of none of *kinds*, or of several; the message says what it
            lacks.
    """
    if spout is None:
        raise TopologyError(
            f"the spout is missing; got None for {id!r}; expected an instance of {_names(kinds)}",
            component=id,
        )
    return _kind("spout", id, spout, kinds).of(spout)


def bolt_kind(id: str, bolt: object, kinds: Mapping[type, BoltKind] = BOLTS) -> BoltKind:
    """Return the kind of a bolt.

    Raises:
        TopologyError: The object is of none of *kinds*, or of several; the message says what it
            lacks.
    """
    kind = _kind("bolt", id, bolt, kinds)
    if kind == BASIC_BOLT and isinstance(bolt, Committer):
        raise not_a_committer(id, bolt)
    return kind


def not_a_committer(id: str, bolt: object) -> TopologyError:
    """Return the error for a basic bolt that is declared as a committer."""
    return TopologyError(
        f"bolt {id!r} cannot be a committer; got the BasicBolt {type(bolt).__name__}, which sees "
        "single tuples; expected a BatchBolt, ArrowBolt, DataFrameBolt or PersistentAggregate",
        component=id,
    )


def checked_streams(id: str, component: Any) -> Mapping[str, Stream]:
    """Return the streams that a spout or bolt declares.

    Raises:
        TopologyError: A declaration is neither ``Fields`` nor ``Stream``.
    """
    fields = component.output_fields
    if fields is not None and not isinstance(fields, Fields):
        raise _undeclared(id, "output_fields", fields)
    more = component.output_streams or {}
    if not isinstance(more, Mapping):
        raise _undeclared(id, "output_streams", more)
    for name, declared in more.items():
        if not isinstance(declared, Fields | Stream):
            raise _undeclared(id, f"output_streams[{name!r}]", declared)
    streams = declared_streams(component)
    for name, stream in streams.items():
        for declared in stream.fields:
            if declared.type == "json":
                raise TopologyError(
                    f"field {declared.name!r} of stream {name!r} of {id!r} has the type json, "
                    "which is only for the values of a state; expected another type; declare it "
                    "as a string, and use json.dumps and json.loads",
                    component=id,
                )
    return streams


def _undeclared(id: str, attribute: str, got: object) -> TopologyError:
    expected = (
        "a mapping of name to Fields or Stream" if attribute == "output_streams" else "Fields"
    )
    return TopologyError(
        f"{attribute} of {id!r} is of the wrong type; got {got!r}; expected {expected}; "
        'write e.g. Fields("word string, amount long")',
        component=id,
    )


def _kind(what: str, id: str, component: object, kinds: Mapping[type, Kind]) -> Kind:
    if isinstance(component, type):
        raise TopologyError(
            f"{what} {id!r} is a class; got {component.__name__}; expected an instance; "
            f"write {component.__name__}(…)",
            component=id,
        )
    found = [kind for kind in kinds if isinstance(component, kind)]
    if len(found) > 1:
        raise TopologyError(
            f"{what} {id!r} has more than one role; got {type(component).__name__}, which is "
            f"{_names(found, 'and')}; expected one; derive it from one of them",
            component=id,
        )
    if not found:
        raise TopologyError(
            f"{what} {id!r} is not a {what}; got {component!r:.100}; expected an instance of "
            f"{_names(kinds)}; {_lacking(what, component, kinds)}",
            component=id,
        )
    kind = kinds[found[0]]
    check_calls(what, id, component, kind.calls)
    return kind


def _lacking(what: str, component: object, kinds: Mapping[type, Kind]) -> str:
    """Return which methods an object lacks of the kind that it is most similar to."""

    def missing(kind: type) -> list[str]:
        return [name for name in kinds[kind].calls if not callable(getattr(component, name, None))]

    builders: dict[str, Mapping[type, SpoutKind | BoltKind]] = {
        "TransactionalTopologyBuilder": {**SPOUTS, **BOLTS},
        "TopologyBuilder": RELIABLE_KINDS.get(),
    }
    for builder, taken in builders.items():
        for base, kind in taken.items():
            if isinstance(component, base) and kind.spout is (what == "spout"):
                return f"it is a {base.__name__}, which a {builder} takes"
    near = min((kind for kind in kinds if kinds[kind].calls), key=lambda kind: len(missing(kind)))
    lacks = missing(near)
    if len(lacks) == len(kinds[near].calls):
        return "it has none of their methods"
    if lacks:
        return f"it lacks {', '.join(lacks)} of {near.__name__}"
    return f"it has the methods of {near.__name__} but is not derived from it"


def check_calls(
    what: str, id: str, component: object, calls: Mapping[str, tuple[str, ...]]
) -> None:
    """Check that the methods of an object take the arguments that the framework passes, and run.

    Raises:
        TopologyError: One does not; the message says which arguments it must take, or why it would
            not run.
    """
    check_runs(what, id, component, *calls)
    for name, arguments in calls.items():
        method = getattr(component, name)
        try:
            signature = inspect.signature(method)
            signature.bind(*arguments)
        except ValueError:
            continue  # a method in C has no signature
        except TypeError as error:
            raise TopologyError(
                f"{name} of {what} {id!r} does not fit its call; got {name}{signature}; expected "
                f"{name}({', '.join(arguments)})",
                component=id,
                method=name,
            ) from error


def check_runs(what: str, id: str, component: object, *names: str) -> None:
    """Check that a call of these methods runs them; those that an object lacks are passed over.

    Raises:
        TopologyError: One is a generator or async, so a call would run nothing of it.
    """
    for name in names:
        if why := runs_later(getattr(component, name, None)):
            raise TopologyError(
                f"{name} of {what} {id!r} does not run when it is called, because it is {why}; "
                "expected a method that has done its work when it returns",
                component=id,
                method=name,
            )


def runs_later(function: object) -> str:
    """Return why a call of a function runs none of its code; empty if it runs."""
    # An object that is called has its code in __call__.
    for called in (function, getattr(function, "__call__", None)):  # noqa: B004
        if inspect.iscoroutinefunction(called) or inspect.isasyncgenfunction(called):
            return ASYNC
        if inspect.isgeneratorfunction(called):
            return "a generator, since it has a yield"
    return ""


def _names(kinds: Iterable[type], last: str = "or") -> str:
    names = [kind.__name__ for kind in kinds]
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if names[1:] else names[0]


ID_CHARACTERS_MAX = 255


def check_id(what: str, id: object) -> str:
    """Return *id* if it is a valid id of a topology, component, stream or state.

    It becomes part of a path in ZooKeeper, of a job tag and of a default table name.

    Args:
        what: The thing that has the id, as error messages refer to it.
        id: The id.

    Raises:
        TopologyError: *id* is not a valid id; choose another.
    """
    if not isinstance(id, str):
        raise TopologyError(
            f"{what} id is of the wrong type; got {id!r}; expected a string", got=repr(id)
        )
    fault = _fault(id)
    if fault:
        shown = repr(id) if len(id) <= ID_CHARACTERS_MAX else f"{id[:40]!r}…"
        raise TopologyError(
            f"{what} id {fault}; got {shown}; expected 1 to {ID_CHARACTERS_MAX} characters without "
            "'/', '..' and control characters that do not start with '__'; rename it",
            got=shown,
        )
    return id


def _fault(id: str) -> str | None:
    if not id.strip():
        return "is empty"
    if len(id) > ID_CHARACTERS_MAX:
        return f"is too long, {len(id)} characters"
    if "/" in id:
        return "has a '/'"
    if ".." in id or id == ".":
        return "has a '..'" if ".." in id else "is '.'"
    if id.startswith("__"):
        return "starts with '__', which is reserved"
    # ZooKeeper refuses control characters and surrogates in a path.
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xF900 for c in id):
        return "has a NUL or another control character"
    # It counts in UTF-16, where characters beyond these are made of surrogates.
    if any(ord(c) >= 0xFFF0 for c in id):
        return "has a character beyond U+FFEF, such as an emoji"
    return None
