"""RedisBackend: the protocol of a state, in one transaction of Redis.

Rules
-----
1. A writer watches the head, reads what it needs, computes in Python, and sends one ``MULTI``. All
   writers write the head, so ``EXEC`` is refused if another writer came in between, and the writer
   starts again. A writer of several states watches the heads of all.
2. If a command fails inside ``EXEC``, Redis does not undo the commands before it. Our commands fail
   there only for a key of another type, so every key that is written is read first.
3. If the connection is lost at ``EXEC``, the outcome is unknown: the backend raises
   ``UnknownOutcomeError``, and its caller reads the ledger. A late ``EXEC`` does nothing, since the
   next write has ended its watch.
4. A commit reads the rows that it writes, in a redo also the rows of the last attempt, and the
   tombstones of the last txid. It never reads the whole hash.
5. Redis has no index on a column. A range, a prefix, and a search for expired rows read the whole
   hash. The search is rare, and the head is not watched meanwhile. The rows that it finds are read
   again and deleted in the same way as a commit writes: together with the head, so that one of two
   writers starts again.
6. A claim that adds columns reads all rows and writes them again, in the ``MULTI`` that writes the
   head with ledger and columns. Redis serves no other client while it executes that.

Keys
----
* ``txtopo:{counts}:rows``: a hash, texts of rows by texts of keys.
* ``txtopo:{counts}:head``: a string, the ledger and the columns. Writers watch it.
* ``txtopo:{counts}:touched``: a list, the keys that the last txid wrote, for its undo.
* ``txtopo:{counts}:deleted``: a set, the keys of the tombstones of the last txid.
* ``txtopo:states``: a set, the names of all states.

These names are reserved. If a key has another type, or exists before the head, somebody else
created it, and creating the state is refused: otherwise a commit would use the key as its own.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from redis.exceptions import RedisError, WatchError

from state_backends.redis.client import check_lengths, check_promises, client_of
from state_backends.redis.failures import FAILURES, lost_while_watching, translated
from txtopo.errors import SchemaDrift, SchemaVersionError, StoreUnavailable
from txtopo.plugins.stores import (
    Claim,
    Database,
    Key,
    Ledger,
    Merges,
    Puts,
    Row,
    RowText,
    Snapshot,
    Standing,
    StateBackend,
    StateSize,
    StateTable,
    TableChange,
    TransactionAttempt,
    Writes,
    changed_rows,
    check_none_taken,
    checked_partials,
    claimed,
    declaration,
    expired_keys,
    expiring,
    listed_states,
    not_allowed,
    parsed_declaration,
    redacted_url,
    standing,
    table_change,
    witness_of,
    written_keys,
)

if TYPE_CHECKING:
    from redis import Redis
    from redis.client import Pipeline

Result = TypeVar("Result")

# Only one coordinator writes, so another writer in between is rare. The runtime tries again too.
_TRIES_MAX = 5

# Redis accepts a million words in a command; this many make a request of several hundred kB.
_KEYS_PER_COMMAND = 5_000

EXPIRY_TXIDS = 100
"""The number of txids between two searches for expired rows."""


class RedisBackend(StateBackend):
    """One state in Redis; see :mod:`state_backends.redis`."""

    evolves = True
    groups = True

    def __init__(self, url: str, table: StateTable) -> None:
        self.table = table
        self._client = client_of(url)
        self._label = f"state {table.name!r} in {redacted_url(url)}"
        self._names = names_of(table.name)
        self._text = RowText(table)
        self._columns = declaration(table)
        self._expires_next = 0

    def create(self) -> None:
        """Check the server, the keys and the columns. The first claim creates the keys."""
        with self._translating():
            check_promises(self._client, self._label)
            self._check_keys()
            self._table_change(self._head(self._client))

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says."""
        self.claimant = claim

        def body(pipe: Pipeline, heads: Sequence[RedisHead | None]) -> Ledger:
            (head,) = heads
            held = None if head is None else head.ledger
            ledger, change = claimed(held, claim), self._table_change(head)
            if change is not None and not claim.changes_table:
                raise not_allowed(change, self._label)
            rows = {} if change is None else self._rows_changed(pipe, change)
            pipe.multi()
            for part_names in _parts(list(rows)):
                pipe.hset(self._names.rows, mapping={name: rows[name] for name in part_names})
            if ledger != held or change is not None:
                filled = head is not None and head.filled
                pipe.set(self._names.head, RedisHead(self._columns, ledger, filled).text())
            return ledger

        with self._translating():
            self._client.sadd(STATES, json.dumps(self.table.name))
        return self._write(body)

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        return self.commit_together(attempt, [(self, writes)])[0]

    def commit_together(
        self, attempt: TransactionAttempt, writes: Sequence[tuple[StateBackend, Writes]]
    ) -> list[Ledger]:
        """Apply the writes to several states of this server, in one transaction."""
        members = [(_own(backend), each) for backend, each in writes]

        def body(pipe: Pipeline, heads: Sequence[RedisHead | None]) -> list[Ledger]:
            planned = [
                backend._planned(pipe, attempt, each, head)
                for (backend, each), head in zip(members, heads, strict=True)
            ]
            pipe.multi()
            new = [each for each in planned if each.changes is not None]
            for each in new:
                each.backend._queue(pipe, each)
            for each in new:
                each.backend.point("write.before")
            return [each.ledger for each in planned]

        return self._write(body, [backend for backend, _ in members])

    def database(self) -> Database | None:
        """Return the run of the server, the number of the database, and the user.

        None on a cluster, where states have slots of their own.
        """
        with self._translating():
            server: Any = self._client.info("server")
        options = self._client.connection_pool.connection_kwargs
        if server.get("redis_mode") == "cluster":
            return None
        identity = ("redis", str(server["run_id"]), str(options.get("db") or 0))
        return Database(identity, (str(options.get("username")),))

    @contextmanager
    def snapshots(self, backends: Sequence[StateBackend]) -> Iterator[Sequence[Snapshot]]:
        """Open snapshots of several states of this server, of the same instant."""
        members = [_own(backend) for backend in backends]
        with self._translating():
            found = self._snapshots(members)
        yield found

    def _snapshots(self, members: Sequence[RedisBackend]) -> list[RedisSnapshot]:
        """Read all heads, and small states whole, in one transaction."""
        with self._client.pipeline(transaction=False) as pipe:
            for each in members:
                pipe.hlen(each._names.rows)
            counts: list[int] = pipe.execute()
        with self._client.pipeline(transaction=True) as pipe:
            for each, count in zip(members, counts, strict=True):
                pipe.get(each._names.head)
                ask = pipe.hgetall if count <= ROWS_AT_ONCE else pipe.hlen
                ask(each._names.rows)
            answers: list[Any] = pipe.execute()
        return [
            RedisSnapshot(self._client, each._names, each._text, each._label, head, rows)
            for each, head, rows in zip(members, answers[::2], answers[1::2], strict=True)
        ]

    def expire(self, up_to: Any, before_txid: int) -> int:
        """Delete all rows that one search finds and that no later txid needs. Searches are rare."""
        if before_txid < self._expires_next:
            return 0
        with self._translating():
            head = self._head(self._client)
            txid = expiring(None if head is None else head.ledger, self.claimant, before_txid)
            found = list(self._expired(up_to, txid))
        count = sum(self._delete(names, up_to, txid) for names in _parts(found))
        self._expires_next = before_txid + EXPIRY_TXIDS
        return count

    @contextmanager
    def snapshot(self) -> Iterator[Snapshot]:
        """Open a consistent snapshot of the state."""
        with self._translating():
            (found,) = self._snapshots([self])
        yield found

    def stored(self) -> tuple[StateTable, ...]:
        """Return the states that the server holds."""
        with self._translating():
            found: Any = self._client.smembers(STATES)
            try:
                names = sorted(str(json.loads(name)) for name in found)
            except ValueError as error:
                raise SchemaDrift(
                    f"the names of the states in {STATES!r} cannot be read; got {found!r:.200}; "
                    "was it changed by hand, or by another program?",
                    key=STATES,
                    got=f"{found!r:.200}",
                ) from error
        return listed_states(
            self.table.name, {name: partial(self._described, name) for name in names}
        )

    def size(self) -> StateSize:
        """Return the number of rows, and roughly how much memory their hash takes."""
        with self._translating():
            rows: Any = self._client.hlen(self._names.rows)
            memory: Any = self._client.memory_usage(self._names.rows)
        return StateSize(rows, memory or 0)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _described(self, name: str) -> StateTable | None:
        label = self._label if name == self.table.name else f"state {name!r} beside {self._label}"
        try:
            head = head_of(self._client.get(names_of(name).head), label)  # type: ignore[arg-type]
        except FAILURES as error:
            raise translated(error, label) from error
        return None if head is None else parsed_declaration(name, head.columns)

    def _write(
        self,
        body: Callable[[Pipeline, Sequence[RedisHead | None]], Result],
        backends: Sequence[RedisBackend] = (),
    ) -> Result:
        """Watch the heads and execute what *body* queues; try again if another writer came first.

        Args:
            body: Reads, begins the transaction and queues; it gets the head of each state.
            backends: The states, if there are several.
        """
        members = backends or [self]
        label = _label_of(members)
        for _ in range(_TRIES_MAX):
            sent = False
            try:
                with self._client.pipeline() as pipe:
                    pipe.watch(*[each._names.head for each in members])  # type: ignore[no-untyped-call]
                    result = body(pipe, [each._head(pipe) for each in members])
                    sent = True
                    pipe.execute()
                return result
            except WatchError as error:
                if lost_while_watching(error):
                    lost = error.__context__
                    assert isinstance(lost, RedisError)
                    raise translated(lost, label, during_write=sent) from error
            except FAILURES as error:
                raise translated(error, label, during_write=sent) from error
        raise StoreUnavailable(
            f"{label} was changed by other writers {_TRIES_MAX} times in a row; nothing was "
            "written; try again",
            state=self.table.name,
            tries=_TRIES_MAX,
        )

    def _planned(
        self, pipe: Pipeline, attempt: TransactionAttempt, writes: Writes, head: RedisHead | None
    ) -> _Planned:
        """Ask the ledger, and read what the commit needs; nothing is queued yet."""
        self._checked(head)
        found = standing(None if head is None else head.ledger, attempt, self.claimant)
        assert head is not None
        if found is Standing.HELD:
            return _Planned(self, head.ledger)
        self.point("begin.after")
        self.point("rows.before")
        witness = witness_of(self.table, head.ledger, attempt, writes, found)
        ledger = head.ledger.written_by(attempt, witness)
        changes, count = self._read(pipe, attempt.txid, writes, found, head)
        if self.table.kind == "transactional" and found is Standing.REDO:
            return _Planned(self, ledger, _Changes(), filled=count > 0)
        filled = count > changes.gone or bool(changes.kept)
        return _Planned(self, ledger, changes, filled=filled)

    def _read(
        self, pipe: Pipeline, txid: int, writes: Writes, found: Standing, head: RedisHead
    ) -> tuple[_Changes, int]:
        """Read the rows that the commit needs.

        Returns:
            What becomes of them, and how many rows the state has.
        """
        names = self._names
        redone = found is Standing.REDO
        touched: Any = pipe.lrange(names.touched, 0, -1) if redone else ()
        deleted: Any = pipe.smembers(names.deleted)
        changes = _Changes()
        with _collector_paused():
            for part in _parts_of(self.table, writes):
                keys = written_keys(self.table, part)
                self._change(pipe, changes, self._text.keys(keys), keys, txid, part, found)
            left = dict.fromkeys(name for name in (*touched, *deleted) if name not in changes.seen)
            for undone in _parts(list(left)):
                keys = [self._text.key_of(name) for name in undone]
                self._change(pipe, changes, undone, keys, txid, Puts({}), found)
        # A key of another type is found here, before anything is written.
        found_count: Any = pipe.hlen(names.rows)
        count = int(found_count)
        head.check_rows(count, self._label)
        pipe.llen(names.touched)
        check_lengths(self._client, [*changes.kept, *changes.kept.values()], self._label)
        return changes, count

    def _queue(self, pipe: Pipeline, planned: _Planned) -> None:
        """Queue the changes and the head; the transaction has begun."""
        names, changes = self._names, planned.changes
        assert changes is not None
        for part_names in _parts(list(changes.kept)):
            pipe.hset(names.rows, mapping={name: changes.kept[name] for name in part_names})
        for part_names in _parts(changes.removed):
            pipe.hdel(names.rows, *part_names)
        if self.table.kind == "opaque":
            pipe.delete(names.touched, names.deleted)
            for part_names in _parts(list(changes.kept)):
                pipe.rpush(names.touched, *part_names)
            for part_names in _parts(changes.tombstones):
                pipe.sadd(names.deleted, *part_names)
        pipe.set(names.head, RedisHead(self._columns, planned.ledger, planned.filled).text())
        self.point("rows.after")

    def _change(
        self,
        pipe: Pipeline,
        changes: _Changes,
        names: Sequence[str],
        keys: Sequence[Key],
        txid: int,
        writes: Writes,
        found: Standing,
    ) -> None:
        """Read the rows of some keys, and add what the commit turns them into, as texts."""
        texts: Any = pipe.hmget(self._names.rows, list(names)) if names else []
        stored = {key: row for key, row in zip(keys, texts, strict=True) if row is not None}
        rows = self._text.rows_of(list(stored.values()))
        before = dict(zip(stored, rows, strict=True))
        named = dict(zip(keys, names, strict=True))
        changed = changed_rows(self.table, before, txid, writes, found)
        left = {named[key]: row for key, row in changed.items() if row is not None}
        gone = [key for key, row in changed.items() if row is None]
        changes.seen.update(names)
        changes.kept.update(zip(left, self._text.rows(list(left.values())), strict=True))
        changes.tombstones += [name for name, row in left.items() if row.deleted]
        changes.removed += [named[key] for key in gone]
        changes.gone += sum(key in before for key in gone)

    def _expired(self, up_to: Any, txid: int) -> Iterator[str]:
        """Yield the keys of rows that may have expired, after looking at every row."""
        rows: Any = self._client.hscan_iter(self._names.rows, count=_KEYS_PER_COMMAND)
        for name, text in rows:
            key, row = self._text.key_of(name), self._text.row_of(text)
            if expired_keys(self.table, {key: row}, up_to, txid):
                yield name

    def _delete(self, names: Sequence[str], up_to: Any, before_txid: int) -> int:
        """Delete those of some rows that have expired, in one transaction."""
        count = 0

        def body(pipe: Pipeline, heads: Sequence[RedisHead | None]) -> Ledger:
            nonlocal count
            (head,) = heads
            self._checked(head)
            txid = expiring(None if head is None else head.ledger, self.claimant, before_txid)
            assert head is not None
            texts: Any = pipe.hmget(self._names.rows, list(names))
            found = zip(names, texts, strict=True)
            rows = {
                self._text.key_of(name): self._text.row_of(text)
                for name, text in found
                if text is not None
            }
            gone = self._text.keys(expired_keys(self.table, rows, up_to, txid))
            left: Any = pipe.hlen(self._names.rows)
            count = len(gone)
            pipe.multi()
            if gone:
                pipe.hdel(self._names.rows, *gone)
            kept = RedisHead(head.columns, head.ledger, filled=left > count)
            pipe.set(self._names.head, kept.text())
            return head.ledger

        self._write(body)
        return count

    def _check_keys(self) -> None:
        """Raise ``SchemaDrift`` if a foreign key has a name that this state uses."""
        wanted = self._names.types()
        with self._client.pipeline(transaction=True) as pipe:
            for name in wanted:
                pipe.type(name)
            found = dict(zip(wanted, pipe.execute(), strict=True))
        for name, kind in wanted.items():
            theirs = found[name] not in (kind, "none")
            # The head comes first, and is never deleted.
            alone = found[self._names.head] == "none" and name != STATES and found[name] != "none"
            if theirs or alone:
                raise SchemaDrift(
                    f"{self._label} cannot be created: the key {name!r} already exists, a "
                    f"{found[name]}{' without a ledger' if alone and not theirs else ''}; expected "
                    f"a {kind} of the state, or nothing; nothing was written; rename that key, or "
                    "give the state another table",
                    taken=name,
                )

    def _head(self, client: Redis) -> RedisHead | None:
        text: Any = client.get(self._names.head)
        return head_of(text, self._label)

    def _checked(self, head: RedisHead | None) -> None:
        if (change := self._table_change(head)) is not None:
            raise not_allowed(change, self._label)

    def _table_change(self, head: RedisHead | None) -> TableChange | None:
        if head is None or head.columns == self._columns:
            return None
        change = table_change(head.columns, self.table, self._label)
        if change is not None:
            check_none_taken(change, self._label)
        return change

    def _rows_changed(self, pipe: Pipeline, change: TableChange) -> dict[str, str]:
        """Return every row with the new columns; the head is watched."""
        stored: Any = pipe.hgetall(self._names.rows)
        rows = RowText(change.stored).rows_of(list(stored.values()))
        texts = self._text.rows([change.row(row) for row in rows])
        check_lengths(self._client, texts, self._label)
        return dict(zip(stored, texts, strict=True))

    @contextmanager
    def _translating(self) -> Iterator[None]:
        try:
            yield
        except FAILURES as error:
            raise translated(error, self._label) from error


