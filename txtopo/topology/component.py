"""One spout or bolt of a topology, with its inputs, tasks and states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from txtopo.groupings import Grouping
from txtopo.state.registry import State
from txtopo.tuples import DEFAULT_STREAM, Fields, Stream


class Role(Enum):
    """What a component is."""

    TRANSACTIONAL_SPOUT = "transactional spout"
    PARTITIONED_SPOUT = "partitioned transactional spout"
    OPAQUE_SPOUT = "opaque partitioned transactional spout"
    STREAM_SPOUT = "stream spout"
    DATAFRAME_SPOUT = "DataFrame transactional spout"
    SPOUT = "spout"
    BOLT = "bolt"
    BASIC_BOLT = "basic bolt"
    BATCH_BOLT = "batch bolt"
    ARROW_BOLT = "arrow bolt"
    DATAFRAME_BOLT = "DataFrame bolt"
    PERSISTENT_AGGREGATE = "persistent aggregate"

    @property
    def spout(self) -> bool:
        """Whether it is a spout."""
        others = (Role.PARTITIONED_SPOUT, Role.OPAQUE_SPOUT, Role.SPOUT)
        return self.plans_batches or self in others

    @property
    def plans_batches(self) -> bool:
        """Whether it is a spout whose tasks have no say in what a batch consists of."""
        return self in (Role.TRANSACTIONAL_SPOUT, Role.DATAFRAME_SPOUT, Role.STREAM_SPOUT)

    @property
    def frame(self) -> bool:
        """Whether it is a plan of Spark's, without tasks."""
        return self in (Role.DATAFRAME_SPOUT, Role.DATAFRAME_BOLT)


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


@dataclass(frozen=True, slots=True)
class Component:
    """A spout or bolt.

    Attributes:
        id: Its id in the topology.
        role: What it is.
        prototype: The user's object, which is copied for each task of each attempt.
        parallelism: How many tasks it has.
        streams: Its declared outputs by name.
        subscriptions: Its inputs; at most one for each (source, stream).
        committer: Whether it runs in the commit phase by itself.
        states: Its states by name.
    """

    id: str
    role: Role
    prototype: object
    parallelism: int
    streams: Mapping[str, Stream]
    subscriptions: tuple[Subscription, ...] = ()
    committer: bool = False
    states: Mapping[str, State] = field(default_factory=dict)


def declared_streams(prototype: object) -> dict[str, Stream]:
    """Return the streams that a spout or bolt declares.

    ``output_fields`` is the stream ``default``; ``output_streams`` holds more, as ``Stream`` or
    ``Fields``.
    """
    streams: dict[str, Stream] = {}
    fields = getattr(prototype, "output_fields", None)
    if fields is not None:
        streams[DEFAULT_STREAM] = Stream(fields)
    for name, declared in (getattr(prototype, "output_streams", None) or {}).items():
        streams[name] = Stream(declared) if isinstance(declared, Fields) else declared
    return streams
