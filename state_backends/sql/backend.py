"""SqlBackend: the protocol of a state, in database transactions.

Rules
-----
1. Every write first locks the row of the ledger (``BEGIN IMMEDIATE`` in SQLite), so that writers of
   one state run one after the other, and each sees the previous one's writes. A backend that knows
   what it wrote last replaces that ledger, if the row is still the same in all columns: one
   statement locks, checks and writes. If the row differs, and in all other cases, it is read ``FOR
   UPDATE``.
2. An error before COMMIT was sent means that nothing was written. If the connection is lost during
   COMMIT, the outcome is unknown: the backend raises ``UnknownOutcomeError``, and its caller reads
   the ledger.
3. After a deadlock, a serialization failure or a lock timeout the whole transaction is tried again
   here, a few times. If that does not help, the backend raises ``StoreUnavailable``; but if a row
   already exists each time, the run ends.
4. Only :meth:`SqlBackend.create` makes tables, and only :meth:`SqlBackend.claim` changes one, see
   ``evolution.py``.
5. States that share a transaction are written through the connection of one of them. Their ledgers
   are locked first, in the order of their tables' names, so two such transactions cannot block each
   other. Then statements whose answers nobody needs may be sent without waiting for one another.
   What a backend remembers of its ledger is forgotten unless COMMIT returned.
6. What takes statements back is executed before the rows are undone, and statements after the rows
   are written. An error of the database in one is the user's, unless it is an outage or a lock that
   another try may meet no more.
7. Beyond a limit the server ends a write transaction that pauses, so that a writer that hangs does
   not keep the ledger locked. A batch whose values Python combines or encodes for longer would
   never be written. So the next write transactions of these states may pause for twice as long,
   up to ten minutes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import islice, repeat
from typing import Any, TypeVar

import pyarrow as pa
import sqlalchemy as sa

from state_backends.sql.creation import create_tables, stored_states
from state_backends.sql.dialect import LedgerRow, SqlDialect, ledger_of, ledger_row
from state_backends.sql.evolution import change_of, change_table
from state_backends.sql.failures import paused, stuck, translated
from state_backends.sql.queries import check_query, query_rows, refused
from state_backends.sql.statements import (
    check_statement,
    execute_statements,
    execute_undos,
    is_of_user,
    names_of,
)
from txtopo.errors import (
    PromiseError,
    SchemaDrift,
    StatementFailed,
    StateUsageError,
    StoreContended,
    StoreUnavailable,
    ValueRefusedError,
)
from txtopo.log_records import logger_of
from txtopo.plugins.stores import (
    Claim,
    Database,
    Key,
    Ledger,
    Puts,
    QueryRows,
    Row,
    RowText,
    Snapshot,
    Standing,
    StateBackend,
    Statement,
    StateSize,
    StateTable,
    StoredUndo,
    TransactionAttempt,
    Witness,
    Writes,
    check_undone,
    claimed,
    combines_in_store,
    expiring,
    final_values,
    missing_undo,
    not_allowed,
    redacted_url,
    redo_repeats,
    standing,
    statements_of,
    undos_from_text,
    undos_of,
    undos_to_text,
    witness_of,
)

_logger = logger_of("txtopo.state")

Result = TypeVar("Result")

# Contention is rare, since one coordinator writes; for a longer lock the runtime waits.
_TRIES_MAX = 3

# Each snapshot reads them with the ledger, and MariaDB takes 16 MiB in one statement by default.
_UNDOS_MAX = 4 * 2**20

# For as long a writer that hangs may keep others from the ledger.
_PAUSE_MAX_S = 600.0

# A commit waits for this many, a few milliseconds.
_EXPIRED_AT_ONCE = 1_000


class SqlBackend(StateBackend):
    """One state in an SQL database; see :mod:`state_backends.sql`."""

    evolves = True
    existing_tables = True
    groups = True

    def __init__(self, dialect: SqlDialect, url: str) -> None:
        self._dialect = dialect
        self.modes = dialect.modes
        self._engine = dialect.engine()
        self._ledger = LedgerRow(dialect)
        self._left: _Left | None = None
        self._tried_undos: set[str] = set()
        self._pause_s = 0.0  # for how long a write transaction has to be allowed to pause
        self._failures: tuple[type[Exception], ...] = (
            *(sa.exc.SQLAlchemyError, UnicodeError, OverflowError),
            *dialect.driver_errors,
        )
        self._url = redacted_url(url)
        self._label = f"state {dialect.state.name!r} in {self._url}"

    def connect(self) -> None:
        """Open the connection for writes, unless that would create a file."""
        if not self._dialect.connects_ahead:
            return
        with self._connected() as connection:
            connection.execution_options(**self._dialect.write_options())
            try:
                self._dialect.prepare(connection)
            except self._failures as error:
                raise translated(error, self._label) from error

    def create(self) -> None:
        """Create the tables and the view, or check the existing ones."""

        def is_to_change(connection: sa.Connection, text: str) -> bool:
            return change_of(connection, self._dialect, text, self._label) is not None

        self._write(
            lambda connection: create_tables(connection, self._dialect, self._label, is_to_change)
        )

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says."""
        self.claimant = claim
        self._left = None

        def body(connection: sa.Connection) -> Ledger:
            held, row = self._locked_row(connection)
            ledger = claimed(held, claim)
            change = change_of(connection, self._dialect, row["declaration"], self._label)
            if change is not None and not claim.changes_table:
                raise not_allowed(change, self._label)
            if ledger != held:
                self._ledger.write(connection, ledger, row["undos"])
            if change is not None:
                check = partial(self._check_claimed, connection, ledger, claim)
                change_table(connection, self._dialect, change, check, self._label, self.point)
            return ledger

        return self._write(body)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        return self.commit_together(attempt, [(self, writes)])[0]

    def commit_together(
        self, attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
    ) -> list[Ledger]:
        """Apply the writes to several states of this database, in one transaction."""
        together = [_Member(_own(backend), each) for backend, each in writes]
        in_order = sorted(together, key=lambda member: member.backend._dialect.state.name)

        def body(connection: sa.Connection) -> None:
            self._begin(connection, attempt, in_order)
            begun = [member for member in together if member.begun.found is not Standing.HELD]
            label = _label_of([member.backend for member in begun])
            undos = [each for member in begun for each in member.undos()]
            execute_undos(connection, undos, self._dialect.parameter, label)
            sending = [member for member in begun if len(begun) > 1 and member.only_sends]
            for member in begun:
                if member not in sending:
                    member.write_rows(connection, attempt, member.backend._label)
            if sending:
                # The error of one may come while the next is sent.
                of_all = _label_of([member.backend for member in sending])
                with self._dialect.sending(connection, len(sending)):
                    for member in sending:
                        member.write_rows(connection, attempt, of_all)
            statements = [each for member in begun for each in member.statements()]
            parameter, tried = self._dialect.parameter, self._tried_undos
            execute_statements(connection, statements, parameter, label, tried)
            for member in begun:
                member.backend.point("write.before")

        backends = [member.backend for member in together]
        try:
            self._write(body, backends, statements=any(statements_of(each) for _, each in writes))
        except BaseException:
            _forget(backends)
            raise
        for member in together:
            member.backend._committed(member.begun.ledger, attempt, member.writes)
        return [member.begun.ledger for member in together]

    def _committed(self, ledger: Ledger, attempt: TransactionAttempt, writes: Writes) -> None:
        deletes = isinstance(writes, Puts) and writes.deletes
        self._left = _Left(ledger, tombstones=deletes)
        self._dialect.after_commit(self._engine, attempt.txid)

    def check_statement(self, statement: Statement) -> None:
        """Check a statement of a user, as ``StateBackend.check_statement`` says."""
        check_statement(statement, self._label)

    def database(self) -> Database | None:
        """Return the database, its user, and the options of the URL.

        None if the server does not tell its identity: this user may not ask, or, as in Aurora,
        nobody may.
        """
        with self._connected() as connection:
            try:
                return self._dialect.database(connection)
            except self._failures as error:
                found = translated(error, self._label)
                if isinstance(found, PromiseError):
                    text = (
                        "%s does not reveal its identity, so the state shares no transaction "
                        "with others: %s"
                    )
                    _logger.info(text, self._label, found)
                    return None
                raise found from error

    @contextmanager
    def snapshots(self, backends: Sequence[StateBackend]) -> Iterator[Sequence[Snapshot]]:
        """Open snapshots of several states of this database, in one transaction."""
        with self._reading() as connection:
            members = [_own(backend) for backend in backends]
            yield [SqlSnapshot(connection, each._dialect, each._label) for each in members]

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete some rows that no later txid needs, as ``StateBackend.expire`` says."""

        def body(connection: sa.Connection) -> int:
            columns = self._dialect.columns
            txid = expiring(self._locked_ledger(connection), self.claimant, before_txid)
            # A row of a user's own table from before the first txid has no txid, and stays.
            wanted = [self._dialect.in_range(None, up_to), columns.txid < txid]
            if columns.opaque:
                wanted.append(sa.not_(columns.deleted))
            return self._dialect.expire(connection, sa.and_(*wanted), _EXPIRED_AT_ONCE)

        return self._write(body)

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a consistent snapshot of the state, in a transaction that takes no lock."""
        with self._reading() as connection:
            yield SqlSnapshot(connection, self._dialect, self._label)

    @contextmanager
    def _reading(self) -> Iterator[sa.Connection]:
        with self._connected() as connection:
            connection.execution_options(**self._dialect.read_options())
            try:
                self._dialect.begin_reading(connection)
            except self._failures as error:
                raise translated(error, self._label) from error
            yield connection

    def stored(self) -> tuple[StateTable, ...]:
        """Return the states that the database holds."""
        if self._dialect.missing():
            return ()
        with self._connected() as connection:
            try:
                return stored_states(connection, self._dialect)
            except self._failures as error:
                raise translated(error, self._label) from error

    def size(self) -> StateSize:
        """Return the size of the state's table, as far as the database knows it."""
        with self._connected() as connection:
            try:
                return self._dialect.size(connection)
            except self._failures as error:
                raise translated(error, self._label) from error

    def sql(self) -> str | None:
        """Return the query of the view."""
        preparer = self._engine.dialect.identifier_preparer
        # SQLAlchemy doubles "%" for statements with parameters; this one has none.
        view = preparer.quote(self._dialect.names.view).replace("%%", "%")
        return f"SELECT * FROM {view}"  # noqa: S608 - quoted

    def query(self, statement: str, *, rows_max: int, timeout_s: float) -> QueryRows:
        """Return the rows that a query selects, as ``QueryBackend.query`` says."""
        check_query(statement)
        if self._dialect.missing():
            raise StateUsageError(
                f"there is no database at {self._url}; check the URL", path=self._url
            )
        with self._connected() as connection:
            try:
                return query_rows(connection, self._dialect, statement, rows_max, timeout_s)
            except self._failures as error:
                raise refused(error, self._label, timeout_s) from error
            finally:
                connection.invalidate()

    def close(self) -> None:
        """Close the connections."""
        self._dialect.close()
        self._engine.dispose()

    def _begin(
        self, connection: sa.Connection, attempt: TransactionAttempt, members: Sequence[_Member]
    ) -> None:
        """Lock the ledgers in this order, and set those to *attempt* where it may write."""
        if all(member.predict(attempt) for member in members):
            expected = [member.replacing() for member in members]
            replaced = self._ledger.replace(connection, expected)
            if replaced not in (0, len(members)):
                # Some are replaced by now, so all is taken back and begun again.
                backends = [member.backend for member in members]
                _forget(backends)
                raise StoreContended(
                    f"another writer has changed one of the ledgers of {_label_of(backends)}",
                    store=self._label,
                )
        else:
            replaced = 0
        for member in members:
            if not replaced:
                member.begin(connection, attempt)
            if member.begun.found is not Standing.HELD:
                member.backend.point("begin.after")

    def _predicted(self, attempt: TransactionAttempt, writes: Writes) -> _Begun | None:
        """Return what the commit changes in the ledger, if this backend wrote the last one."""
        left, state = self._left, self._dialect.state
        if left is None or not left.is_before(attempt):
            return None
        found = standing(left.ledger, attempt, self.claimant)
        witness = witness_of(state, left.ledger, attempt, writes, found)
        ledger = left.ledger.written_by(attempt, witness)
        undos = self._undos_of(writes)
        return _Begun(found, left.ledger, ledger, undos, tombstones=left.tombstones)

    def _begun(
        self, connection: sa.Connection, attempt: TransactionAttempt, writes: Writes
    ) -> _Begun:
        """Lock the ledger, and set it to *attempt*, if the attempt may write."""
        (held, row), state = self._locked_row(connection), self._dialect.state
        found = standing(held, attempt, self.claimant)
        assert held is not None
        undos: str | None = row["undos"]
        if found is Standing.HELD:
            return _Begun(found, held, held, undos, tombstones=True)
        ledger = held.written_by(attempt, witness_of(state, held, attempt, writes, found))
        stay = found is Standing.REDO and (not self._dialect.redone or redo_repeats(writes))
        back = undos if found is Standing.REDO and not stay else None
        if not stay:
            undos = self._undos_of(writes)
        self._ledger.write(connection, ledger, undos)
        return _Begun(found, held, ledger, undos, back, statements_stay=stay, tombstones=True)

    def _undos_of(self, writes: Writes) -> str | None:
        """Return what the ledger keeps to take the statements back."""
        text = undos_to_text(undos_of(statements_of(writes), names_of))
        if text is not None and len(text) > _UNDOS_MAX:
            raise ValueRefusedError(
                f"{self._label} cannot store the undo statements of one batch; got {len(text):,} "
                f"bytes; expected at most {_UNDOS_MAX:,}; use an undo that names only :txid, "
                "which is stored once for each call",
                store=self._label,
                bytes=len(text),
                limit=_UNDOS_MAX,
            )
        return text

    def _write_rows(
        self, connection: sa.Connection, txid: int, writes: Writes, begun: _Begun
    ) -> None:
        found = begun.found
        if not self._dialect.redone:
            if found is Standing.APPLY:
                self._dialect.apply(connection, txid, self._combined(connection, txid, writes))
            return
        if found is Standing.REDO:
            self._dialect.undo(connection, txid)
            self._check_undone(connection, begun.held)
        # The rows tagged txid are undone, so the remaining rows are of earlier txids, which stay.
        if begun.tombstones:
            self._dialect.purge(connection)
        self._dialect.apply(connection, txid, self._combined(connection, txid, writes))

    def _check_undone(self, connection: sa.Connection, held: Ledger) -> None:
        """Check that the undo of the txid that the state holds has found its rows."""
        witness = Witness.of(held.witness) if held.witness else None
        if witness is None or not witness.key or witness.txid != held.txid:
            return
        snapshot = SqlSnapshot(connection, self._dialect, self._label)
        key = RowText(self._dialect.state).key_of(witness.key)
        check_undone(next(iter(snapshot.rows([key]).values()), None), witness, self._label)

    def _combined(self, connection: sa.Connection, txid: int, writes: Writes) -> Writes:
        """Return final values instead of partials that the database cannot combine."""
        state = self._dialect.state
        if combines_in_store(state):
            return writes
        read = SqlSnapshot(connection, self._dialect, self._label).rows
        return final_values(state, txid, writes, read)

    def _check_claimed(self, connection: sa.Connection, ledger: Ledger, claim: Claim) -> None:
        """Lock and compare the ledger again, since a change of the table may have released it."""
        held, _ = self._locked_row(connection)
        if held != ledger:
            claimed(held, claim)  # raises, unless the same coordinator was quicker
            raise StoreUnavailable(
                f"{self._label} was claimed again while its table was being changed; try again",
                state=self._dialect.state.name,
            )

    def _locked_ledger(self, connection: sa.Connection) -> Ledger | None:
        return self._locked_row(connection)[0]

    def _locked_row(self, connection: sa.Connection) -> tuple[Ledger | None, Mapping[str, Any]]:
        """Lock the row of the ledger; return the ledger, and the row with its other columns."""
        row = self._ledger.locked(connection)
        if row is None:
            raise SchemaDrift(
                f"{self._label} has no row in the ledger; nothing was written; was the row "
                "removed by hand, or was create() not called?",
                state=self._dialect.state.name,
            )
        return ledger_of(row), dict(row._mapping)

    def _write(
        self,
        body: Callable[[sa.Connection], Result],
        backends: Sequence[SqlBackend] = (),
        *,
        statements: bool = False,
    ) -> Result:
        """Run the body in a transaction of this state, or of several; try again if it is blocked.

        Args:
            body: What is done in it.
            backends: The states, if there are several.
            statements: Whether it may execute statements of users.
        """
        last: StoreContended | None = None
        for _ in range(_TRIES_MAX):
            try:
                return self._write_once(body, backends or (self,), statements=statements)
            except StoreContended as error:
                last = error
        assert last is not None
        raise stuck(last, _TRIES_MAX) from last

    def _write_once(
        self,
        body: Callable[[sa.Connection], Result],
        backends: Sequence[SqlBackend],
        *,
        statements: bool,
    ) -> Result:
        with self._connected() as connection:
            connection.execution_options(**self._dialect.write_options())
            sent = False
            try:
                for each in backends:
                    each._dialect.prepare(connection)
                with connection.begin() as transaction:
                    with self._pausing(connection, backends):
                        result = body(connection)
                    _check_places(connection, backends)
                    sent = True
                    transaction.commit()
                _check_places(connection, backends)
            except self._failures as error:
                found = translated(error, _label_of(backends), during_commit=sent)
                if sent:
                    # SQLite keeps a transaction open whose COMMIT it refuses, with its lock.
                    connection.invalidate()
                if sent and statements and is_of_user(found):
                    found = StatementFailed(
                        f"{found}; the database refused COMMIT after statements of users; does "
                        "one of them violate a deferred constraint? fix the statement",
                        **found.facts,
                    )
                raise found from error
        return result

    @contextmanager
    def _pausing(self, connection: sa.Connection, backends: Sequence[SqlBackend]) -> Iterator[None]:
        """Let the transaction pause for as long as its states need; allow more if it was ended."""
        usual_s = self._dialect.idle_limit_s(connection)
        if usual_s is None:
            yield
            return
        limit_s = max(usual_s, *[each._pause_s for each in backends])
        self._dialect.limit_idle(connection, limit_s)
        info = connection.info  # while it is there: asked later, it would be opened again
        failures: tuple[type[Exception], ...] = (StoreUnavailable, *self._failures)
        try:
            yield
        except failures as error:
            # A state of several has translated its errors, so that they name it.
            found = error if isinstance(error, StoreUnavailable) else None
            cause = error if found is None else found.__cause__
            if not self._dialect.ended_idle(cause, info, limit_s):
                raise
            next_s = max(limit_s, min(2 * limit_s, _PAUSE_MAX_S))
            for each in backends:
                each._pause_s = next_s
            last = found or translated(error, _label_of(backends))
            raise paused(last, limit_s, next_s) from cause

    @contextmanager
    def _connected(self) -> Iterator[sa.Connection]:
        try:
            connection = self._engine.connect()
        except self._failures as error:
            raise translated(error, self._label) from error
        try:
            yield connection
        finally:
            self._give_back(connection)

    def _give_back(self, connection: sa.Connection) -> None:
        """Close a connection. A broken one is discarded, since its error was raised before."""
        try:
            connection.close()
        except self._failures:
            if not connection.closed:
                connection.invalidate()


