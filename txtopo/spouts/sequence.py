"""SequenceSpout: reads one spout to its end, and continues with another in the next txid.

The two spouts are its *parts*, ``first`` and ``then``. Between them is the *switch*: a txid that
emits nothing and stores where ``then`` begins.

Rules
-----
1. The switch is planned when ``first`` is not ready and has ended, and no batch of it is in flight.
   So its last batch is committed, durably: a plan is asked for only after the write that advances
   ``current`` past the last commit. Batches of other spouts may be in flight.
2. ``begins`` is asked for the end that was reached, and its answer is stored with the switch. All
   later txids have it in their plans, and nobody asks again. Only after a ``rewind`` or ``rebuild``
   to before the switch does ``first`` continue, and is ``begins`` asked for the new end.
3. Each part sees a history of its own: ``first`` its txids, and ``then`` txids that count from 1
   after the switch. The positions of one part are never shown to the other; the partitions of both
   may have the same numbers.
4. What the sequence is depends on both parts at any time. If one is opaque, so is the sequence, for
   its whole life.
5. A part is opened in the driver only while it is read; but ``then`` from the start, so that its
   settings are checked before ``first`` is read.

Metadata
--------
The plan of a batch is ``{"part": "first", "batch": …}``, with what ``initialize_transaction`` of
the part returned, or ``{"part": "first", "partitions": n}`` if its emitters cut it. Plans of
``then`` also have ``"after"``, the txid after which its own txids count from 1, and ``"begins"``,
the place, if there is one. The switch itself has neither a batch nor partitions. The first batch
after it counts from its predecessor: a rewind to the switch stores its plan at a later txid.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from txtopo.attempt import TransactionAttempt
from txtopo.collector import BatchOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import ConfigError, EmitError, TopologyError
from txtopo.metadata import Json, json_copy, shown
from txtopo.spouts.spout import (
    Emitter,
    HasReplays,
    LastBatch,
    OpaquePartitionedTransactionalSpout,
    PartitionedCoordinator,
    PartitionedTransactionalSpout,
    TransactionalCoordinator,
    TransactionalSpout,
    other_position,
    takes_rows_max,
)
from txtopo.traits import Traits
from txtopo.tuples import Fields, Stream

PartSpout = TransactionalSpout | PartitionedTransactionalSpout | OpaquePartitionedTransactionalSpout
"""What a part may be."""

Part = Literal["first", "then"]

_Key = tuple[Part, str | None]
"""A part, and the place at which it begins, as JSON."""

_KINDS: tuple[type, ...] = (
    TransactionalSpout,
    PartitionedTransactionalSpout,
    OpaquePartitionedTransactionalSpout,
)

# The method of each that emits a new batch, or whose coordinator plans it.
_EMITS_NEW: dict[type, str] = {
    PartitionedTransactionalSpout: "emit_partition_batch_new",
    OpaquePartitionedTransactionalSpout: "emit_partition_batch",
}


class SequenceSpout(HasReplays):
    """Reads one source to its end and continues with another: a backfill, then live data.

    Delivery: that of the weaker part, from the first txid on. Each record of both parts counts in
    exactly one committed txid. ``then`` begins exactly at the place that *begins* returned. You
    must choose the right place: rows of equal keys, or of transactions that commit later, may be on
    both sides of it, or on neither. ``docs/how-to/backfill.md`` shows a margin with deduplication.

    ``first`` has ended when it is not ready, holds back no record, and all of its batches are
    committed. The next txid is the switch, which emits nothing and stores where ``then`` begins.
    Records that reach the source of ``first`` later are not read. Keep both parts in the program,
    with their settings, as long as the topology exists; after the switch, the source of ``first``
    is not opened again and may be deleted.

    Lag is shown as ``first/…`` and ``then/…``. While ``first`` is being read, pages, metrics and
    ``txtopo show`` report that ``then`` waits. The stored plan of each batch names its part.

    Args:
        first: A transactional, partitioned or opaque spout whose source has an end: files, a Delta
            table, a query, or your own spout with ``ends = True`` and a coordinator with a method
            ``ended``.
        then: Another such spout, which needs no end and declares the same streams and fields.
        begins: Where ``then`` begins, as JSON that its ``beginning_at`` takes; or a function of the
            metadata of the last batch of *first* (for partitions, a mapping from the number, as
            text; None if it never had a batch) that returns that. None: where its own arguments
            say.

    Attributes:
        first: As given.
        then: As given.
        begins: As given.

    Raises:
        TopologyError: The parts do not fit together, *first* has no end, or *then* cannot begin at
            a given place.
        ConfigError: *begins* is not a place of the source of *then*.

    Example:
        >>> from txtopo import Fields
        >>> from txtopo.spouts import QueryTransactionalSpout, SequenceSpout
        >>> fields = Fields("id long, word string")
        >>> old = QueryTransactionalSpout("sqlite:///old.db", "words", "id", fields, settle_s=0)
        >>> new = QueryTransactionalSpout("sqlite:///new.db", "words", "id", fields, settle_s=10)
        >>> words = SequenceSpout(old, new, begins=lambda end: end["upto"] if end else 0)
    """

    output_fields: Fields | None = None
    output_streams: Mapping[str, Stream | Fields] = {}

    def __init__(
        self, first: PartSpout, then: PartSpout, begins: Json | Callable[[Json], Json] = None
    ) -> None:
        self.first, self.then, self.begins = first, then, begins
        self.kinds = (_kind_of("first", first), _kind_of("then", then))
        _check_streams(first, then)
        self.output_fields, self.output_streams = first.output_fields, first.output_streams
        if not first.ends:
            raise TopologyError(
                f"the first part of a sequence must have an end; got {type(first).__name__}; "
                "expected a spout whose coordinator can tell that its source has ended, such as "
                "FilesTransactionalSpout, DeltaTransactionalSpout or QueryTransactionalSpout; or "
                "give your spout ends = True, and its coordinator a method ended",
                name=type(first).__name__,
            )
        if begins is None:
            return
        if type(then).beginning_at is HasReplays.beginning_at:
            raise TopologyError(
                "then of a sequence cannot begin at a place; got begins and "
                f"{type(then).__name__}, which has no beginning_at; expected a spout that has it, "
                "such as a spout of Kafka or of a query; remove begins to begin where its own "
                "arguments say",
                name=type(then).__name__,
            )
        if not callable(begins):
            then.beginning_at(_checked_place(begins))

    @property
    def parts(self) -> tuple[PartSpout, PartSpout]:
        """Both parts, in order."""
        return self.first, self.then

    @property
    def traits(self) -> Traits:
        """The traits of both parts together."""
        own, parts = super().traits, [each.traits for each in self.parts]
        modules = (name for each in parts for name in each.client_modules)
        return replace(
            own,
            repeatable=all(each.repeatable for each in parts),
            needs_planned_time=any(each.needs_planned_time for each in (own, *parts)),
            client_modules=tuple(dict.fromkeys(modules)),
            connects_to=[server for each in parts for server in each.connects_to],
            cannot_fork=next(
                (each.cannot_fork for each in (own, *parts) if each.cannot_fork), None
            ),
            renamed_in_forks="; ".join(filter(None, (each.renamed_in_forks for each in parts)))
            or None,
            operators=tuple(
                f"{part} {type(each).__name__}"
                for part, each in zip(("first", "then"), self.parts, strict=True)
            ),
        )

    def coordinator(self, config: Config, context: TaskContext) -> SequenceCoordinator:
        """Make the planning part, and that of ``then``.

        Raises:
            ConfigError: A setting of ``then`` is wrong.
        """
        return SequenceCoordinator(self, config, context)

    def emitter(self, config: Config, context: TaskContext) -> SequenceEmitter:
        """Make an emitting part."""
        return SequenceEmitter(self, config, context)

    def part_at(self, key: _Key) -> PartSpout:
        """Return a part; ``then`` as it begins at a place, if there is one."""
        part, place = key
        if part == "first":
            return self.first
        return self.then if place is None else self.then.beginning_at(json.loads(place))


@dataclass(frozen=True, slots=True)
class SequencePosition:
    """Where a sequence stands after a batch.

    Attributes:
        part: The part that plans the next batch, unless it has ended.
        after: The txid after which the part's own txids count from 1.
        place: Where ``then`` begins; None for its own arguments, and in ``first``.
        known: The metadata of the part's last batch; None if it has none.
        at_switch: Whether the batch is the switch, so that ``then`` has not begun.
    """

    part: Part = "first"
    after: int = 0
    place: Json = None
    known: Json = None
    at_switch: bool = False

    @property
    def key(self) -> _Key:
        """What tells the coordinators and emitters of the parts apart."""
        return self.part, _text(self.place)

    @classmethod
    def of(cls, metadata: Json) -> SequencePosition:
        """Read ``{"planned": plan, "cut": cut}``, or None before the first batch.

        Raises:
            TopologyChanged: Another spout planned it.
        """
        if metadata is None:
            return cls()
        plan = metadata.get("planned") if isinstance(metadata, dict) else None
        if not isinstance(plan, dict) or plan.get("part") not in ("first", "then"):
            raise other_position("a SequenceSpout", metadata)
        assert isinstance(metadata, dict)
        known = metadata.get("cut") if "partitions" in plan else plan.get("batch")
        if plan["part"] == "first":
            return cls(known=known)
        return cls("then", after_of(plan), plan.get("begins"), known, is_switch(plan))


def has_batch(planned: Json) -> bool:
    """Return whether a plan has a whole batch, so that no emitter cuts it."""
    return isinstance(planned, dict) and "batch" in planned


def planned_by_part(planned: Json) -> Json:
    """Return what the part itself has planned; None at the switch."""
    assert isinstance(planned, dict), "begin has read it"
    return planned.get("batch", planned.get("partitions"))


def is_switch(planned: Json) -> bool:
    """Return whether a plan is that of the switch."""
    return isinstance(planned, dict) and planned.keys() <= {"part", "after", "begins"}


def after_of(planned: Json) -> int:
    """Return the txid after which the part's own txids count, from a plan of a batch."""
    after = planned.get("after", 0) if isinstance(planned, dict) else 0
    assert isinstance(after, int), "it was stored as a txid"
    return after


