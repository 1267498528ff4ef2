"""Traits: what the graph, a run and an explanation must know of a spout or bolt, as one record.

Every spout and bolt returns its :class:`Traits` from the property ``traits``, which
:class:`HasTraits` declares. All other layers ask :func:`traits_of` and nothing else: they know
neither the classes of spouts and bolts nor any of their attributes. So a new source or sink says
what is special about it in its own file.

The class of a user does not make this record. It sets the attributes that its base class declares
(``needs_planned_time``, ``client_modules``, ``connects_to``, ``repeatable``, ``takes_from`` and
``cannot_fork``), from which the base class makes it. A spout or bolt that is derived from none of
our classes has the defaults.

The record is made again each time it is asked for, and it follows from the prototype alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from txtopo.errors import TopologyError
from txtopo.metadata import Json
from txtopo.servers import Server
from txtopo.state.registry import State
from txtopo.tuples import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What is special about a spout or bolt. Each default means: nothing.

    Attributes:
        needs_planned_time: Whether each batch gets a stamp with the time at which it was planned
            (``runtime/stamp_planner.py``). Set by users, by the spout of a clock and by operators
            on event time; read by the graph.
        lookups: The tables whose versions are planned with each batch, by id. Set by joins with a
            lookup; read by the graph, as above.
        client_modules: The modules that its tasks import. Set by users, by spouts and by lookups;
            read by a start, which asks each executor of a cluster whether it has them.
        connects_to: The servers that it connects to, from the driver or from tasks. Set by users,
            by spouts and by sinks; read by a start, which warns of those that do not answer.
        operators: The names of the operators of a ``StreamBuilder`` that run in it, or of the parts
            of a sequence of spouts, in order. Set by both; read by an explanation.
        repeatable: Whether a replay of a txid brings the same tuples; False for an opaque spout.
            Set by users and by spouts; read by the checks of states below it, and by the program,
            which compares replays. The default says nothing of a spout without txids.
        takes_from: The sources, as text, that give each record to one of their readers. Set by
            users and by the spouts of queues; read by ``TopologyBuilder``, which refuses two
            spouts with the same one.
        brings_time_only: Whether its batches count as none for those who wait until all that is
            available is processed. Set by the spout of a clock; read by the planner.
        emitter_writes_nowhere_else: Whether the ``commit`` of its emitters was declared to write
            nowhere else before an emitter is open; None if nothing was declared. Set by
            ``DataSourceSpout``; read by :mod:`txtopo.topology.elsewhere`.
        state: The state that it brings with it, which is named after the component; None if its
            states are declared with ``with_state``. Set by a sink; read by the checks.
        reads_states: Whether the code in it may read its states. Where it does not, a
            transactional state does not stand against committing a group. Set to False by sinks
            and by ``PersistentAggregate``; read by :mod:`txtopo.stages.groups`.
        rows: What the rows of its states mean where their columns do not say it: windows, joins.
            Set by the bolts of streams; part of the fingerprint of the topology.
        buffered: What it has packed into a column of its first state. Set by joins; part of the
            fingerprint.
        asks_outside: Whether what it emits comes from outside, such as the answers of a service, so
            that a replay may differ although its input is the same. Such a bolt has ``content``,
            which is compared. Set by ``map_async``; read when a topology is compiled.
        makes_dead_letters: Whether it sets rows aside by itself, as a ``BasicBolt`` does through
            the framework. Set by ``map_async``; read by the builder.
        begins_with_below: Why its states may not be new while a state directly below it is kept;
            None if they may. Set by the bolt that keeps watermarks; read when a program is changed.
        retractions: The name of its stream whose rows are taken back below. The states that the
            stream comes to begin together with its own. Set by tables of streams; read when a
            program is changed.
        expires: Whether the rows of its states expire because a user wants it. Set by what takes
            ``expire_after``; read by a start, which refuses stores that delete nothing.
        one_task: Why its parallelism must be 1; None if it need not. Set by a sink; read by the
            checks.
        refuses_opaque: Why there may be no opaque spout above it, and what to do instead; None if
            there may. Set by a sink; read by the checks.
        check_input: Checks the fields of one of its inputs, and raises ``FieldsError`` for those
            that it cannot use; None if it takes any. Set by a sink with schemas; called by the
            checks, once for each input.
        with_dead_letters: Returns this bolt as it takes dead letters, which have these fields; None
            if it takes them as it is. Set by a sink; called by the builder for the bolt in
            ``dead_letters=``.
        cannot_fork: Why a topology with it cannot be forked, and what to do instead; None if it
            can. Set by a sink, and by users for a spout that takes records out of its source; read
            by ``txtopo.operations.fork``.
        renamed_in_forks: What has another name in the program of a fork, in words, such as a
            consumer group that two topologies must not share; None for nothing. Set by spouts;
            shown by the plan of a fork.
        holds: What its states hold, in words; None for what their kind says. Set by a sink; read by
            an explanation.
        delivery: What its exactly once depends on, in words; None if on nothing. Set by a sink;
            read by an explanation.
    """

    needs_planned_time: bool = False
    lookups: Mapping[str, VersionedTable] = field(default_factory=dict)
    client_modules: Sequence[str] = ()
    connects_to: Sequence[Server] = ()
    operators: tuple[str, ...] = ()
    repeatable: bool = True
    takes_from: Sequence[str] = ()
    brings_time_only: bool = False
    emitter_writes_nowhere_else: bool | None = None
    state: State | None = None
    reads_states: bool = True
    rows: Meaning | None = None
    buffered: Meaning | None = None
    asks_outside: bool = False
    makes_dead_letters: bool = False
    begins_with_below: str | None = None
    retractions: str | None = None
    expires: bool = False
    one_task: str | None = None
    refuses_opaque: str | None = None
    check_input: Callable[[Fields], None] | None = None
    with_dead_letters: Callable[[Sequence[str]], object] | None = None
    cannot_fork: str | None = None
    renamed_in_forks: str | None = None
    holds: str | None = None
    delivery: str | None = None


