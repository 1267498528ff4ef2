"""The verb ``replay``: computes one batch of the past again in this process, to look at it.

It runs as the attempt that is stored, with the plan, the planned time, the versions of lookups and
the pace of then, and reads states as :mod:`txtopo.operations.past` says. It may be called while the
topology runs, waits or has ended. Nothing is written anywhere: not to ZooKeeper, a store or a sink;
and no emitter is told of a commit. What user code writes elsewhere by itself cannot be prevented.

Rules
-----
1. A txid within a group is computed over the values from before the group, so the members before it
   are computed first.
2. What is compared is what is stored: count and digest of each part of a transactional spout, and
   the rows of a state that holds exactly this txid, or the group that ends with it, and also has
   the values from before. All else is told as not compared.
3. An opaque spout repeats its stored batch if its emitter can, and cuts it again if not. Neither is
   compared. Of a batch of opaque spouts nothing is stored before it was processed, so the lowest
   uncommitted one is planned again (:mod:`txtopo.operations.next_batch`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.config import Config
from txtopo.errors import StateUsageError
from txtopo.log_records import one_line
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.overlay import KeyChange
from txtopo.operations.past import PastState, open_past
from txtopo.operations.past_program import PastProgram
from txtopo.operations.session import Access, OperatorSession, open_operator_session
from txtopo.operations.stored_history import StoredHistory, check_driven

if TYPE_CHECKING:
    import pyarrow as pa

    from txtopo.builders.transactional import Topology
    from txtopo.fingerprint import StateName
    from txtopo.operations.recording import ComponentTuples, Raised
    from txtopo.state.backend import Key, StateTable, Values
    from txtopo.state.statements import Statement

ROWS_SCANNED_MAX = 100_000
"""How many rows of a state are read to find those that only the committed batch wrote."""

ROWS_SHOWN = 100
"""How many rows of a stream, and how many keys of a state, are shown."""


def replay(
    topology: Topology,
    txid: int,
    config: Config = Config(),
    *,
    access: Access = Access(),
) -> Replay:
    """Compute one batch of the past again, without writing anything. Callable at any time.

    It runs on the carrier ``local``. A topology with DataFrames needs Spark; then the tuples are
    not recorded.

    Args:
        topology: The topology. It may differ from the one that ran: then its own code is computed.
        txid: The txid; it may be committed, or planned and not committed yet.
        config: As for ``start``.
        access: How to reach ZooKeeper, if the ``Config`` is not enough; and the session for
            DataFrames, by default the active one or a new one.

    Raises:
        StateUsageError: The metadata of the txid, or of one before it that is needed, is not in
            ZooKeeper; the message says which is.
        CoordinatorUnavailable: ZooKeeper cannot be reached.
        StoreUnavailable: A store cannot be reached.
        SourceDataLost: The source no longer has the records.
    """
    with open_operator_session(topology, config, access) as session, ExitStack() as stack:
        check_driven(session)
        history = StoredHistory(session)
        history.processed(txid)
        first, past = open_past(session, history.begins(txid), txid, history.current, stack)
        return _Replaying(session, history, past, access.spark, stack).replayed(first, txid)


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What a txid does to a state.

    Attributes:
        component: Id of the component that it belongs to.
        columns: The schema of the state.
        how: As of which txid it was read, in words.
        changes: Values before and after, by key.
        statements: The statements of users; none was executed.
        compared: ``"equal"``, how it differs, or why it was not compared.
    """

    component: str
    columns: StateTable = field(repr=False)
    how: str
    changes: Mapping[Key, KeyChange]
    statements: tuple[Statement, ...]
    compared: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What :func:`replay` found; ``print`` shows it.

    Attributes:
        topology_id: Id of the topology.
        txid: The txid that was asked for.
        attempt: The attempt as which it ran; or, if one of the txids that were computed before it
            failed, the attempt at that one.
        committed: Whether the txid is committed.
        first_txid: The first member of its group that was computed before it; the txid itself for
            none.
        metadata: The metadata of the txid.
        components: The tuples that each component received and emitted, as Arrow record batches;
            empty if Spark computed them.
        tuples: How many tuples each component emitted, by stream.
        states: What it does to each state, by ``component.state``.
        content: For each spout, and each bolt that was answered outside, ``"equal"``, how it
            differs from what was committed, or why it was not compared.
        raised: What user code raised; None if nothing.
        failure: Why the batch failed, in one line; None if it did not.
    """

    topology_id: str
    txid: int
    attempt: TransactionAttempt
    committed: bool
    first_txid: int
    metadata: BatchMetadata = field(repr=False)
    components: Mapping[str, ComponentTuples] = field(repr=False)
    tuples: Mapping[str, Mapping[str, int]]
    states: Mapping[str, StateChanges]
    content: Mapping[str, str]
    raised: Raised | None
    failure: str | None

    @property
    def differences(self) -> tuple[str, ...]:
        """Where the replay differs from what was committed; empty for nowhere that was compared."""
        told = [*self.compared_content]
        told += [(f"state {name!r}", each.compared) for name, each in self.states.items()]
        return tuple(f"{what}: {text}" for what, text in told if text.startswith(DIFFERS))

    @property
    def compared_content(self) -> Iterator[tuple[str, str]]:
        """What was compared of each spout, and of each bolt that was answered outside."""
        for id, text in self.content.items():
            yield f"spout {id!r}" if id in self.metadata.spouts else f"answers of {id!r}", text

    def __str__(self) -> str:
        from txtopo.operations.replay_text import replay_text

        return replay_text(self)

    def write(self, folder: Path) -> list[Path]:
        """Write all tuples as Parquet files, one for each stream that a component has or receives.

        Args:
            folder: The folder, which is made if it is missing.

        Returns:
            The files.

        Raises:
            StateUsageError: The folder cannot be written.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        written: list[Path] = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for name, batches in self._streams():
                # An id may have any character but "/", which would name a folder.
                written.append(folder / f"{name.replace('/', '_')}.parquet")
                pq.write_table(pa.Table.from_batches(batches), written[-1])
        except OSError as error:
            raise StateUsageError(
                f"the rows cannot be written to {str(folder)!r}: {error}; expected a folder that "
                "can be created or written",
                path=str(folder),
            ) from error
        return written

    def _streams(self) -> Iterator[tuple[str, list[pa.RecordBatch]]]:
        for id, each in self.components.items():
            for stream, batches in each.emitted.items():
                yield f"{id}.out.{stream}", batches
            for stream, batches in each.received.items():
                yield f"{id}.in.{stream}", batches


