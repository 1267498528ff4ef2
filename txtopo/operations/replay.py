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
   compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt, ranges_text
from txtopo.config import Config
from txtopo.ensemble.nodes import (
    BATCHES,
    CURRENT,
    StoredBatch,
    batch_of,
    batch_path,
    current_of,
    txid_of,
)
from txtopo.errors import StateUsageError
from txtopo.log_records import one_line
from txtopo.metadata import BatchMetadata, Json
from txtopo.operations.overlay import KeyChange
from txtopo.operations.past import PastState, first_to_replay, open_past
from txtopo.operations.session import Access, OperatorSession, open_operator_session

if TYPE_CHECKING:
    from txtopo.builders.transactional import Topology
    from txtopo.fingerprint import StateName
    from txtopo.operations.recording import ComponentTuples, Raised
    from txtopo.state.backend import Key, StateTable, Values
    from txtopo.state.statements import Statement

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
        _check_driven(session)
        history = StoredHistory(session)
        history.check(txid)
        past = open_past(session, txid, stack)
        return _Replaying(session, history, past, access.spark, stack).replayed(txid)


@dataclass(frozen=True, slots=True)
class StateChanges:
    """What a txid does to a state.

    Attributes:
        columns: The schema of the state.
        how: As of which txid it was read, in words.
        changes: Values before and after, by key.
        statements: The statements of users; none was executed.
        compared: ``"equal"``, how it differs, or why it was not compared.
    """

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
        attempt: The attempt as which the txid ran.
        committed: Whether the txid is committed.
        first_txid: The first member of its group that was computed before it; the txid itself for
            none.
        metadata: The metadata of the txid.
        components: The tuples that each component received and emitted, as Arrow record batches;
            empty if Spark computed them.
        tuples: How many tuples each component emitted, by stream.
        states: What it does to each state, by ``component.state``.
        content: For each spout ``"equal"``, how it differs from what was committed, or why it was
            not compared.
        raised: What user code raised; None if nothing.
        failure: Why the batch failed, in one line; None if it did not.
    """

    topology_id: str
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
        told = [(f"spout {id!r}", text) for id, text in self.content.items()]
        told += [(f"state {name!r}", each.compared) for name, each in self.states.items()]
        return tuple(f"{what}: {text}" for what, text in told if text.startswith(DIFFERS))

    def __str__(self) -> str:
        from txtopo.operations.replay_text import replay_text

        return replay_text(self)

    def write(self, folder: Path) -> list[Path]:
        """Write all tuples as Parquet files, one for each stream that a component has or receives.

        Args:
            folder: The folder, which is made if it is missing.

        Returns:
            The files.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        folder.mkdir(parents=True, exist_ok=True)
        written = []
        for id, each in self.components.items():
            streams = [(f"{id}.out.{stream}", found) for stream, found in each.emitted.items()]
            streams += [(f"{id}.in.{stream}", found) for stream, found in each.received.items()]
            for name, batches in streams:
                written.append(folder / f"{name}.parquet")
                pq.write_table(pa.Table.from_batches(batches), written[-1])
        return written


EQUAL = "equal"
DIFFERS = "differs"
NOT_COMPARED = "not compared"


class StoredHistory:
    """The metadata that ZooKeeper has of the txids of a topology, read when it is needed.

    A leader may delete old metadata meanwhile.

    Args:
        session: The session of the verb.

    Attributes:
        current: The lowest txid that is not committed.
    """

    def __init__(self, session: OperatorSession) -> None:
        self._session = session
        self.current = current_of(session.state.get(CURRENT)) if session.known else 1

    def batch(self, txid: int) -> StoredBatch | None:
        """Return what is stored of a txid; None if nothing is."""
        path = batch_path(txid)
        node = self._session.state.get(path)
        return None if node is None else batch_of(path, txid, node)

    def txids(self) -> list[int]:
        """Return the txids of which metadata is stored."""
        return sorted(
            txid_of(f"{BATCHES}/{name}") for name in self._session.state.children(BATCHES)
        )

    def check(self, txid: int) -> StoredBatch:
        """Return what is stored of a txid.

        Raises:
            StateUsageError: Nothing is.
        """
        found = self.batch(txid)
        if found is not None:
            return found
        there, kept = ranges_text(self.txids()), self._session.config.history_txids
        if txid < 1 or txid >= self.current:
            why = "it was not planned yet" if txid >= 1 else "txids begin with 1"
        else:
            why = (
                f"it is gone: history_txids={kept} keeps {kept} before the last group; a run with "
                "a larger Config(history_txids=…) keeps more from then on"
            )
        raise StateUsageError(
            f"txid {txid} of topology {self._session.graph.id!r} cannot be replayed; {why}; "
            f"ZooKeeper has {there}; expected one of these",
            txid=txid,
        )

    def metadata(self, txid: int) -> BatchMetadata:
        """Return the metadata of a txid, as the topology reads it; raises as :meth:`check`."""
        if not txid:
            return self._session.beginning
        return self._session.metadata_of(txid, self.check(txid).metadata)