@dataclass(frozen=True, slots=True)
class Meaning:
    """What rows mean, which their columns do not say.

    Attributes:
        text: The meaning, in words.
        fixed: Why no change of a program may give another meaning to rows that are kept, and what
            to do instead; None if it may, with ``Config(allow_change=True)``.
    """

    text: str
    fixed: str | None = None


class HasTraits:
    """What all spouts and bolts have in common: attributes that become the traits of one.

    Attributes:
        needs_planned_time: Whether each batch keeps the time at which it was planned, for
            ``context.planned_time``.
        client_modules: The modules that its tasks import. Before anything runs, each executor of a
            cluster is asked whether it has them.
        connects_to: The servers that it connects to, such as ``[Server.of("the shop", url, 443)]``.
            A start tries each once before Spark starts, and warns of those that do not answer.
        cannot_fork: Why a topology with it cannot be forked, and what to do instead, such as for a
            spout that takes records out of a queue; None if it can.
    """

    needs_planned_time: bool = False
    client_modules: Sequence[str] = ()
    connects_to: Sequence[Server] = ()
    cannot_fork: str | None = None

    @property
    def traits(self) -> Traits:
        """The traits that the framework reads. Your own class sets what they come from."""
        return Traits(
            needs_planned_time=self.needs_planned_time,
            client_modules=self.client_modules,
            connects_to=self.connects_to,
            cannot_fork=self.cannot_fork,
        )


class VersionedTable(Protocol):
    """A table whose newest version is planned with a batch, as the planner uses it."""

    @property
    def refresh_s(self) -> float:
        """How long a version is used before a newer one is looked for."""
        ...

    @property
    def client_modules(self) -> Sequence[str]:
        """The modules that tasks import to read the table."""
        ...

    @property
    def connects_to(self) -> Sequence[Server]:
        """The server that has the table; none for files."""
        ...

    def check(self) -> None:
        """Check in the driver that the table can be read, before anything runs.

        Raises:
            ConfigError: It cannot.
            InfrastructureError: The table is out of reach.
        """
        ...

    def knows(self, version: Json) -> bool:
        """Return whether a stored version is of this table, not of another with its id."""
        ...

    def newest(self, held: Json, time_ms: int) -> Json:
        """Return the newest version. Called in the driver; reads any version except *held*.

        Args:
            held: The version of the previous txid, which it knows, or None.
            time_ms: The planned time of the txid, in milliseconds since 1970.

        Raises:
            ConfigError: The table, or its newest version, cannot be used.
            EmitError: A row of it cannot be read.
            SourceDataLost: It was changed while it was read.
            InfrastructureError: The table is out of reach.
        """
        ...


def traits_of(prototype: object) -> Traits:
    """Return the traits of a spout or bolt; the defaults if it declares none.

    Raises:
        TopologyError: Something else has the name ``traits``; give it another name.
    """
    traits = getattr(prototype, "traits", None)
    if traits is None:
        return Traits()
    if not isinstance(traits, Traits):
        raise TopologyError(
            f"traits of {type(prototype).__name__} is of the wrong type; got {traits!r:.100}; "
            "expected Traits, which txtopo reads from each spout and bolt; rename your attribute",
            name=type(prototype).__name__,
            got=f"{traits!r:.100}",
        )
    return traits
