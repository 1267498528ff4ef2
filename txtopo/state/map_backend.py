"""OpaqueMap and TransactionalMap: the protocol of a state over a backing map.

:func:`backing_map_factory` makes a state backend of a plug-in that opens a backing map.

Rules
-----
1. A commit writes in this order: the lists of keys, the head that names the new attempt, the rows,
   the head with the new ledger. Each is durable before the next.
2. A commit lists every key before it writes its row, so the next attempt of the txid can undo the
   write, wherever this one died. Each attempt of a txid extends the list and does not rewrite it,
   since rows of the first attempt may still exist when the third begins. The next txid overwrites
   the list. It begins only when no coordinator will redo this one.
3. A replay writes every key of the list, including keys that it only undoes.
4. If a committed txid is undone and redone, its writer is first removed from the ledger: a
   coordinator that finds half of it must not adopt it.
5. Commits through one object run one after the other, since an abandoned one may still be running.

The text of a row names the attempt that wrote it, and so does the head. With ``compare_and_put``
each write compares with the text that was read. So a deposed coordinator, which read before the
claim, can only write rows whose keys its successor finds in the lists: the keys are listed before
the head is written, and the head is written before the rows.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    FencedError,
    StaleBatchError,
    StoreContended,
    StoreUnavailable,
    TopologyError,
    UnknownOutcomeError,
)
from txtopo.servers import ConnectingFactory, Server
from txtopo.state.backend import Key, Snapshot, StateBackend, StateTable, Writes
from txtopo.state.backing_map import BackingMap, MapDocuments, MapHead
from txtopo.state.declaration import declaration, listed_states, parsed_declaration
from txtopo.state.evolution import refused_change
from txtopo.state.ledger import Claim, Ledger, Standing, claimed, standing
from txtopo.state.registry import ClientFactory
from txtopo.state.row_backend import changed_rows, written_keys
from txtopo.state.row_text import PAIR, RowText
from txtopo.state.values import Row
from txtopo.state.witness import witness_of

# Longer than a store needs for a batch. The runtime tries again, and has its own limits.
_WAIT_S = 60.0

_TRIES_MAX = 3


class MapBackend(StateBackend):
    """The protocol that :class:`OpaqueMap` and :class:`TransactionalMap` share.

    Args:
        backing_map: The store; it is closed with this object.
        table: The schema of the state.
    """

    def __init__(self, backing_map: BackingMap, table: StateTable) -> None:
        self.table = table
        self._map = backing_map
        self._text = RowText(table)
        self._writing = threading.Lock()

    @abstractmethod
    def noted(self, row: Row | None) -> Any:
        """Return the note that undoes a write, given the row from before the txid."""

    @abstractmethod
    def before(self, row: Row | None, note: Any) -> Row | None:
        """Return a row as it was before the txid that wrote it, from the row and its note."""

    def create(self) -> None:
        """Check the columns. The first claim writes them, so nothing has to be created."""
        self._checked(self._documents().head())

    def claim(self, claim: Claim) -> Ledger:
        """Write a claim into the ledger, as ``StateBackend.claim`` says.

        Without ``compare_and_put`` reading and writing are two steps. If two owners, or two
        ensembles, claim at the same instant, both may be admitted.
        """
        self.claimant = claim
        with self._alone():
            for _ in range(_TRIES_MAX):
                try:
                    return self._claimed(self._documents(), claim)
                except StoreContended as error:
                    last = error
        raise last

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        """Apply the writes of an attempt, as ``StateBackend.commit`` says."""
        with self._alone():
            try:
                return self._committed(self._documents(), attempt, writes)
            except StoreContended:
                self._standing(self._documents().head(), attempt)
                raise

    def snapshot(self) -> AbstractContextManager[Snapshot]:
        """Open a snapshot of the state, as of the ledger that is read first."""
        return nullcontext(_MapSnapshot(self, self._documents()))

    def stored(self) -> tuple[StateTable, ...]:
        """Return the states that the map holds."""

        def described(name: str) -> StateTable | None:
            head = self._documents(name).head()
            return None if head is None else parsed_declaration(name, head.columns)

        names = self._documents().states()
        return listed_states(self.table.name, {name: partial(described, name) for name in names})

    def close(self) -> None:
        """Close the map."""
        self._map.close()

    def rows_as_of(
        self, txid: int, found: Mapping[str, Any], touched: Mapping[str, Any]
    ) -> dict[Key, Row]:
        """Return those rows of *found* that existed after *txid*, as they were then."""
        rows: dict[Key, Row] = {}
        for key, plain in found.items():
            row = None if plain is None else self._text.row_from(plain)
            if row is None or row.txid > txid:
                row = self.before(row, touched.get(key, plain))
            if row is not None:
                rows[self._text.key_of(key)] = row
        return rows

    def key_text(self, key: Key) -> str:
        """Return the text of a key."""
        return self._text.key(key)

    def _claimed(self, documents: MapDocuments, claim: Claim) -> Ledger:
        head = self._checked(documents.head()) or MapHead(declaration(self.table))
        ledger = claimed(head.ledger, claim)
        states = documents.states()
        if self.table.name not in states:
            documents.write_states([*states, self.table.name])
        if ledger != head.ledger:
            documents.write_head(replace(head, ledger=ledger, opened=_opened(head, ledger)))
        return ledger

    def _committed(
        self, documents: MapDocuments, attempt: TransactionAttempt, writes: Writes
    ) -> Ledger:
        head = documents.head()
        found = self._standing(head, attempt)
        assert head is not None
        assert head.ledger is not None
        if found is Standing.HELD:
            return head.ledger
        self.point("begin.after")
        self.point("rows.before")
        witness = witness_of(self.table, head.ledger, attempt, writes, found)
        ledger = head.ledger.written_by(attempt, witness)
        if found is Standing.APPLY or self.table.kind == "opaque":
            head = self._write_rows(documents, head, attempt, writes)
        self.point("rows.after")
        self.point("write.before")
        try:
            documents.write_head(replace(head, ledger=ledger))
        except StoreContended:
            raise
        except StoreUnavailable as error:
            raise UnknownOutcomeError(
                f"the answer to the last write of {attempt} was lost: {error}", attempt=attempt
            ) from error
        return ledger

    def _write_rows(
        self, documents: MapDocuments, head: MapHead, attempt: TransactionAttempt, writes: Writes
    ) -> MapHead:
        txid = attempt.txid
        again = head.opened is not None and head.opened.txid == txid
        touched = documents.touched(head) if again else {}
        texts = {key: self.key_text(key) for key in written_keys(self.table, writes)}
        texts |= {self._text.key_of(text): text for text in touched}
        found = documents.rows(list(texts.values()))
        self._check_order(attempt, found)
        before = self.rows_as_of(txid - 1, found, touched)
        changes = changed_rows(self.table, before, txid, writes, Standing.APPLY)
        final = {
            text: changes.get(key, before.get(key))
            for key, text in texts.items()
            if text in touched or key in changes
        }
        if not final:
            return head
        plain = {text: row and self._text.plain(row) for text, row in final.items()}
        notes = {
            text: self.noted(before.get(key))
            for key, text in texts.items()
            if text in final and text not in touched
        }
        new = [text for text in notes if text not in found]
        assert head.ledger is not None
        redone = replace(head.ledger, writer_epoch=0, writer_term="", attempt=0, witness="")
        head = replace(
            head, opened=attempt, ledger=redone if head.ledger.txid == txid else head.ledger
        )
        chunks = documents.write_lists(head, head.touched_chunks if again else 0, notes, new)
        head = replace(head, touched_chunks=chunks, keys=head.keys + len(new))
        documents.write_head(head)
        documents.write_rows(plain, attempt)
        return head

    def _standing(self, head: MapHead | None, attempt: TransactionAttempt) -> Standing:
        found = standing(head.ledger if head is not None else None, attempt, self.claimant)
        opened = head.opened if head is not None else None
        if opened is not None and opened.txid == attempt.txid and attempt < opened:
            raise FencedError(
                f"attempt {attempt} is older than {opened}, which has begun to write; "
                "it was abandoned and must not write",
                attempt=attempt,
                holder=opened,
            )
        return found

    def _check_order(self, attempt: TransactionAttempt, found: Mapping[str, Any]) -> None:
        for key, plain in found.items():
            if plain is not None and plain[0] > attempt.txid:
                raise StaleBatchError(
                    f"attempt {attempt} meets row {key} of txid {plain[0]} in state "
                    f"{self.table.name!r}; another program writes without a claim, or a deposed "
                    "coordinator still writes; find it, and give the map compare_and_put",
                    attempt=attempt,
                )

    def _checked(self, head: MapHead | None) -> MapHead | None:
        if head is not None and head.columns != declaration(self.table):
            why = "columns in a backing map do not change"
            raise refused_change(why, head.columns, self.table, f"state {self.table.name!r}")
        return head

    def _documents(self, state: str | None = None) -> MapDocuments:
        return MapDocuments(self._map, self.table.name if state is None else state)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        if not self._writing.acquire(timeout=_WAIT_S):
            raise StoreUnavailable(
                f"an earlier write to state {self.table.name!r} is still under way after "
                f"{_WAIT_S:.0f} s; nothing was written; try again",
                state=self.table.name,
            )
        try:
            yield
        finally:
            self._writing.release()


def _opened(head: MapHead, ledger: Ledger) -> TransactionAttempt | None:
    """Return the attempt that began to write last; after a change of ensemble it is the oldest."""
    before, opened = head.ledger, head.opened
    if opened is None or before is None or before.ensemble in ("", ledger.ensemble):
        return opened
    return TransactionAttempt(opened.txid, 0, 0)


class _MapSnapshot(Snapshot):
    is_snapshot: ClassVar[bool] = False

    def __init__(self, backend: MapBackend, documents: MapDocuments) -> None:
        self._backend = backend
        self._documents = documents
        self._head = documents.head()
        self._txid = self.ledger.txid if self.ledger is not None else 0
        opened = self._head.opened if self._head is not None else None
        unfinished = self._head is not None and opened is not None and opened.txid > self._txid
        self._touched = documents.touched(self._head) if self._head and unfinished else {}

    @property
    def ledger(self) -> Ledger | None:
        return None if self._head is None else self._head.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        return self._rows([self._backend.key_text(key) for key in keys])

    def items(self) -> Iterator[tuple[Key, Row]]:
        if self._head is not None:
            for keys in self._documents.keys(self._head):
                yield from self._rows(keys).items()

    def _rows(self, keys: Sequence[str]) -> dict[Key, Row]:
        found = self._backend.rows_as_of(self._txid, self._documents.rows(keys), self._touched)
        # A map cannot remove keys, so tombstones of earlier txids are skipped here.
        return {k: row for k, row in found.items() if not row.deleted or row.txid == self._txid}


class OpaqueMap(MapBackend):
    """An opaque state in a store that can only get and put.

    Each row keeps its value from before its txid. The keys of a txid are listed before its rows are
    written, so a replay undoes the writes of an earlier attempt, wherever it died.

    Delivery: exactly once under one live coordinator. Without ``compare_and_put`` a deposed
    coordinator that still writes would mix its rows with those of its successor; with it, such a
    write is refused. A reader sees the state as of the ledger, also after a crash in the middle of
    a commit. But a reader that reads *while* a batch is written, or redone, may see half of it.

    Cost: a commit reads each of its rows once and writes it once, and writes its key once more in a
    list. It also reads up to three documents and writes four. Keys are never removed from the map:
    a deleted key keeps a short text, and its entry in a list. ``items()`` reads that list and all
    its rows. With ``compare_and_put`` each key costs a call of its own.
    """

    def noted(self, row: Row | None) -> Any:
        """Return None: the row itself keeps its previous value."""
        return None

    def before(self, row: Row | None, note: Any) -> Row | None:
        """Return the row as it was before the txid that wrote it."""
        return None if row is None else row.undone(row.txid)


class TransactionalMap(MapBackend):
    """A transactional state in a store that can only get and put.

    A row keeps its value and its txid. The list of the keys of a txid also keeps the rows from
    before it, until the next txid. Storm skips a row that already has the txid, and needs no such
    list. But then an update that reads one key and writes another would start from values that a
    failed attempt left behind.

    Delivery and cost: as :class:`~txtopo.state.map_backend.OpaqueMap`, with one value less a row.
    """

    def noted(self, row: Row | None) -> Any:
        """Return the row."""
        return None if row is None else self._text.plain(row)

    def before(self, row: Row | None, note: Any) -> Row | None:
        """Return the row from the note."""
        return None if note is None else self._text.row_from(note)


@dataclass(frozen=True, slots=True)
class MapFactory:
    """Opens states over backing maps; :func:`backing_map_factory` makes it.

    Attributes:
        open_map: Opens the map that a URL names.
        shared_by_processes: Whether other processes that open the same URL see the same map.
    """

    open_map: Callable[[str], BackingMap]
    shared_by_processes: bool = True

    def __call__(self, url: str, table: StateTable) -> MapBackend:
        """Open a state: an :class:`OpaqueMap` or a :class:`TransactionalMap`.

        Raises:
            TopologyError: The plug-in did not return a backing map; repair it.
        """
        backing_map: object = self.open_map(url)
        if not isinstance(backing_map, BackingMap):
            raise TopologyError(
                f"the plug-in of state {table.name!r} opened no backing map; got "
                f"{type(backing_map).__name__}; expected an object derived from BackingMap, with "
                f"{', '.join(sorted(BackingMap.__abstractmethods__))}",
                state=table.name,
            )
        if PAIR.search(table.name):
            raise TopologyError(
                f"bad name of a state's table; got {table.name!r}; the keys of a backing map are "
                "JSON, where two surrogates in a row are one character; rename it",
                state=table.name,
            )
        kind = OpaqueMap if table.kind == "opaque" else TransactionalMap
        return kind(backing_map, table)

    def servers_of(self, url: str) -> Sequence[Server]:
        """Return the servers that *open_map* names, if it has the method."""
        opens: object = self.open_map
        return opens.servers_of(url) if isinstance(opens, ConnectingFactory) else ()

    def client_modules_of(self, url: str, table: StateTable) -> Sequence[str]:
        """Return the modules that *open_map* names, if it has the method."""
        opens: object = self.open_map
        return opens.client_modules_of(url, table) if isinstance(opens, ClientFactory) else ()


def backing_map_factory(
    open_map: Callable[[str], BackingMap], *, shared_by_processes: bool = True
) -> MapFactory:
    """Return a factory of state backends over the backing maps that *open_map* opens.

    Name the factory in an entry point of ``txtopo.state_backends``, or pass it to
    ``register_backend``. A map of two methods is exactly once under one live coordinator, but does
    not fence, and a reader may see half a batch; see :class:`OpaqueMap`.

    Args:
        open_map: URL -> map; often the class itself. It travels to Spark tasks with each state, so
            it is a class or function of a module, or one that cloudpickle can carry.
        shared_by_processes: Whether other processes that open the same URL see the same map.

    Raises:
        TopologyError: *open_map* cannot be called.

    Example:
        >>> class Notes(BackingMap):
        ...     def __init__(self, url: str) -> None:
        ...         self.texts: dict[str, str] = {}
        ...     def multi_get(self, keys):
        ...         return [self.texts.get(key) for key in keys]
        ...     def multi_put(self, keys, values):
        ...         self.texts.update(zip(keys, values))
        >>> register_backend("notes", backing_map_factory(Notes, shared_by_processes=False))
    """
    if not callable(open_map):
        raise TopologyError(
            f"backing_map_factory needs a function that opens a map; got {open_map!r:.100}; "
            "expected a class or function: (url) -> BackingMap",
            setting="open_map",
            got=f"{open_map!r:.100}",
        )
    return MapFactory(open_map, shared_by_processes)