def _check_driven(session: OperatorSession) -> None:
    spout = session.graph.spout
    if spout.spout_kind.driven_by == "query":
        raise StateUsageError(
            f"topology {session.graph.id!r} is driven by a streaming query, so its batches are in "
            f"the checkpoint of Spark, not in ZooKeeper; got {spout.spout_kind.text} {spout.id!r}; "
            "expected a spout that the coordinator plans",
            component=spout.id,
        )


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
        # They need pyarrow, which may be missing where the verbs are only imported.
        from txtopo.operations.recording import Recording
        from txtopo.operations.rerun import Rerun
        from txtopo.operations.rerun_carrier import open_carrier

        self._session, self._history, self._past = session, history, past
        self._recording = Recording()
        carrier, config = open_carrier(session.graph, session.config, spark, self._recording)
        stack.callback(carrier.close)
        states = {name: each.overlay for name, each in past.items()}
        self._rerun = Rerun(session.graph, config, carrier, states, self._recording)

    def replayed(self, txid: int) -> Replay:
        first, history = first_to_replay(self._past, txid), self._history
        attempt, outcome = None, None
        for each in range(first, txid + 1):
            self._recording.clear()
            stored = history.check(each)
            attempt, metadata = stored.attempt, history.metadata(each)
            outcome = self._rerun.run(attempt, metadata, self._previous(each, metadata))
            if outcome.failure is not None:
                break
        assert attempt is not None
        assert outcome is not None
        raised, failure, batch = self._recording.raised, outcome.failure, outcome.batch
        brought = {} if batch is None else batch.metadata.content or {}
        return Replay(
            topology_id=self._session.graph.id,
            attempt=attempt,
            committed=attempt.txid < history.current,
            first_txid=first,
            metadata=metadata,
            components=self._recording.components,
            tuples={} if batch is None else batch.tuples,
            states={} if failure is not None else self._states(first, txid),
            content=self._content(stored.content, brought) if batch is not None else {},
            raised=raised,
            failure=None if failure is None else one_line(failure.error),
        )

    def _previous(self, txid: int, metadata: BatchMetadata) -> BatchMetadata | None:
        """Return the metadata of the txid before, if a spout needs it to emit this one."""
        needs = self._session.cutting - set(self._session.repeatable)
        if metadata.is_cut(self._session.cutting) and not needs:
            return None
        return self._history.metadata(txid - 1)

    def _content(
        self,
        known: Mapping[str, Mapping[str, Json]] | None,
        brought: Mapping[str, Mapping[str, Json]],
    ) -> dict[str, str]:
        found = {}
        for spout in self._session.graph.spouts:
            id, kind = spout.id, spout.spout_kind
            if id not in brought:
                found[id] = (
                    f"{NOT_COMPARED}: a replay of {kind.text} {id!r} may bring another batch"
                )
            elif not known or id not in known:
                found[id] = f"{NOT_COMPARED}: no content of it was stored"
            elif (part := kind.differing(known[id], brought[id])) is None:
                found[id] = EQUAL
            else:
                then, now = known[id][part], brought[id][part]
                found[id] = f"{DIFFERS} in {kind.part} {part}: got {now}, committed was {then}"
        return found

    def _states(self, first: int, txid: int) -> dict[str, StateChanges]:
        found = {}
        for (component, state), past in self._past.items():
            name = f"{component}.{state}"
            written = past.overlay.written.get(txid)
            found[name] = StateChanges(
                self._session.table(name),
                past.how,
                {} if written is None else written.changes,
                () if written is None else written.statements,
                self._compared(name, past, first, txid),
            )
        return found

    def _compared(self, name: str, past: PastState, first: int, txid: int) -> str:
        if past.after is None:
            return f"{NOT_COMPARED}: the state is read {past.how}"
        if past.afterwards is None:
            return f"{NOT_COMPARED}: the state does not hold what it held after this txid"
        ours: dict[Key, Values | None] = {}
        for each in range(first, txid + 1):
            if (written := past.overlay.written.get(each)) is not None:
                ours |= {key: change.after for key, change in written.changes.items()}
        log = self._session.table(name).mode == "log"  # its rows are combined, and of no txid
        rows = past.afterwards.rows([*ours]).items() if log else past.afterwards.items()
        theirs = {key: row.visible() for key, row in rows if log or row.txid == txid}
        keys = [
            key for key in {**ours, **theirs} if not same_values(ours.get(key), theirs.get(key))
        ]
        if not keys:
            return EQUAL
        key, component = keys[0], self._session.owners[name].component
        if component not in self._session.graph.repeating:
            return f"{NOT_COMPARED}: an opaque spout may have brought another batch"
        return (
            f"{DIFFERS} in {len(keys)} of {len({**ours, **theirs})} keys, as {key!r:.100}: got "
            f"{ours.get(key)!r:.200}, committed was {theirs.get(key)!r:.200}"
        )


def same_values(one: Values | None, other: Values | None) -> bool:
    """Return whether two rows have equal values; NaN equals NaN."""
    if one is None or other is None:
        return one is other
    return all(a == b or (a != a and b != b) for a, b in zip(one, other, strict=True))