EQUAL = "equal"
DIFFERS = "differs"
NOT_COMPARED = "not compared"


class _Replaying:
    """One call of :func:`replay`."""

    def __init__(
        self,
        session: OperatorSession,
        history: StoredHistory,
        past: Mapping[StateName, PastState],
        spark: object | None,
        stack: ExitStack,
    ) -> None:
        self._session, self._history, self._past = session, history, past
        states = {name: each.overlay for name, each in past.items()}
        self._program = PastProgram(session.graph, session.config, states, spark, stack)

    def replayed(self, first: int, txid: int) -> Replay:
        history, program = self._history, self._program
        known = {each: history.metadata(each) for each in range(first, txid + 1)}
        if program.needs_previous(known[first]):
            known[first - 1] = history.metadata(first - 1)
        for each in range(first, txid + 1):
            stored = history.processed(each)
            attempt, metadata = stored.attempt, known[each]
            outcome = program.run(stored, known)
            if outcome.failure is not None:
                break
        recording, failure, batch = program.recording, outcome.failure, outcome.batch
        brought = {} if batch is None else batch.metadata.content or {}
        return Replay(
            topology_id=self._session.graph.id,
            txid=txid,
            attempt=attempt,
            committed=attempt.txid < history.current,
            first_txid=first,
            metadata=metadata,
            components=recording.components,
            tuples={} if batch is None else batch.tuples,
            states={} if failure is not None else self._states(first, txid),
            content=self._content(metadata, stored.content, brought) if batch is not None else {},
            raised=recording.raised,
            failure=None if failure is None else one_line(failure.error),
        )

    def _content(
        self,
        metadata: BatchMetadata,
        known: Mapping[str, Mapping[str, Json]] | None,
        brought: Mapping[str, Mapping[str, Json]],
    ) -> dict[str, str]:
        found = {}
        for spout in self._session.graph.spouts:
            id, kind = spout.id, spout.spout_kind
            if not metadata.takes_part(id):
                found[id] = f"{NOT_COMPARED}: it was not part of this txid"
            elif id not in brought:
                found[id] = (
                    f"{NOT_COMPARED}: a replay of {kind.text} {id!r} may deliver another batch"
                )
            elif not known or id not in known:
                found[id] = f"{NOT_COMPARED}: its content was not stored"
            elif (part := kind.differing(known[id], brought[id])) is not None:
                then, now = known[id].get(part), brought[id].get(part)
                found[id] = f"{DIFFERS} in {kind.part} {part}: got {now}, committed was {then}"
            elif known[id].keys() != brought[id].keys():
                found[id] = f"{NOT_COMPARED}: it had other {kind.part}s then"
            else:
                found[id] = EQUAL
        for id, parts in brought.items():
            if id in found:
                continue
            if not known or id not in known:
                found[id] = f"{NOT_COMPARED}: its answers were not stored"
            elif known[id] != parts:
                found[id] = f"{DIFFERS} in its answers: got {parts}, committed was {known[id]}"
            else:
                found[id] = EQUAL
        return found

    def _states(self, first: int, txid: int) -> dict[str, StateChanges]:
        found = {}
        for (component, state), past in self._past.items():
            name = f"{component}.{state}"
            written = past.overlay.written.get(txid)
            found[name] = StateChanges(
                component,
                self._session.table(name),
                past.how,
                {} if written is None else written.changes,
                () if written is None else written.statements,
                self._compared(name, past, first, txid),
            )
        return found

    def _compared(self, name: str, past: PastState, first: int, txid: int) -> str:
        if past.after is None:
            return f"{NOT_COMPARED}: {past.how}"
        if past.afterwards is None:
            return f"{NOT_COMPARED}: the state does not hold what it held after this txid"
        ours: dict[Key, Values | None] = {}
        for each in range(first, txid + 1):
            if (written := past.overlay.written.get(each)) is not None:
                ours |= {key: change.after for key, change in written.changes.items()}
        scanned = [*islice(past.afterwards.items(), ROWS_SCANNED_MAX + 1)]
        whole = len(scanned) <= ROWS_SCANNED_MAX
        rows = scanned if whole else past.afterwards.rows([*ours]).items()
        theirs = {key: row.visible() for key, row in rows if row.txid == txid}
        keys = [
            key for key in {**ours, **theirs} if not same_values(ours.get(key), theirs.get(key))
        ]
        if not keys:
            return EQUAL if whole else f"{EQUAL} in the keys that it wrote, of a large table"
        key, component = keys[0], self._session.owners[name].component
        if component not in self._session.graph.repeating:
            return f"{NOT_COMPARED}: an opaque spout may have delivered another batch"
        return (
            f"{DIFFERS} in {len(keys)} of {len({**ours, **theirs})} keys, as {key!r:.100}: got "
            f"{ours.get(key)!r:.200}, committed was {theirs.get(key)!r:.200}"
        )


def same_values(one: Values | None, other: Values | None) -> bool:
    """Return whether two rows have equal values; NaN equals NaN."""
    if one is None or other is None:
        return one is other
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
