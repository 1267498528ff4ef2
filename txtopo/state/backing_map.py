"""BackingMap: a key-value store of two methods, and the documents that a state keeps in it.

A map does not provide exactly once itself. :class:`~txtopo.state.map_backend.OpaqueMap` and
:class:`~txtopo.state.map_backend.TransactionalMap` store the attempt that wrote a value with the
value, and derive from it what a replay has to undo.

A state keeps these documents in a map. Their names are JSON lists, so that no table name and no key
can be mistaken for another:

* ``["counts","head"]``: the ledger, the columns, and the last attempt that began to write.
* ``["counts","touched",0]`` …: the keys that its txid writes, with a note that undoes each write.
* ``["counts","keys",0]`` …: every key that was ever written, since a map cannot list its keys.
* ``["counts","row","[\"a\"]"]``: a row and the attempt that wrote it; null for a removed row.
* ``["states"]``: the names of the states that the map holds.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Protocol, TypeVar, runtime_checkable

from txtopo.attempt import TransactionAttempt
from txtopo.errors import (
    PlugInError,
    SchemaDrift,
    SchemaVersionError,
    StoreContended,
    StoreUnavailable,
    TxtopoError,
)
from txtopo.state.ledger import Ledger
from txtopo.state.row_text import dumped


class BackingMap(ABC):
    """A key-value table in an external store; keys and values are texts.

    Keys and values are JSON text in ASCII without control characters, so a plug-in stores strings
    and nothing else. Keys are case-sensitive and may be some thousand characters long.

    Delivery: exactly once under one live coordinator. A map of two methods does not fence off a
    deposed coordinator. If two owners of one table, or two ensembles, claim it at the same moment,
    both may be admitted; a later claim is refused. A map that can compare and write in one step may
    have a third method, see :class:`ComparesAndPuts`, and then fences.

    Who calls it, in which process: the driver. If committers run in Spark tasks, each task opens a
    map of its own and only reads.

    How often: a commit reads each of its keys once and writes it once; besides, it reads and writes
    a few documents of the state. Each call has at most 10,000 keys.

    In which thread: any. A commit makes its calls one after the other; other threads may read
    meanwhile.

    What must be picklable: the function or class that opens it, which travels to Spark tasks.

    What must be durable: whatever :meth:`multi_put` wrote, when it returns.

    What to raise: ``ConnectionError`` or ``TimeoutError`` for a failure that may pass; the batch is
    tried again. Any other exception ends the run. A failed write may have taken effect, but it must
    not take effect later, after its replay has been written.

    Not guaranteed: that :meth:`close` is called, since the process may be killed.

    How to prove it: subclass ``txtopo.testing.conformance.BackingMapSuite``.
    """

    @abstractmethod
    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        """Read the values of the keys.

        Args:
            keys: Distinct, at most 10,000; may be empty.

        Returns:
            One value per key, in the order of *keys*; ``None`` where there is none.
        """

    @abstractmethod
    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        """Write the values of the keys.

        The write of one key is atomic, and durable once this returns. The keys need not be written
        together, nor in order: a batch that dies half-way is undone and written again.

        Args:
            keys: Distinct, at most 10,000; may be empty. If a key occurs twice nevertheless, the
                last value wins, or a ``ValueError`` is raised before anything is written.
            values: One per key.
        """

    def close(self) -> None:  # noqa: B027 - most maps have nothing to release
        """Release connections. A second call does nothing. The default does nothing."""


@runtime_checkable
class ComparesAndPuts(Protocol):
    """A backing map with the optional third method, which fences.

    Every key is then written by this method, one call for each, so that a write based on stale data
    is refused and a deposed coordinator changes nothing. It costs one round trip for each key.
    """

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        """Write the value of *key* if its value still is *expected*, in one atomic step.

        Args:
            key: The key.
            expected: The value that was read; ``None`` if the key had none.
            value: The new value.

        Returns:
            True if the value was written, durably; False if the store holds another value.
        """
        ...


Item = TypeVar("Item")

Result = TypeVar("Result")

VERSION = 1
"""The version of the stored form of a state: its head, its rows and its lists of keys."""

STATES = dumped(["states"])

# The limit promised to plug-ins; such a request has several hundred kB.
KEYS_PER_CALL = 10_000

# A new key rewrites the last chunk of the list of keys, so chunks are short.
KEYS_PER_CHUNK = 1_000


@dataclass(frozen=True, slots=True)
class MapHead:
    """The head document of a state.

    Attributes:
        columns: The declaration of its columns.
        ledger: Its ledger; None before the first claim.
        opened: The last attempt that began to write, whether it finished or not.
        touched_chunks: How many chunks list the keys that the txid of *opened* touches.
        keys: How many keys were ever written.
    """

    columns: str
    ledger: Ledger | None = None
    opened: TransactionAttempt | None = None
    touched_chunks: int = 0
    keys: int = 0

    def text(self) -> str:
        """Return the head as JSON."""
        plain = {**asdict(self), "version": VERSION}
        if self.opened is not None:
            opened = self.opened
            plain["opened"] = [opened.txid, opened.attempt, opened.epoch, opened.term]
        return dumped(plain)


class MapDocuments:
    """Reads and writes the documents of one state, for one commit or one snapshot."""

    def __init__(self, backing_map: BackingMap, state: str) -> None:
        self._map = backing_map
        self._state = state
        self._compares = backing_map if isinstance(backing_map, ComparesAndPuts) else None
        # The texts that were read, for comparison; empty if the map does not compare.
        self._seen: dict[str, str | None] = {}

    def head(self) -> MapHead | None:
        """Read the head; None for a state that nobody has claimed."""
        (text,) = self._read([self._name("head")])
        return None if text is None else self._parsed(text, self._head_of)

    def states(self) -> list[str]:
        """Read the names of the states that the map holds."""
        (text,) = self._read([STATES])
        return [] if text is None else self._parsed(text, list)

    def rows(self, keys: Sequence[str]) -> dict[str, Any]:
        """Read the rows of those *keys* that were ever written; None for a removed row."""
        texts = self._read([self._name("row", key) for key in keys])
        return {
            key: self._parsed(text, lambda document: document[3])
            for key, text in zip(keys, texts, strict=True)
            if text is not None
        }

    def touched(self, head: MapHead) -> dict[str, Any]:
        """Read the keys that the last begun txid writes, each with its note for an undo."""
        touched: dict[str, Any] = {}
        for text in self._read([self._name("touched", n) for n in range(head.touched_chunks)]):
            touched.update(self._parsed(text, lambda document: document[3]))
        return touched

    def keys(self, head: MapHead) -> Iterator[list[str]]:
        """Yield every key that was ever written, in lists that fit one call to the map."""
        # The last chunk may have more keys than the head says, from an attempt that died before it
        # wrote the head. These keys have no rows, and the next new keys take their places.
        chunks = [self._name("keys", n) for n in range(-(-head.keys // KEYS_PER_CHUNK))]
        for names in parts(chunks, max(1, KEYS_PER_CALL // KEYS_PER_CHUNK)):
            yield [key for text in self._read(names) for key in self._parsed(text, list)]

    def write_head(self, head: MapHead) -> None:
        """Write the head."""
        self._write({self._name("head"): head.text()})

    def write_states(self, states: Sequence[str]) -> None:
        """Write the names of the states that the map holds."""
        self._write({STATES: dumped(states)})

    def write_rows(self, rows: Mapping[str, Any], attempt: TransactionAttempt) -> None:
        """Write rows by key. Each text names the attempt, so no two attempts write the same."""
        mark = _mark(attempt)
        self._write({self._name("row", key): dumped([*mark, row]) for key, row in rows.items()})

    def write_lists(
        self, head: MapHead, first: int, noted: Mapping[str, Any], new: Sequence[str]
    ) -> int:
        """Write the lists of keys: the touched ones from chunk *first* on, and the new ones.

        Returns:
            The number of chunks that list the touched keys now.
        """
        assert head.opened is not None
        mark = _mark(head.opened)
        chunks = [dict(part) for part in parts(list(noted.items()), KEYS_PER_CHUNK)]
        lists = {
            self._name("touched", n): dumped([*mark, chunk])
            for n, chunk in enumerate(chunks, first)
        }
        last, kept = divmod(head.keys, KEYS_PER_CHUNK)
        if new and kept:
            (text,) = self._read([self._name("keys", last)])
            new = [*self._parsed(text, list)[:kept], *new]
        for n, part in enumerate(parts(new, KEYS_PER_CHUNK), last):
            lists[self._name("keys", n)] = dumped(part)
        self._write(lists)
        return first + len(chunks)

    def _read(self, names: Sequence[str]) -> list[str | None]:
        texts: list[str | None] = []
        for part in parts(names, KEYS_PER_CALL):
            texts += self._asked(part)
        if self._compares is not None:
            for name, text in zip(names, texts, strict=True):
                self._seen.setdefault(name, text)
        return texts

    def _asked(self, names: Sequence[str]) -> list[str | None]:
        answer: object = self._call(lambda: self._map.multi_get(names))
        if (
            isinstance(answer, list)
            and len(answer) == len(names)
            and all(text is None or isinstance(text, str) for text in answer)
        ):
            return answer
        raise PlugInError(
            f"multi_get of {type(self._map).__name__} returned {answer!r:.200} for {len(names)} "
            "keys; expected a list with one string per key, or None where there is none; fix the "
            "plug-in",
            state=self._state,
        )

    def _write(self, documents: Mapping[str, str]) -> None:
        if self._compares is None:
            for part in parts(list(documents.items()), KEYS_PER_CALL):
                names, texts = zip(*part, strict=True)
                self._call(lambda n=names, t=texts: self._map.multi_put(list(n), list(t)))  # type: ignore[misc]
            return
        self._read_before_writing([name for name in documents if name not in self._seen])
        for name, text in documents.items():
            self._compare_and_put(self._compares, name, text)
            self._seen[name] = text

    def _read_before_writing(self, names: Sequence[str]) -> None:
        """Read the texts for comparison, and check that no successor has already written them."""
        if not names:
            return
        self._read(names)
        head = self._name("head")
        if head in self._seen and self._asked([head]) != [self._seen[head]]:
            raise self._overtaken()

    def _compare_and_put(self, compares: ComparesAndPuts, name: str, text: str) -> None:
        done: object = self._call(lambda: compares.compare_and_put(name, self._seen[name], text))
        if done is False:
            raise self._overtaken()
        if done is not True:
            raise PlugInError(
                f"compare_and_put of {type(self._map).__name__} returned {done!r:.100}; expected "
                "True or False: whether it was written; fix the plug-in, and check what the "
                "store holds",
                state=self._state,
            )

    def _call(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except TxtopoError:
            raise
        except (ConnectionError, TimeoutError) as error:
            raise StoreUnavailable(
                f"cannot use the backing map of state {self._state!r}: {type(error).__name__}: "
                f"{error}; what was written of a batch is undone; try again",
                state=self._state,
            ) from error

    def _parsed(self, text: str | None, made: Callable[[Any], Result]) -> Result:
        try:
            return made(json.loads(text or ""))
        except (ValueError, TypeError, KeyError, IndexError) as error:
            raise SchemaDrift(
                f"the backing map of state {self._state!r} holds a value that txtopo did not "
                f"write; got {text!r:.200}; nothing was written; was it changed by hand, or was a "
                "key lost?",
                state=self._state,
            ) from error

    def _head_of(self, found: dict[str, Any]) -> MapHead:
        version = found.pop("version")
        if version > VERSION:
            raise SchemaVersionError(
                f"state {self._state!r} was written by a newer txtopo; got version {version}; "
                f"expected at most {VERSION}; upgrade txtopo",
                state=self._state,
            )
        ledger, opened = found.pop("ledger"), found.pop("opened")
        return MapHead(
            **found,
            ledger=None if ledger is None else Ledger.of(ledger),
            opened=None if opened is None else TransactionAttempt(*opened[:3], term=opened[3]),
        )

    def _name(self, *parts: str | int) -> str:
        return dumped([self._state, *parts])

    def _overtaken(self) -> StoreContended:
        return StoreContended(
            f"another writer changed state {self._state!r} in the meantime; try again",
            state=self._state,
        )


def _mark(attempt: TransactionAttempt) -> list[object]:
    """Return the part of a document's text that names the attempt that wrote it."""
    return [attempt.epoch, attempt.attempt, attempt.term]


def parts(items: Sequence[Item], size: int) -> Iterator[list[Item]]:
    """Yield the items in lists of at most *size*."""
    left = iter(items)
    while part := list(islice(left, size)):
        yield part