@dataclass(slots=True)
class _Changes:
    """What a commit changes, as texts of keys and rows.

    Attributes:
        seen: The keys whose rows were read.
        kept: The rows to set, by key.
        removed: The keys to remove.
        tombstones: The keys of those rows that are tombstones.
        gone: How many of the removed keys have a row.
    """

    seen: set[str] = field(default_factory=set)
    kept: dict[str, str] = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)
    tombstones: list[str] = field(default_factory=list)
    gone: int = 0


@dataclass(frozen=True, slots=True)
class _Planned:
    """What a commit will do to a state.

    Attributes:
        backend: The state.
        ledger: Its ledger afterwards.
        changes: Its rows that change; none if a transactional state keeps them. None if it holds
            the attempt already.
        filled: Whether it will have rows.
    """

    backend: RedisBackend
    ledger: Ledger
    changes: _Changes | None = None
    filled: bool = False


def _own(backend: StateBackend) -> RedisBackend:
    assert isinstance(backend, RedisBackend), "another kind of store is another database"
    return backend


def _label_of(backends: Sequence[RedisBackend]) -> str:
    if len(backends) == 1:
        return backends[0]._label
    names = ", ".join(repr(each.table.name) for each in backends)
    return f"the transaction of states {names}, with {backends[0]._label}"


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the cyclic garbage collector, since rows form no cycles.

    New objects make it examine all others of the process again and again: it took 1.2 of the 1.8 s
    of processor time for 100,000 keys.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _parts_of(table: StateTable, writes: Writes) -> Iterator[Writes]:
    """Split writes, so that only a few rows at a time are objects; the others are texts."""
    if isinstance(writes, Puts):
        for keys in _parts(list(writes.rows)):
            yield Puts({key: writes.rows[key] for key in keys})
        return
    partials = checked_partials(table, writes.partials)
    for start in range(0, partials.num_rows, _KEYS_PER_COMMAND):
        yield Merges(partials.slice(start, _KEYS_PER_COMMAND))