def _own(backend: StateBackend) -> SqlBackend:
    assert isinstance(backend, SqlBackend), "states of another kind of store have another database"
    return backend


def _forget(backends: Sequence[SqlBackend]) -> None:
    """Forget what each has written last."""
    for backend in backends:
        backend._left = None


def _check_places(connection: sa.Connection, backends: Sequence[SqlBackend]) -> None:
    """Check that the URL of each still leads to what the connection of one of them writes."""
    for backend in backends:
        backend._dialect.check_place(connection)


def _label_of(backends: Sequence[SqlBackend]) -> str:
    """Return the states and their database, for messages about a whole transaction."""
    if len(backends) < 2:
        return "".join(each._label for each in backends)
    names = ", ".join(repr(each._dialect.state.name) for each in backends)
    return f"the transaction of states {names} in {backends[0]._url}"


class _Member:
    """A state in a transaction, which it may share with others.

    Attributes:
        backend: The state.
        writes: What is written to it.
        begun: Its ledger, once it is written.
    """

    begun: _Begun

    def __init__(self, backend: SqlBackend, writes: Writes) -> None:
        self.backend = backend
        self.writes = writes

    def predict(self, attempt: TransactionAttempt) -> bool:
        """Expect the ledger that this backend wrote last; return False if it wrote none."""
        predicted = self.backend._predicted(attempt, self.writes)
        if predicted is not None:
            self.begun = predicted
        return predicted is not None

    def replacing(self) -> dict[str, Any]:
        """Return the parameters that replace the predicted ledger."""
        begun = self.begun
        return self.backend._ledger.replacing(begun.held, begun.ledger, begun.undos)

    def begin(self, connection: sa.Connection, attempt: TransactionAttempt) -> None:
        """Lock the ledger, read it, and set it to *attempt*, if the attempt may write."""
        with self._named(self.backend._label):
            self.begun = self.backend._begun(connection, attempt, self.writes)

    @property
    def only_sends(self) -> bool:
        """Whether nothing has to be read to write the rows."""
        new = self.begun.found is Standing.APPLY and not self.begun.tombstones
        return new and self.backend._dialect.only_sends(self.writes)

    def undos(self) -> list[StoredUndo]:
        """Return what takes back the statements of an earlier attempt.

        Raises:
            PromiseError: One of them has no undo.
        """
        found = undos_from_text(self.begun.back, self.backend._label)
        if (why := missing_undo(found)) is not None:
            raise PromiseError(
                f"{self.backend._label}: {why}; nothing was written; expected the batch to be "
                "repeated unchanged; start the program that executed the statements, until the "
                "txid is committed",
                store=self.backend._label,
            )
        return found

    def statements(self) -> Sequence[Statement]:
        """Return the statements that are executed now."""
        return () if self.begun.statements_stay else statements_of(self.writes)

    def write_rows(
        self, connection: sa.Connection, attempt: TransactionAttempt, label: str
    ) -> None:
        """Undo an earlier attempt, and write the rows; errors of the database name *label*."""
        self.backend.point("rows.before")
        with self._named(label):
            self.backend._write_rows(connection, attempt.txid, self.writes, self.begun)
        self.backend.point("rows.after")

    @contextmanager
    def _named(self, label: str) -> Iterator[None]:
        """Name *label* in errors of the database, and not the whole transaction."""
        try:
            yield
        except self.backend._failures as error:
            raise translated(error, label) from error