@dataclass(frozen=True, slots=True)
class _Next:
    """The batch that ``is_ready`` has found.

    Attributes:
        standing: Where the sequence stands before it.
        txid: Its txid, as the part counts.
        last: The newest batch of the part.
        place: The answer of ``begins``, for a switch.
        switches: Whether it is the switch.
    """

    standing: SequencePosition
    txid: int
    last: LastBatch
    place: Json = None
    switches: bool = False


class SequenceCoordinator:
    """Plans the batches of both parts, with their own coordinators."""

    def __init__(self, spout: SequenceSpout, config: Config, context: TaskContext) -> None:
        self._spout, self._config, self._context = spout, config, context
        # By part and place. Only single operations change it, since lag() has its own thread.
        self._opened: dict[_Key, Any] = {}
        self._divided: dict[_Key, bool] = {}
        self._next: _Next | None = None
        self._partitions = 0
        self._answers: tuple[str, Json] | None = None
        self._reads: _Key | None = None
        self._open(("then", None))

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether the part has a batch, or its end was reached."""
        standing = SequencePosition.of(last.metadata)
        self._reads = standing.key
        if standing.part == "then":
            self._close_all_but(standing.key)
            if standing.at_switch:
                standing = replace(standing, after=txid - 1)
            own = replace(last, txid=max(0, last.txid - standing.after), metadata=standing.known)
            self._next = _Next(standing, txid - standing.after, own)
            return bool(self._planner(standing).is_ready(self._next.txid, own))
        own = replace(last, metadata=standing.known)
        self._next = _Next(standing, txid, own)
        first = self._planner(standing)
        if first.is_ready(txid, own):
            return True
        if last.pending or not first.ended(own):
            return False
        place = self._place_after(standing)
        self._open(("then", _text(place)))  # which checks the place
        self._next = _Next(standing, txid, own, place, switches=True)
        return True

    def number_of_partitions(self) -> int:
        """Return how many partitions the batch has; 0 if the part plans whole batches."""
        found = self._found
        planner = self._planner(found.standing)
        cut = self._kind(found.standing.part) is not TransactionalSpout and not found.switches
        self._partitions = planner.number_of_partitions() if cut else 0
        return self._partitions

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Return the plan of the batch that ``is_ready`` has found."""
        found = self._found
        standing = found.standing
        if found.switches:
            return {"part": "then", "after": txid, **_begins(found.place)}
        plan: dict[str, Json] = {"part": standing.part}
        if standing.part == "then":
            plan |= {"after": standing.after, **_begins(standing.place)}
        if self._kind(standing.part) is not TransactionalSpout:
            return {**plan, "partitions": self._partitions}
        planner = self._planner(standing)
        takes = rows_max is not None and takes_rows_max(planner.initialize_transaction)
        limit = {"rows_max": rows_max} if takes else {}
        return {
            **plan,
            "batch": planner.initialize_transaction(found.txid, found.last.metadata, **limit),
        }

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return how many rows the part has after its last batch; none at the switch."""
        if self._found.switches:
            return {}
        planner = self._planner(self._found.standing)
        told: Mapping[str, int] | None
        told = getattr(planner, "unread", lambda _: None)(self._found.last)
        return told

    def divides(self) -> bool:
        """Return whether the part that plans the batch takes its limit."""
        if self._next is None:
            return True  # nothing was asked for yet
        found = self._next
        key, kind = found.standing.key, self._kind(found.standing.part)
        if found.switches:
            return True  # it has no rows
        if kind is TransactionalSpout:
            return takes_rows_max(self._planner(found.standing).initialize_transaction)
        if key not in self._divided:
            emitter = self._spout.part_at(key).emitter(self._config, self._context)
            self._divided[key] = takes_rows_max(getattr(emitter, _EMITS_NEW[kind]))
            emitter.close()
        return self._divided[key]

    def planned_rows(self, metadata: Json) -> int | None:
        """Return how many rows a planned batch has; None if its part cannot say."""
        if is_switch(metadata):
            return 0
        if not has_batch(metadata):
            return None
        assert isinstance(metadata, dict), "it has a batch"
        planner = self._planner(self._found.standing)
        rows: int | None = getattr(planner, "planned_rows", lambda _: None)(metadata["batch"])
        return rows

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many records the part has after a batch, as ``first/…`` or ``then/…``."""
        standing = SequencePosition.of(metadata or None)
        if standing.known is None:
            return {}
        told = self._planner(standing).lag(standing.known)
        return {f"{standing.part}/{name}": count for name, count in told.items()}

    def lost(self, metadata: Json) -> Mapping[str, str]:
        """Return what the batch skipped, by part and partition."""
        standing = SequencePosition.of(metadata or None)
        if standing.known is None:
            return {}
        told = self._planner(standing).lost(standing.known)
        return {f"{standing.part}/{name}": text for name, text in told.items()}

    def held_back(self) -> str | None:
        """Return that ``then`` waits for ``first``, and what the part holds back that is read."""
        reads, spout = self._reads, self._spout
        planner = None if reads is None else self._opened.get(reads)
        # A coordinator of a user need not be derived from ours, and then may lack the method.
        told = [getattr(planner, "held_back", lambda: None)()]
        if reads is not None and reads[0] == "first":
            first, then = (type(each).__name__ for each in spout.parts)
            told = [f"then ({then}) waits for the end of first ({first})", *told]
        return "; ".join(filter(None, told)) or None

    def close(self) -> None:
        """Close both parts."""
        self._close_all_but(None)

    @property
    def _found(self) -> _Next:
        assert self._next is not None, "is_ready said so"
        return self._next

    def _kind(self, part: Part) -> type:
        return self._spout.kinds[part == "then"]

    def _place_after(self, standing: SequencePosition) -> Json:
        """Return where ``then`` begins; the function is asked once for an end."""
        begins = self._spout.begins
        if not callable(begins):
            return begins
        end = json.dumps(standing.known)
        if self._answers is None or self._answers[0] != end:
            place = begins(json_copy(standing.known))
            try:
                self._answers = end, json_copy(place)
            except ValueError as error:
                raise EmitError(
                    f"begins of spout {self._context.component_id!r} did not return JSON; got "
                    f"{shown(place)} ({error}); expected a place that beginning_at of "
                    f"{type(self._spout.then).__name__} takes, such as a number or a text",
                    component=self._context.component_id,
                    got=shown(place),
                ) from error
        return self._answers[1]

    def _planner(self, standing: SequencePosition) -> Any:
        """Return the coordinator of the part that stands there."""
        return self._open(standing.key)

    def _open(self, key: _Key) -> Any:
        if key in self._opened:
            return self._opened[key]
        spout = self._spout.part_at(key)
        planner = spout.coordinator(self._config, self._context)
        kept = self._opened.setdefault(key, planner)
        if kept is not planner:  # another thread was faster
            planner.close()
            return kept
        if key[0] == "first":
            _check_ended(self._context.component_id, planner)
        return planner

    def _close_all_but(self, key: _Key | None) -> None:
        for other in tuple(self._opened):
            if other != key and (planner := self._opened.pop(other, None)) is not None:
                planner.close()


