"""What a spout or bolt object is: the table of roles, and the check that an object has just one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from txtopo.bolts.bolt import ArrowBolt, BasicBolt, BatchBolt, Bolt, Committer, DataFrameBolt
from txtopo.bolts.persistent_aggregate import PersistentAggregate
from txtopo.errors import TopologyError
from txtopo.spouts.dataframe import DataFrameTransactionalSpout
from txtopo.spouts.opaque import OpaquePartitionedTransactionalSpout
from txtopo.spouts.partitioned import PartitionedTransactionalSpout
from txtopo.spouts.reliable import Spout
from txtopo.spouts.stream import StreamSpout
from txtopo.spouts.transactional import TransactionalSpout
from txtopo.topology.component import Role, declared_streams
from txtopo.tuples import Fields, Stream

SPOUTS: dict[type, Role] = {
    TransactionalSpout: Role.TRANSACTIONAL_SPOUT,
    PartitionedTransactionalSpout: Role.PARTITIONED_SPOUT,
    OpaquePartitionedTransactionalSpout: Role.OPAQUE_SPOUT,
    StreamSpout: Role.STREAM_SPOUT,
    DataFrameTransactionalSpout: Role.DATAFRAME_SPOUT,
}
BOLTS: dict[type, Role] = {
    BasicBolt: Role.BASIC_BOLT,
    BatchBolt: Role.BATCH_BOLT,
    ArrowBolt: Role.ARROW_BOLT,
    DataFrameBolt: Role.DATAFRAME_BOLT,
    PersistentAggregate: Role.PERSISTENT_AGGREGATE,
}
# What a TopologyBuilder takes, in whose topologies there are no batches.
RELIABLE_SPOUTS: dict[type, Role] = {Spout: Role.SPOUT}
RELIABLE_BOLTS: dict[type, Role] = {Bolt: Role.BOLT, BasicBolt: Role.BASIC_BOLT}
# The methods of each kind with the arguments that the framework gives them.
CALLS: dict[type, dict[str, tuple[str, ...]]] = {
    TransactionalSpout: {"coordinator": ("config", "context"), "emitter": ("config", "context")},
    PartitionedTransactionalSpout: {
        "coordinator": ("config", "context"),
        "emitter": ("config", "context"),
    },
    OpaquePartitionedTransactionalSpout: {
        "coordinator": ("config", "context"),
        "emitter": ("config", "context"),
    },
    StreamSpout: {},
    DataFrameTransactionalSpout: {
        "coordinator": ("config", "context"),
        "read": ("spark", "attempt", "metadata"),
    },
    BasicBolt: {"prepare": ("config", "context"), "execute": ("tuple", "collector")},
    BatchBolt: {
        "prepare": ("config", "context", "collector", "attempt"),
        "execute": ("tuple",),
        "finish_batch": (),
    },
    ArrowBolt: {
        "prepare": ("config", "context", "collector", "attempt"),
        "execute": ("batch",),
        "finish_batch": (),
    },
    DataFrameBolt: {"prepare": ("config", "context"), "transform": ("frame", "attempt")},
    PersistentAggregate: {},
    Spout: {
        "open": ("config", "context", "collector"),
        "next_tuple": (),
        "ack": ("message_id",),
        "fail": ("message_id",),
    },
    Bolt: {"prepare": ("config", "context", "collector"), "execute": ("tuple",)},
}
COMMIT = {"commit": ("frame", "attempt")}
"""What a ``DataFrameBolt`` has that is a committer."""


def spout_role(id: str, spout: object, kinds: Mapping[type, Role] = SPOUTS) -> Role:
    """Return which of some kinds of spouts an object is.

    Raises:
        TopologyError: It is none, or several; the message says what it lacks.
    """
    if spout is None:
        raise TopologyError(
            f"the topology has no spout; got None for {id!r}; expected an instance of "
            f"{_names(kinds)}",
            component=id,
        )
    return _role("spout", id, spout, kinds)


def bolt_role(id: str, bolt: object, kinds: Mapping[type, Role] = BOLTS) -> Role:
    """Return which of some kinds of bolts an object is.

    Raises:
        TopologyError: It is none, or several; the message says what it lacks.
    """
    role = _role("bolt", id, bolt, kinds)
    if role is Role.BASIC_BOLT and isinstance(bolt, Committer):
        raise not_a_committer(id, bolt)
    return role


def not_a_committer(id: str, bolt: object) -> TopologyError:
    """Return the error for a basic bolt that shall be a committer."""
    return TopologyError(
        f"bolt {id!r} cannot be a committer; got the BasicBolt {type(bolt).__name__}, which sees "
        "single tuples; expected a BatchBolt, ArrowBolt, DataFrameBolt or PersistentAggregate",
        component=id,
    )


def checked_streams(id: str, component: object) -> Mapping[str, Stream]:
    """Return the streams that a spout or bolt declares.

    Raises:
        TopologyError: A declaration is no ``Fields`` or ``Stream``.
    """
    fields = getattr(component, "output_fields", None)
    if fields is not None and not isinstance(fields, Fields):
        raise _undeclared(id, "output_fields", fields)
    more = getattr(component, "output_streams", None) or {}
    if not isinstance(more, Mapping):
        raise _undeclared(id, "output_streams", more)
    for name, declared in more.items():
        if not isinstance(declared, Fields | Stream):
            raise _undeclared(id, f"output_streams[{name!r}]", declared)
    streams = declared_streams(component)
    for name, stream in streams.items():
        for field in stream.fields:
            if field.type == "json":
                raise TopologyError(
                    f"field {field.name!r} of stream {name!r} of {id!r} is json, which is a type "
                    "for the values of a state; expected another type; declare it as a string, and "
                    "use json.dumps and json.loads",
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


def _role(what: str, id: str, component: object, kinds: Mapping[type, Role]) -> Role:
    if isinstance(component, type):
        raise TopologyError(
            f"{what} {id!r} is a class; got {component.__name__}; expected an instance; "
            f"write {component.__name__}(…)",
            component=id,
        )
    found = [kind for kind in kinds if isinstance(component, kind)]
    if len(found) > 1:
        raise TopologyError(
            f"{what} {id!r} has several roles; got {type(component).__name__}, which is "
            f"{_names(found, 'and')}; expected one; derive it from one of them",
            component=id,
        )
    if not found:
        raise TopologyError(
            f"{what} {id!r} is no {what}; got {component!r:.100}; expected an instance of "
            f"{_names(kinds)}; {_lacking(component, kinds)}",
            component=id,
        )
    check_calls(what, id, component, CALLS[found[0]])
    return kinds[found[0]]


def _lacking(component: object, kinds: Mapping[type, Role]) -> str:
    """Say what an object lacks of the kind that it is most like."""

    def missing(kind: type) -> list[str]:
        return [name for name in CALLS[kind] if not callable(getattr(component, name, None))]

    near = min((kind for kind in kinds if CALLS[kind]), key=lambda kind: len(missing(kind)))
    lacks = missing(near)
    if len(lacks) == len(CALLS[near]):
        return "it has none of their methods"
    if lacks:
        return f"it lacks {', '.join(lacks)} of {near.__name__}"
    return f"it has the methods of {near.__name__} but is not derived from it"


def check_calls(
    what: str, id: str, component: object, calls: Mapping[str, tuple[str, ...]]
) -> None:
    """Check that the methods of an object take what the framework gives them.

    Raises:
        TopologyError: One does not; the message says what it has to take.
    """
    for name, arguments in calls.items():
        method = getattr(component, name)
        try:
            signature = inspect.signature(method)
            signature.bind(*arguments)
        except ValueError:
            continue  # a method in C has no signature to look at
        except TypeError as error:
            raise TopologyError(
                f"{name} of {what} {id!r} does not fit its call; got {name}{signature}; expected "
                f"{name}({', '.join(arguments)})",
                component=id,
                method=name,
            ) from error


def _names(kinds: Mapping[type, Role] | list[type], last: str = "or") -> str:
    names = [kind.__name__ for kind in kinds]
    return f"{', '.join(names[:-1])} {last} {names[-1]}" if names[1:] else names[0]