@dataclass(frozen=True, slots=True)
class _Begun:
    """A commit whose ledger is written.

    Attributes:
        found: What the attempt may do.
        held: The ledger before.
        ledger: The ledger now.
        undos: What takes back the statements of its txid.
        back: What takes back those of an earlier attempt, which is executed now; None for nothing.
        statements_stay: Whether the statements of an earlier attempt stay as they are.
        tombstones: Whether there may be tombstones of earlier txids.
    """

    found: Standing
    held: Ledger
    ledger: Ledger
    undos: str | None
    back: str | None = None
    _: KW_ONLY
    statements_stay: bool = False
    tombstones: bool


@dataclass(frozen=True, slots=True)
class _Left:
    """What the last commit of a backend has left.

    Attributes:
        ledger: The ledger.
        tombstones: Whether there are tombstones. If another backend has written since, the ledger
            differs.
    """

    ledger: Ledger
    tombstones: bool

    def is_before(self, attempt: TransactionAttempt) -> bool:
        """Return whether *attempt* is of the same epoch, and follows."""
        held = self.ledger
        follows = (held.epoch, held.txid + 1) == (attempt.epoch, attempt.first_txid)
        return follows and held.term == attempt.term


_ROWS_AT_A_TIME = 10_000


class SqlSnapshot(Snapshot):
    """Rows and ledger of the same moment, as long as its transaction is open."""

    def __init__(self, connection: sa.Connection, dialect: SqlDialect, label: str) -> None:
        self._connection = connection
        self._dialect = dialect
        self._label = label
        fields = (dialect.state.key, dialect.state.value)
        self._types = tuple([field.type for field in part] for part in fields)
        row = self._run(ledger_row(dialect.ledger, dialect.state.name)).first()
        self._ledger = ledger_of(row)
        self._undos: str | None = None if row is None else row._mapping["undos"]

    @property
    def ledger(self) -> Ledger | None:
        """The ledger, or None for a state that nobody has claimed."""
        return self._ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those *keys* that exist, including tombstones."""
        return dict(self.starting(keys))

    def missing_undo(self) -> str | None:
        """Return why the last txid cannot be taken back: statements without an undo, or None."""
        return missing_undo(undos_from_text(self._undos, self._label))

    def last_txid(self) -> int:
        """Return the largest txid of a row, from the index of txids if there is one."""
        newest = sa.select(sa.func.max(self._dialect.columns.txid))
        return self._run(newest).scalar() or 0

    def between(
        self, table: StateTable, above: Any, up_to: Any, txid: int
    ) -> Iterator[tuple[Key, Row]]:
        """Yield the rows in a range, and what *txid* wrote, as ``Snapshot.between`` says."""
        wanted = self._dialect.in_range(above, up_to)
        columns = self._dialect.columns
        if columns.opaque and self._ledger is not None and self._ledger.txid >= txid:
            # Only in a redo, so reading every row is good enough.
            wanted = sa.or_(wanted, columns.txid == txid)
        return self._rows(self._fetched(self._run(self._dialect.selected().where(wanted))))

    def columns(self, table: StateTable, keys: pa.Table) -> pa.Table:
        """Return the rows with some keys as columns, as ``Snapshot.columns`` says."""
        found = self._columns(keys)
        return super().columns(table, keys) if found is None else found

    def columns_between(self, table: StateTable, above: Any, up_to: Any, txid: int) -> pa.Table:
        """Return the rows in a range as columns, as ``Snapshot.columns_between`` says."""
        found = self._columns(self._dialect.in_range(above, up_to))
        return super().columns_between(table, above, up_to, txid) if found is None else found

    def columns_starting(self, table: StateTable, prefixes: pa.Table) -> pa.Table:
        """Return the rows whose key begins with a prefix, as ``Snapshot.columns_starting`` says."""
        found = self._columns(prefixes)
        return super().columns_starting(table, prefixes) if found is None else found

    def _columns(self, wanted: sa.ColumnElement[bool] | pa.Table) -> pa.Table | None:
        failures: tuple[type[Exception], ...] = self._dialect.driver_errors
        try:
            return self._dialect.read_columns(self._connection, wanted)
        except failures as error:
            raise translated(error, self._label) from error
        except pa.ArrowInvalid:
            return None  # read by rows, it is told which value nobody can read

    def starting(self, prefixes: Sequence[Key]) -> Iterator[tuple[Key, Row]]:
        """Yield the rows whose key begins with a prefix, as ``Snapshot.starting`` says."""
        left = iter(prefixes)
        while given := list(islice(left, self._dialect.keys_at_once)):
            fields = list(self._dialect.state.key)[: len(given[0])]
            encoded = self._dialect.encoded(fields, given)
            yield from self._rows(self._fetched(self._run(self._dialect.starting(encoded))))

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, including tombstones."""
        if self._dialect.pages:
            yield from self._pages()
            return
        options = {"yield_per": _ROWS_AT_A_TIME}
        rows = self._fetched(self._run(self._dialect.selected(), options))
        at_once = None if self._dialect.fetches else _ROWS_AT_A_TIME
        while page := list(islice(rows, at_once)):
            yield from self._rows(page)

    def _pages(self) -> Iterator[tuple[Key, Row]]:
        keys = self._dialect.columns.keys
        pages = self._dialect.selected().order_by(*keys).limit(_ROWS_AT_A_TIME)
        found = list(self._fetched(self._run(pages)))
        while found:
            yield from self._rows(found)
            last = tuple(found[-1])[: len(keys)]
            found = list(self._fetched(self._run(pages.where(_after(keys, last)))))

    def _rows(self, rows: Iterable[sa.Row[Any]]) -> Iterator[tuple[Key, Row]]:
        """Return keys and rows, converted column by column."""
        found = [tuple(row) for row in rows]
        if not found:
            return iter(())
        columns: list[Sequence[Any]] = list(zip(*found, strict=True))
        key_types, value_types = self._types
        width, values = len(key_types), len(value_types)
        keys = self._records(key_types, columns[:width], len(found))
        current = self._records(value_types, columns[width : width + values], len(found))
        # A row of a user's own table has no txid if it is from before the first one.
        txids = [txid or 0 for txid in columns[width + values]]
        if not self._dialect.columns.opaque:
            return zip(keys, map(Row, txids, current), strict=True)
        prev_txids, deleted = columns[-2], map(bool, columns[-1])
        previous = [
            None if prev_txid is None else record
            for prev_txid, record in zip(
                prev_txids,
                self._records(value_types, columns[width + values + 1 : -2], len(found)),
                strict=True,
            )
        ]
        return zip(keys, map(Row, txids, current, previous, prev_txids, deleted), strict=True)

    def _records(
        self, types: Sequence[str], columns: Sequence[Sequence[Any]], count: int
    ) -> Iterable[Any]:
        if not types:  # a state that keeps keys alone
            return repeat((), count)
        return zip(*map(self._dialect.decoded, types, columns), strict=True)

    def _fetched(self, rows: sa.CursorResult[Any]) -> Iterator[sa.Row[Any]]:
        """Yield rows; errors may occur while they are read."""
        try:
            yield from rows
        except sa.exc.SQLAlchemyError as error:
            raise translated(error, self._label) from error

    def _run(
        self, statement: sa.Executable, options: dict[str, Any] | None = None
    ) -> sa.CursorResult[Any]:
        try:
            return self._connection.execute(statement, execution_options=options or {})
        except sa.exc.SQLAlchemyError as error:
            raise translated(error, self._label) from error


def _after(keys: Sequence[sa.Column[Any]], last: tuple[Any, ...]) -> sa.ColumnElement[bool]:
    """Return the condition that a key comes after *last*, in a form that uses the index."""
    found: list[sa.ColumnElement[bool]] = []
    for at, key in enumerate(keys):
        equal = [one == value for one, value in zip(keys[:at], last[:at], strict=True)]
        found.append(sa.and_(*equal, key > last[at]))
    return sa.or_(*found)
