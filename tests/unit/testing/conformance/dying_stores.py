"""Stores, a map and an ensemble on disk that are not atomic when their process dies in a write.

They stand on the ``sqlite3`` of the standard library and on plain files, as a first plug-in does.
Whole, each keeps its contract.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from txtopo.ensemble import MemoryEnsemble
from txtopo.ensemble.memory import Nodes
from txtopo.plugins.ensembles import MemoryTransactionalState, Step
from txtopo.plugins.stores import (
    BackingMap,
    Contents,
    Key,
    Ledger,
    Row,
    RowBackend,
    RowText,
    StateTable,
    expired_keys,
    expiring,
)
from txtopo.testing.conformance.pace import DEATHS_MAX, DEATHS_MIN

Changes = Mapping[Key, Row | None]

UPSERT = "INSERT OR REPLACE INTO rows VALUES (?, ?, ?)"


class SqliteRows(RowBackend):
    """Ledger and rows as texts in a file of SQLite; what a subclass overrides is not atomic.

    Attributes:
        fails: The tests of the suite that have to notice.
        rule: The name of the rule that their failure has to tell.
        deaths: How many deaths are enough for it.
    """

    fails: ClassVar[str] = ""
    rule: ClassVar[str] = "ONE_WRITE"
    deaths: ClassVar[int] = DEATHS_MIN

    def __init__(self, url: str, table: StateTable) -> None:
        super().__init__(table)
        self.text = RowText(table)
        self.file = sqlite3.connect(url.partition(":")[2], isolation_level=None)
        self.file.execute("PRAGMA synchronous = OFF")  # a process dies here, and no machine
        self.file.execute("CREATE TABLE IF NOT EXISTS ledgers (name PRIMARY KEY, ledger)")
        self.file.execute(
            "CREATE TABLE IF NOT EXISTS rows (name, key, row, PRIMARY KEY (name, key))"
        )

    def load(self) -> Contents:
        with self.transaction():
            return self.read()

    def read(self) -> Contents:
        name = (self.table.name,)
        ledger = self.file.execute("SELECT ledger FROM ledgers WHERE name = ?", name).fetchone()
        if ledger is None:
            return Contents()
        rows = self.file.execute("SELECT key, row FROM rows WHERE name = ?", name).fetchall()
        return Contents(
            Ledger.of(json.loads(ledger[0])),
            {self.text.key_of(key): self.text.row_from(json.loads(row)) for key, row in rows},
        )

    def replace(self, expected: Ledger | None, ledger: Ledger, changes: Changes) -> bool:
        with self.transaction():
            if self.read().ledger != expected:
                return False
            self.write(ledger, changes)
            return True

    @contextmanager
    def transaction(self) -> Iterator[None]:
        self.file.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.file.execute("ROLLBACK")
            raise
        self.file.execute("COMMIT")

    def write(self, ledger: Ledger, changes: Changes) -> None:
        self.write_ledger(ledger)
        self.write_rows(changes)

    def write_ledger(self, ledger: Ledger) -> None:
        texts = (self.table.name, json.dumps(asdict(ledger)))
        self.file.execute("INSERT OR REPLACE INTO ledgers VALUES (?, ?)", texts)

    def write_rows(self, changes: Changes) -> None:
        for key, row in changes.items():
            if row is None:
                where = (self.table.name, self.text.key(key))
                self.file.execute("DELETE FROM rows WHERE name = ? AND key = ?", where)
            else:
                self.file.execute(UPSERT, self.texts(key, row))

    def texts(self, key: Key, row: Row) -> tuple[str, str, str]:
        return self.table.name, self.text.key(key), json.dumps(self.text.plain(row))

    def close(self) -> None:
        self.file.close()


DIES = "test_a_put_whose_writer_dies_is_there_whole_or_not_at_all"
DIES_IN_TIME = "test_a_large_put_whose_writer_dies_at_any_time_is_there_whole_or_not_at_all"


class LedgerThenRows(SqliteRows):
    """Without a transaction: ledger first, then each row by itself."""

    fails = DIES

    @contextmanager
    def transaction(self) -> Iterator[None]:
        yield


class RowsThenLedger(LedgerThenRows):
    def write(self, ledger: Ledger, changes: Changes) -> None:
        self.write_rows(changes)
        self.write_ledger(ledger)


class TwoTransactions(SqliteRows):
    """Each is atomic."""

    fails = DIES

    def replace(self, expected: Ledger | None, ledger: Ledger, changes: Changes) -> bool:
        with self.transaction():
            if self.read().ledger != expected:
                return False
            self.write_rows(changes)
        with self.transaction():
            self.write_ledger(ledger)
        return True


class TakesBackAfterErrors(LedgerThenRows):
    """Right after every exception, and wrong after a death: it takes back what it wrote itself."""

    def replace(self, expected: Ledger | None, ledger: Ledger, changes: Changes) -> bool:
        before = self.read()
        try:
            return super().replace(expected, ledger, changes)
        except BaseException:
            self.file.execute("DELETE FROM rows WHERE name = ?", (self.table.name,))
            if before.ledger is not None:
                self.write(before.ledger, before.rows)
            raise


class RowsInOneCall(SqliteRows):
    """Its rows are written by one call of the client, which writes each of them by itself."""

    fails = DIES_IN_TIME

    def replace(self, expected: Ledger | None, ledger: Ledger, changes: Changes) -> bool:
        gone = {key: row for key, row in changes.items() if row is None}
        texts = [self.texts(key, row) for key, row in changes.items() if row is not None]
        if gone or len(texts) < 20:
            return super().replace(expected, ledger, changes)
        with self.transaction():
            if self.read().ledger != expected:
                return False
            self.write_ledger(ledger)
        self.file.executemany(UPSERT, texts)
        return True


class LeavesItsTransactionOpen(SqliteRows):
    """Atomic when it dies; after an error the next write of the same object keeps the half."""

    fails = "test_a_write_whose_rows_raise_writes_nothing_and_is_tried_again"

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if not self.file.in_transaction:
            self.file.execute("BEGIN IMMEDIATE")
        yield
        self.file.execute("COMMIT")


class MakesTablesOnce(SqliteRows):
    """Takes a table for made when its mark is there, which a first start writes too early."""

    fails, rule = "test_a_first_start_that_dies_is_no_hindrance", "DURABLE"
    deaths = DEATHS_MAX

    def create(self) -> None:
        with closing(self.file.execute("PRAGMA table_list")):
            self.file.execute("CREATE TABLE IF NOT EXISTS marks (name PRIMARY KEY)")
        mark = (self.table.name,)
        if self.file.execute("SELECT 1 FROM marks WHERE name = ?", mark).fetchone() is None:
            self.file.execute("INSERT INTO marks VALUES (?)", mark)
            self.file.execute(f'CREATE TABLE "of {self.table.name}" (n)')
        self.file.execute(f'SELECT 1 FROM "of {self.table.name}"').fetchone()


EXPIRY_DIES = "test_an_expiry_whose_writer_dies_deletes_nothing_else"


class ExpiresByWritingTheRest(SqliteRows):
    """Empties the table, and writes what stays, in transactions of their own."""

    fails, rule = EXPIRY_DIES, "EXPIRY"

    def expire(self, up_to: Any, before_txid: int) -> int:
        held = self.load()
        txid = expiring(held.ledger, self.claimant, before_txid)
        gone = expired_keys(self.table, held.rows, up_to, txid)
        if gone:
            self.file.execute("DELETE FROM rows WHERE name = ?", (self.table.name,))
            self.write_rows({key: row for key, row in held.rows.items() if key not in gone})
        return len(gone)


class TakesItsLedgerAwayToExpire(SqliteRows):
    """So that nobody commits meanwhile."""

    fails, rule = EXPIRY_DIES, "EXPIRY"

    def expire(self, up_to: Any, before_txid: int) -> int:
        held = self.load()
        txid = expiring(held.ledger, self.claimant, before_txid)
        gone = expired_keys(self.table, held.rows, up_to, txid)
        assert held.ledger is not None
        self.file.execute("DELETE FROM ledgers WHERE name = ?", (self.table.name,))
        self.write_rows(dict.fromkeys(gone))
        self.write_ledger(held.ledger)
        return len(gone)


class TextFiles(BackingMap):
    """A file for each key, which takes the place of the one before; what is overridden does not.

    Attributes:
        fails: The test of the suite that has to notice.
        rule: The name of the rule that its failure has to tell.
    """

    fails: ClassVar[str] = ""
    rule: ClassVar[str] = "ATOMIC"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        paths = map(self.path, keys)
        return [path.read_text() if path.exists() else None for path in paths]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        for key, value in zip(keys, values, strict=True):
            self.put(self.path(key), value)

    def put(self, path: Path, text: str) -> None:
        new = path.with_suffix(".new")
        new.write_text(text)
        new.replace(path)

    def path(self, key: str) -> Path:
        return self.folder / f"{zlib.crc32(key.encode())}.txt"


PUT_DIES = "test_a_put_whose_writer_dies_leaves_each_key_with_one_of_both_texts[1]"


class WritesInPlace(TextFiles):
    """Cuts the file off before it writes."""

    fails = PUT_DIES

    def put(self, path: Path, text: str) -> None:
        path.write_text(text)


class DeletesFirst(TextFiles):
    fails = PUT_DIES

    def put(self, path: Path, text: str) -> None:
        path.unlink(missing_ok=True)
        super().put(path, text)


class ComparingFiles(TextFiles):
    """With the third method, for one writer."""

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        if self.multi_get([key]) != [expected]:
            return False
        self.put(self.path(key), value)
        return True


class ComparesAndWritesInPlace(ComparingFiles):
    fails, rule = (
        "test_a_compare_and_put_whose_writer_dies_leaves_one_of_both_texts",
        "COMPARES",
    )

    def compare_and_put(self, key: str, expected: str | None, value: str) -> bool:
        if self.multi_get([key]) != [expected]:
            return False
        self.path(key).write_text(value)
        return True


class NodesInAFile(MemoryEnsemble):
    """An ensemble whose nodes are in a file that is replaced whole."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__()

    def __getattribute__(self, name: str) -> object:
        if name == "nodes" and self.path.exists():
            stored = json.loads(self.path.read_text())
            return {node: (data.encode(), version) for node, (data, version) in stored.items()}
        return super().__getattribute__(name)

    def write(self, nodes: Nodes) -> None:
        stored = {node: (data.decode(), version) for node, (data, version) in nodes.items()}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(stored))
        new.replace(self.path)


class FileEnsemble(MemoryTransactionalState):
    """A client of it; what a subclass overrides is not atomic.

    Attributes:
        fails: The test of the suite that has to notice.
        rule: The name of the rule that its failure has to tell.
    """

    fails: ClassVar[str] = ""
    rule: ClassVar[str] = "ONE_WRITE"

    def __init__(self, topology_id: str, path: Path) -> None:
        super().__init__(topology_id, NodesInAFile(path))


class AppliesStepByStep(FileEnsemble):
    fails = "test_a_write_whose_client_dies_is_done_whole_or_not_at_all"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in list(steps):
            super().apply([step])


class ReadsStepsWhileItWrites(FileEnsemble):
    fails = "test_a_write_whose_steps_raise_is_done_whole_or_not_at_all"

    def apply(self, steps: Sequence[Step]) -> None:
        for step in steps:
            super().apply([step])