def _check_ended(id: str, planner: object) -> None:
    kind = type(planner)
    inherited = (None, TransactionalCoordinator.ended, PartitionedCoordinator.ended)
    if getattr(kind, "ended", None) in inherited:
        raise TopologyError(
            f"the first part of spout {id!r} cannot tell that its source has ended; got a spout "
            f"with ends = True and coordinator {kind.__qualname__} without a method ended; "
            "expected ended(self, last); add it to the coordinator",
            name=kind.__qualname__,
        )


def _checked_place(place: Json) -> Json:
    """Return a copy of a constant place.

    Raises:
        ConfigError: It is not JSON, so it could not be stored.
    """
    try:
        return json_copy(place)
    except ValueError as error:
        raise ConfigError(
            f"begins of a sequence is not JSON; got {shown(place)} ({error}); expected numbers, "
            "strings, lists and objects with string keys: a time as text in ISO 8601, the number "
            "of a partition as text",
            setting="begins",
        ) from error


def _text(place: Json) -> str | None:
    return None if place is None else json.dumps(place)


def _begins(place: Json) -> dict[str, Json]:
    return {} if place is None else {"begins": place}


class SequenceEmitter(Emitter):
    """Emits the batches of both parts, with their own emitters, which it opens when needed.

    The framework calls ``begin`` with the plan of a batch before it calls any other method for it.
    """

    def __init__(self, spout: SequenceSpout, config: Config, context: TaskContext) -> None:
        self._spout, self._config, self._context = spout, config, context
        self._opened: dict[_Key, Any] = {}
        self._emitter: Any = None
        self._after = 0

    def begin(self, planned: Json) -> type:
        """Begin a batch; return of which class its part is.

        Raises:
            TopologyChanged: Another spout planned it.
        """
        standing = SequencePosition.of({"planned": planned, "cut": None})
        self._emitter = self._open(standing.key)
        self._after = standing.after
        return self._spout.kinds[standing.part == "then"]

    def emit_batch(
        self, attempt: TransactionAttempt, metadata: Json, collector: BatchOutputCollector
    ) -> None:
        """Emit this task's share of a batch that the part has planned."""
        self._emitter.emit_batch(self._own(attempt), metadata, collector)

    def emit_partition_batch_new(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        last_metadata: Json,
        **limit: int,
    ) -> Json:
        """Emit a new batch of a partition of the part."""
        emit = self._emitter.emit_partition_batch_new
        end: Json = emit(self._own(attempt), collector, partition, last_metadata, **limit)
        return end

    def emit_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
        **limit: int,
    ) -> Json:
        """Emit a batch of a partition of the part again, or, of an opaque part, a new one."""
        emit = self._emitter.emit_partition_batch
        end: Json = emit(self._own(attempt), collector, partition, metadata, **limit)
        return end

    def repeat_partition_batch(
        self,
        attempt: TransactionAttempt,
        collector: BatchOutputCollector,
        partition: int,
        metadata: Json,
    ) -> bool:
        """Emit a batch of a partition of an opaque part as it was, if its emitter can do that."""
        repeat = self._emitter.repeat_partition_batch
        done: bool = repeat(self._own(attempt), collector, partition, metadata)
        return done

    def commit(self, attempt: TransactionAttempt, metadata: Json) -> None:
        """Call ``commit`` of the part, if it has one; not for the switch."""
        standing = SequencePosition.of(metadata)
        assert isinstance(metadata, dict)
        self.begin(metadata["planned"])
        if standing.at_switch:
            return
        if commit := getattr(self._emitter, "commit", None):
            commit(self._own(attempt), standing.known)

    def cleanup_before(self, txid: int) -> None:
        """Call ``cleanup_before`` of the part of the last commit, if it has one."""
        if self._emitter is None or txid <= self._after:
            return  # nothing was committed here, or only the switch
        if cleanup := getattr(self._emitter, "cleanup_before", None):
            cleanup(txid - self._after)

    def part_emitters(self) -> Iterator[Any]:
        """Return an emitter of each part, which may be asked what it is."""
        yield self._open(("first", None))
        yield self._open(("then", None))

    def close(self) -> None:
        """Close the emitters."""
        for emitter in self._opened.values():
            emitter.close()

    def _own(self, attempt: TransactionAttempt) -> TransactionAttempt:
        """Return the attempt as the part counts txids."""
        return replace(attempt, txid=attempt.txid - self._after) if self._after else attempt

    def _open(self, key: _Key) -> Any:
        if key not in self._opened:
            spout = self._spout.part_at(key)
            self._opened[key] = spout.emitter(self._config, self._context)
        return self._opened[key]


