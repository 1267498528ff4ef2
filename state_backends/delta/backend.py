"""DeltaBackend: the protocol of a state, in versions of a Delta table.

Rules
-----
1. A commit reads the ledger from a snapshot and is prepared on that snapshot. If another
   transaction of the state came in between, Delta refuses the commit, and the ledger is read again.
   That enforces the fence and the order. So the first try may use the snapshot of the previous
   commit, which saves reading the log (2 to 9 ms); if the ledger of that snapshot refuses, it is
   checked again with the newest snapshot.
2. The undo of an earlier attempt is part of the same merge, hence of the same version.
3. A claim is an empty append with its transaction. It repeats the txid, attempt and writer of the
   table, so it never moves a state. If the state declares further columns, the same version adds
   them, and two more give them their values (``evolution.py``).
4. An error of delta-rs during a commit leaves the outcome unknown, unless it states that nothing
   was written. The caller reads the ledger.
5. Expired rows are deleted in a separate version, which repeats the transaction, as a claim does.
   So it is refused if another transaction came in between. It rewrites the files that contain such
   rows, so it is done rarely.
6. A reader gets one version of the table. Each version is the result of the batches 1 to the txid
   of its ledger.
7. If others have written since the last commit of this backend, the backend checks that they
   changed no rows (``lineage.py``), before the next commit and after it. A claim checks this as
   well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from state_backends.delta.appending import Appender
from state_backends.delta.by_session import session, sole_writer
from state_backends.delta.durability import DurableLog
from state_backends.delta.evolution import add_columns, change_of, change_table
from state_backends.delta.failures import FAILURES, translated
from state_backends.delta.layout import Layout, Location
from state_backends.delta.library import HAS_DELTA_RS, DeltaTable
from state_backends.delta.lineage import foreign_change
from state_backends.delta.merging import Merger, commit_nothing, delete_rows
from state_backends.delta.reading import (
    DeltaSnapshot,
    Reader,
    statistics,
    txid_of,
    version_of,
)
from state_backends.delta.spark import (
    SparkMerger,
    frame_of,
    operators_of,
    translated_of_spark,
)
from state_backends.delta.tables import (
    create_table,
    ledger_of,
    properties_of,
    stored_states,
    transaction,
)
from state_backends.delta.upkeep import Upkeep
from txtopo.errors import (
    PromiseError,
    StateUsageError,
    StoreContended,
    StoreDamagedError,
    StoreUnavailable,
)
from txtopo.extras import EXTRAS
from txtopo.plugins.stores import (
    Claim,
    FrameWrites,
    Ledger,
    Puts,
    Snapshot,
    Standing,
    StateBackend,
    StateMode,
    StateSize,
    StateTable,
    TableChange,
    TransactionAttempt,
    Writes,
    claimed,
    combines_in_store,
    expired_keys,
    expiring,
    final_values,
    not_allowed,
    standing,
)

Result = TypeVar("Result")

_TRIES_MAX, _CLAIMS_MAX = 3, 100

EXPIRY_TXIDS = 100
"""The number of txids between two searches for expired rows."""


class DeltaBackend(StateBackend):
    """One state in a Delta table; see :mod:`state_backends.delta`."""

    modes: frozenset[StateMode] = frozenset({"table", "log"})
    groups = evolves = HAS_DELTA_RS
    more_with = "" if HAS_DELTA_RS else EXTRAS["deltalake"].command

    def __init__(self, location: Location, state: StateTable) -> None:
        self._location = location
        self._uri = location.table(state.name)
        self._state = state
        self._layout = Layout(state)
        self._label = f"state {state.name!r} in {self._uri}"
        self._reader = Reader(location, state.name, self._layout.schema)
        self._writer = (
            Appender(self._layout, self._reader) if state.mode == "log" else Merger(self._layout)
        )
        self._upkeep = Upkeep(
            self._open, self._reader, self._layout, location.history_txids, self._renewed
        )
        # Open tables that are not in use. Each call takes a separate one, since calls may overlap.
        self._idle: list[DeltaTable] = []
        self._known: tuple[int, Ledger | None] = (-1, None)
        self._expires_next = 0
        self._log = DurableLog(self._uri, self._label, local=location.local)

    def create(self) -> None:
        """Create the table, or check the existing one."""
        if not HAS_DELTA_RS:
            session()  # before a folder is made
        self._log.check()
        with self._named_errors():
            create_table(self._location, self._layout, self._label)

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says."""
        self.claimant = claim
        # A zombie may write all the time, and the first writer wins. So the slow parts are done
        # before, and a claim tries more often than a commit, always with the same table.
        with self._table(newest=True) as table:
            held = self._ledger(table)
            same = claimed(held, claim) == held and self._change(table) is None
            if same and _described(table, held):
                assert held is not None
                self._log.written(table.version())
                return held
            self._log.begin(table.version())
            return self._tried(lambda _: self._claim_once(table, claim), _CLAIMS_MAX)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        return self._tried(lambda number: self._commit_once(attempt, writes, newest=number > 0))

    def apply_frame(self, attempt: TransactionAttempt, writes: FrameWrites) -> Ledger:
        """Make Spark merge the rows of an attempt, as ``FrameBackend.apply_frame`` says."""
        return self._tried(lambda _: self._apply_once(attempt, writes))

    @property
    def deletes_expired(self) -> bool:
        """Whether there is delta-rs: Spark skips a transaction that it has, and repeats none."""
        return HAS_DELTA_RS

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete rows that no later txid needs, all at once and rarely."""
        if before_txid < self._expires_next or not self.deletes_expired:
            return 0
        count = self._tried(lambda _: self._expire_once(up_to, before_txid))
        self._expires_next = before_txid + EXPIRY_TXIDS
        return count

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open one version of the table."""
        with self._table(newest=True) as table:
            ledger = self._ledger(table)
            yield self._snapshot(table, ledger)

    @contextmanager
    def snapshot_of(self, txid: int) -> Iterator[Snapshot]:
        """Open the last version of the table whose ledger holds *txid*."""
        with self._table(newest=True) as newest:
            table = self._at(newest, txid)
            ledger = self._read_ledger(table)
            yield self._snapshot(table, ledger)

    def stored(self) -> tuple[StateTable, ...] | None:
        """Return the states whose tables are in the folder."""
        self._log.check()
        with self._named_errors():
            return stored_states(self._location, self._state.name)

    def size(self) -> StateSize:
        """Return the rows of the newest version and the bytes of its files, from the log."""
        with self._table(newest=True) as table, self._named_errors():
            rows, sizes = statistics(table, "num_records", "size_bytes")
        known = None not in rows
        return StateSize(sum(rows) if known else None, sum(sizes))

    def sql(self) -> str | None:
        """Return the query of the columns that users declared, without deleted rows."""
        return self._layout.sql()

    def close(self) -> None:
        """Drop the open tables, and wait for a running fold."""
        self._upkeep.close()
        self._idle.clear()

    def _tried(self, once: Callable[[int], Result], tries_max: int = _TRIES_MAX) -> Result:
        """Call *once*, and again if another writer came in between."""
        for number in range(tries_max):
            with suppress(StoreContended):
                return once(number)
        raise StoreUnavailable(
            f"{self._label} was changed by other writers {tries_max} times in a row; nothing was "
            "written; try again",
            state=self._state.name,
            tries=tries_max,
        )

    def _claim_once(self, table: DeltaTable, claim: Claim) -> Ledger:
        self._update(table)
        held = self._ledger(table)
        ledger = claimed(held, claim)
        change = self._change(table)
        if change is not None and not claim.changes_table:
            raise not_allowed(change, self._label)
        properties = transaction(ledger, self._state.name, held)
        with self._named_errors(writing=True):
            if held is None:
                table.alter.set_table_properties(properties_of(ledger), raise_if_not_exists=False)
            if change is None:
                commit_nothing(table, self._layout, properties)
            else:
                made = add_columns(table, self._layout, properties)
                self._written(table, ledger)
                self.point("change.claimed")
                self.point("change.columns")
                change_table(table, self._layout, change, properties, made, self.point)
            if held is not None and not _described(table, ledger):
                # The new owner's transaction is written before the properties name the new owner.
                self._written(table, held)
                table.alter.set_table_properties(properties_of(ledger), raise_if_not_exists=False)
            self._written(table, ledger)
        return ledger

    def _change(self, table: DeltaTable) -> TableChange | None:
        with self._named_errors():
            return change_of(table, self._state, self._label)

    def _commit_once(self, attempt: TransactionAttempt, writes: Writes, *, newest: bool) -> Ledger:
        with self._table(newest=newest) as table:
            held = self._ledger(table)
            try:
                found = standing(held, attempt, self.claimant)
            except PromiseError as error:
                if newest:
                    raise
                raise StoreContended(
                    f"{self._label} may have changed: {error}",
                    state=self._state.name,
                    got=str(error),
                ) from error
            assert held is not None
            if found is Standing.HELD:
                return held
            self.point("begin.after")
            self.point("rows.before")
            ledger = held.written_by(attempt)
            properties = transaction(ledger, self._state.name)
            writes = self._combined(table, held, attempt.txid, writes, found)
            self.point("rows.after")
            self.point("write.before")
            if not HAS_DELTA_RS:
                return self._commit_by_session(table, attempt, writes, found, ledger)
            before = table.version()
            with self._named_errors(writing=True):
                self._writer.write(table, attempt.txid, writes, found, properties)
                self._written(table, ledger)
            if table.version() > before + 1:
                self._check_lineage(table)
            self._upkeep.after(attempt.txid)
            return ledger

    def _expire_once(self, up_to: Any, before_txid: int) -> int:
        with self._table(newest=True) as table:
            held = self._ledger(table)
            txid = expiring(held, self.claimant, before_txid)
            assert held is not None
            found = self._snapshot(table, held).between(self._state, None, up_to, txid)
            keys = expired_keys(self._state, dict(found), up_to, txid)
            if keys:
                properties = transaction(held, self._state.name)
                with self._named_errors(writing=True):
                    delete_rows(table, self._layout, keys, txid, properties)
                    self._written(table, held)
        return len(keys)

    def _apply_once(self, attempt: TransactionAttempt, writes: FrameWrites) -> Ledger:
        with self._table(newest=True) as table:
            held = self._ledger(table)
            found = standing(held, attempt, self.claimant)
            assert held is not None
            if found is Standing.HELD:
                return held
            if found is Standing.REDO and not self._layout.opaque:
                return self._commit_once(attempt, Puts({}), newest=True)
            self.point("begin.after")
            self.point("rows.before")
            self.point("rows.after")
            self.point("write.before")
            self._merge_by_spark(table, attempt.txid, writes, found, held.written_by(attempt))
            return self._found(table, attempt)

    def _commit_by_session(
        self,
        table: DeltaTable,
        attempt: TransactionAttempt,
        writes: Writes,
        found: Standing,
        ledger: Ledger,
    ) -> Ledger:
        """Make Spark merge rows of this process, where there is no delta-rs."""
        if found is Standing.REDO and not self._layout.opaque:
            with self._named_errors(writing=True):
                commit_nothing(table, self._layout, transaction(ledger, self._state.name))
        else:
            assert isinstance(self._writer, Merger), "the factory refuses mode 'log'"
            frame = frame_of(self._writer.rows(writes))
            operators = None if isinstance(writes, Puts) else operators_of(self._state)
            by_frame = FrameWrites(frame, operators)
            self._merge_by_spark(table, attempt.txid, by_frame, found, ledger)
        return self._found(table, attempt)

    def _merge_by_spark(
        self, table: DeltaTable, txid: int, writes: FrameWrites, found: Standing, ledger: Ledger
    ) -> None:
        assert isinstance(self._writer, Merger), "the factory refuses frames in mode 'log'"
        tombstones = self._writer.tombstones or found is Standing.REDO
        with nullcontext() if HAS_DELTA_RS else sole_writer(self._uri):
            if not HAS_DELTA_RS:
                self._check_unchanged(table)
            self._writer.tombstones = self._layout.opaque
            try:
                merger = SparkMerger(self._layout, self._uri)
                merger.write(txid, writes, ledger, tombstones=tombstones)
            except Exception as error:
                raise translated_of_spark(error, self._label) from error
        self._writer.tombstones = self._layout.opaque and writes.deletes

    def _check_unchanged(self, table: DeltaTable) -> None:
        """Check that the ledger which was judged is still the newest; nobody else writes now.

        Raises:
            StoreContended: Another writer came in between; nothing was written.
        """
        judged = table.version()
        with self._named_errors():
            table.update_incremental()
        if table.version() != judged:
            raise StoreContended(
                f"{self._label} was changed in the meantime; got version {table.version()}; "
                f"expected {judged}, whose ledger was judged",
                state=self._state.name,
                got=table.version(),
                expected=judged,
            )

    def _found(self, table: DeltaTable, attempt: TransactionAttempt) -> Ledger:
        """Read the ledger after a merge by Spark: a skipped merge looks like a success."""
        with self._named_errors(writing=True):
            table.update_incremental()
            ledger = self._ledger(table, writing=True)
            if standing(ledger, attempt, self.claimant) is not Standing.HELD:
                raise StoreContended(
                    f"Spark wrote nothing to {self._label}, which holds {ledger}",
                    state=self._state.name,
                    got=str(ledger),
                )
            self._log.written(table.version())
        assert ledger is not None
        self._upkeep.after(attempt.txid)
        return ledger

    def _combined(
        self, table: DeltaTable, held: Ledger, txid: int, writes: Writes, found: Standing
    ) -> Writes:
        """Return final values instead of partials that Delta cannot combine."""
        kept = found is Standing.REDO and self._state.kind == "transactional"
        if kept or combines_in_store(self._state):
            return writes
        read = self._snapshot(table, held).rows
        return final_values(self._state, txid, writes, read)

    def _snapshot(self, table: DeltaTable, ledger: Ledger | None) -> DeltaSnapshot:
        by_spark = self._location.frames and self._location.local
        layout, flaw = self._layout, partial(self._flaw, table)
        return DeltaSnapshot(
            table, self._reader, layout, ledger, self._label, by_spark=by_spark, flaw=flaw
        )

    def _written(self, table: DeltaTable, ledger: Ledger) -> None:
        self._log.written(table.version())
        self._known = (table.version(), ledger)

    def _flaw(self, table: DeltaTable) -> str | None:
        if self._state.prunable:
            return None  # what a user deletes is a separate version
        with self._named_errors():
            return foreign_change(table, self._open_at)

    def _check_lineage(self, table: DeltaTable) -> None:
        """Check that other writers have changed no rows since the last check."""
        if self.claimant is not None and (flaw := self._flaw(table)) is not None:
            raise StoreDamagedError(
                f"the rows of {self._label} do not match its ledger: {flaw}",
                state=self._state.name,
                got=flaw,
            )

    def _ledger(self, table: DeltaTable, *, writing: bool = False) -> Ledger | None:
        version, ledger = self._known
        if version == table.version():
            return ledger
        ledger = self._read_ledger(table, writing=writing)
        if version >= 0:
            self._check_lineage(table)
        with self._named_errors(writing=writing):
            self._log.believed(table.version())
        self._known = (table.version(), ledger)
        return ledger

    def _read_ledger(self, table: DeltaTable, *, writing: bool = False) -> Ledger | None:
        with self._named_errors(writing=writing):
            return ledger_of(table, self._state.name)

    @contextmanager
    def _table(self, *, newest: bool) -> Iterator[DeltaTable]:
        """Give this call a separate table, at the newest version or at one read earlier."""
        with self._named_errors():
            self._log.sync()
            if self._idle:
                table = self._idle.pop()
                if newest or table.version() < self._known[0]:
                    self._update(table)
            else:
                table = self._open()
        yield table
        self._idle.append(table)

    def _update(self, table: DeltaTable) -> None:
        with self._named_errors():
            table.update_incremental()
        self._log.check(table.version())

    @contextmanager
    def _named_errors(self, *, writing: bool = False) -> Iterator[None]:
        """Translate exceptions of delta-rs; if the log is damaged, raise that instead."""
        try:
            yield
        except FAILURES as error:
            if not writing:
                self._log.check()
            raise translated(error, self._label, uri=self._uri, writing=writing) from error

    def _renewed(self, table: DeltaTable) -> None:
        self._idle[:] = [table]

    def _open(self) -> DeltaTable:
        table = DeltaTable(self._uri, storage_options=self._location.options or None)
        self._log.check(table.version())
        return table

    def _at(self, newest: DeltaTable, txid: int) -> DeltaTable:
        ledger, kept = self._ledger(newest), self._location.history_txids
        held = 0 if ledger is None else ledger.txid
        oldest = max(0, held - kept)
        if ledger is not None and oldest <= txid <= held:
            owned = (ledger.topology, self._state.name)
            found = version_of(txid, newest, self._open_at, *owned)
            if found is not None and (before := txid_of(found, *owned)) < txid:
                last = txid_of(self._open_at(found.version() + 1), *owned)
                ends = [str(end) for end in (before, last) if end >= oldest]
                raise StateUsageError(
                    f"{self._label} cannot be read as of txid {txid}; txids {before + 1} to {last} "
                    f"were written together, as a group; expected txid {' or '.join(ends)}",
                    group=(before + 1, last),
                )
            if found is not None:
                return found
        raise StateUsageError(
            f"{self._label} cannot be read as of txid {txid}; it holds txid {held} and keeps "
            f"{kept} before it, as far back as delta.logRetentionDuration allows; expected a "
            "later txid, or a larger ?history_txids=… in the URL of the state",
            state=self._state.name,
            txid=txid,
            ledger_txid=held,
        )

    def _open_at(self, version: int) -> DeltaTable:
        return DeltaTable(self._uri, version, self._location.options or None)


def _described(table: DeltaTable, ledger: Ledger | None) -> bool:
    """Return whether the properties of the table agree with the ledger."""
    if ledger is None:
        return False
    properties = table.metadata().configuration
    return all(properties.get(name) == text for name, text in properties_of(ledger).items())