def _parts(names: Sequence[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(names), _KEYS_PER_COMMAND):
        yield list(names[start : start + _KEYS_PER_COMMAND])


# Up to this many rows are fetched at once when a snapshot is opened (about 20 ms), so that it stays
# consistent. From a larger state only the requested rows are fetched, as long as nobody writes:
# committers read few keys of many.
ROWS_AT_ONCE = 10_000


class RedisSnapshot(Snapshot):
    """A snapshot of a state in Redis, which keeps no old versions.

    A small state is fetched whole with one ``HGETALL``. From a large state only the requested keys
    are fetched; if it is written meanwhile, the next call raises, and a new snapshot is needed. A
    call of ``items()`` at the beginning fetches everything at once.

    Args:
        client: The client.
        names: The keys of the state.
        text: Reads its rows.
        label: The state and its store, for messages.
        head: The text of its head.
        rows: All rows, of the same instant as the head; or, of a large state, their number.
    """

    def __init__(
        self,
        client: Redis,
        names: RedisNames,
        text: RowText,
        label: str,
        head: str | None,
        rows: dict[str, str] | int,
    ) -> None:
        self._client = client
        self._names = names
        self._text = text
        self._label = label
        self._whole = rows if isinstance(rows, dict) else None
        self._head = head_of(head, label)
        if self._head is not None:
            self._head.check_rows(rows if isinstance(rows, int) else len(rows), label)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of the snapshot."""
        return None if self._head is None else self._head.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those *keys* that exist, including tombstones."""
        names = {self._text.key(key): key for key in keys}
        if self._whole is not None:
            texts = [self._whole.get(name) for name in names]
        else:
            wanted = list(names)
            texts = (
                self._fetched(lambda pipe: pipe.hmget(self._names.rows, wanted)) if wanted else []
            )
        found = zip(names.values(), texts, strict=True)
        return {key: self._text.row_of(text) for key, text in found if text is not None}

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, including tombstones."""
        if self._whole is None:
            self._whole = self._fetched(lambda pipe: pipe.hgetall(self._names.rows))
        for name, text in self._whole.items():
            yield self._text.key_of(name), self._text.row_of(text)

    def _fetched(self, ask: Callable[[Pipeline], object]) -> Any:
        try:
            head, answer = self._asked(ask)
        except FAILURES as error:
            raise translated(error, self._label) from error
        if head_of(head, self._label) != self._head:
            raise StoreUnavailable(
                f"{self._label} was written while it was being read; the ledger has changed since "
                "the reader was opened; open a new reader, and call items() first to read all "
                "rows",
                store=self._label,
            )
        return answer

    def _asked(self, ask: Callable[[Pipeline], object]) -> tuple[str | None, Any]:
        """Read the head and the answer to *ask* at one moment."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.get(self._names.head)
            ask(pipe)
            head, answer = pipe.execute()
        return head, answer


VERSION = 1
"""The version of the stored form of a state: its head, its rows and its lists of keys."""

STATES = "txtopo:states"


@dataclass(frozen=True, slots=True)
class RedisNames:
    """The keys of one state."""

    rows: str
    head: str
    touched: str
    deleted: str

    def types(self) -> dict[str, str]:
        """Return the type of each key, also of the key that all states share."""
        types = {self.rows: "hash", self.head: "string", self.touched: "list", self.deleted: "set"}
        return {**types, STATES: "set"}


def names_of(state: str) -> RedisNames:
    """Return the keys of a state."""
    tag = quote(state.encode("utf-8", "surrogatepass"), safe="")
    return RedisNames(
        *(f"txtopo:{{{tag}}}:{part}" for part in ("rows", "head", "touched", "deleted"))
    )


@dataclass(frozen=True, slots=True)
class RedisHead:
    """The head of a state, which every write changes.

    Attributes:
        columns: The declaration of its columns.
        ledger: Its ledger.
        filled: Whether the state had rows. Redis has no empty hashes, so a removed hash looks like
            one without rows.
    """

    columns: str
    ledger: Ledger
    filled: bool = False

    def text(self) -> str:
        """Return the head as JSON."""
        return json.dumps(
            {
                "version": VERSION,
                "columns": self.columns,
                "ledger": asdict(self.ledger),
                "filled": self.filled,
            }
        )

    def check_rows(self, count: int, label: str) -> None:
        """Check that the hash exists, if according to the head it should.

        Raises:
            SchemaDrift: The hash is gone.
        """
        if self.filled and not count:
            raise SchemaDrift(
                f"{label}: its rows are missing, but its ledger holds txid {self.ledger.txid}; "
                "expected both or none; nothing was written; was the key removed by hand? "
                "restore it, or remove the keys of the state and start again",
                store=label,
                ledger_txid=self.ledger.txid,
            )


def head_of(text: str | None, label: str) -> RedisHead | None:
    """Return the head from its text; None for a state that nobody has claimed."""
    if text is None:
        return None
    try:
        found = json.loads(text)
        version = found["version"]
        head = None
        if version <= VERSION:
            head = RedisHead(found["columns"], Ledger.of(found["ledger"]), found["filled"])
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaDrift(
            f"{label} has a ledger that cannot be read; got {text!r:.200}; was it changed by hand?",
            store=label,
            got=text[:200],
        ) from error
    if head is None:
        raise SchemaVersionError(
            f"{label} was written by a newer txtopo; got version {version}; expected at most "
            f"{VERSION}; upgrade txtopo",
            store=label,
            schema=version,
        )
    return head