def _kind_of(part: Part, spout: object) -> type:
    kind = next((kind for kind in _KINDS if isinstance(spout, kind)), None)
    if kind is None:
        names = ", ".join(each.__name__ for each in _KINDS)
        raise TopologyError(
            f"{part} of a sequence is not a spout that can be part of one; got {spout!r:.100}; "
            f"expected an instance of one of {names}",
            name=part,
            got=f"{spout!r:.100}",
        )
    return kind


def _check_streams(first: PartSpout, then: PartSpout) -> None:
    """Check that both parts declare the same streams.

    Raises:
        TopologyError: They do not; the message names the first difference.
    """
    one, other = _streams(first), _streams(then)
    name = next((name for name in {**one, **other} if one.get(name) != other.get(name)), None)
    if name is not None:
        got = [
            "no such stream" if each.get(name) is None else repr(str(each[name]))
            for each in (one, other)
        ]
        raise TopologyError(
            f"the parts of a sequence differ in the stream {name!r}; got {got[0]} of first and "
            f"{got[1]} of then; expected the same streams and fields, in the same order",
            name=name,
            got=tuple(got),
        )


def _streams(spout: PartSpout) -> dict[str, Any]:
    default = {} if spout.output_fields is None else {"default": Stream(spout.output_fields)}
    return {
        **default,
        **{
            name: Stream(declared) if isinstance(declared, Fields) else declared
            for name, declared in (spout.output_streams or {}).items()
        },
    }
