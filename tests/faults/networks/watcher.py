"""The outside reader: reads again and again what a topology has counted, and judges that."""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import sqlalchemy as sa

from tests.faults.networks.numbers import Arrivals, fold, folded_total

PAUSE_S = 0.02


class Held(NamedTuple):
    """What a table holds.

    Attributes:
        txid: The last txid in it.
        epoch: The epoch of the attempt that wrote it.
        attempt: The number of that attempt.
        numbers: How many numbers are counted.
    """

    txid: int
    epoch: int
    attempt: int
    numbers: int


NOTHING = Held(0, 0, 0, 0)


class Watcher:
    """Reads from its own connection to the store, on a thread of its own; a context manager.

    A reading is one statement, so ledger and rows are of one instant. It must be the fold of the
    first numbers, and continue from the one before. An attempt whose outcome the driver does not
    know is followed by another one of the same txid: of an opaque spout with other numbers.

    Args:
        url: URL of the store, not through a proxy.
        name: Id of the topology.
        arrivals: The numbers.
        opaque: Whether another attempt may have other numbers.

    Attributes:
        wrong: The first reading that broke a promise; empty if there is none.
        samples: How many there were.
        stall_s: The longest time in which there were numbers left and none was counted.
    """

    def __init__(self, url: str, name: str, arrivals: Arrivals, *, opaque: bool) -> None:
        self.wrong, self.samples, self.stall_s = "", 0, 0.0
        self._engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        self._tables = (f"{name}_by_key", f"{name}_total")
        self._arrivals, self._opaque = arrivals, opaque
        self._held = dict.fromkeys(self._tables, NOTHING)
        self._noted, self._grew_s = 0, time.monotonic()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def count(self) -> int:
        """How many numbers both tables have counted."""
        return min(held.numbers for held in self._held.values())

    @property
    def txid(self) -> int:
        """The last txid that both tables hold."""
        return min(held.txid for held in self._held.values())

    def close(self) -> None:
        """Read once more, and end."""
        self._over.set()
        self._thread.join()
        self._engine.dispose()

    def _watch(self) -> None:
        with self._engine.connect() as connection:
            last = False
            while not last and not self.wrong:
                last = self._over.wait(PAUSE_S)
                for table in self._tables:
                    try:
                        self._judge(table, self._read(connection, table))
                    except sa.exc.SQLAlchemyError as error:
                        is_missing = isinstance(error, sa.exc.ProgrammingError)
                        if not is_missing or self._held[table] != NOTHING:
                            self.wrong = f"{table} cannot be read: {error!r}"
                self._note()

    def _read(self, connection: sa.Connection, table: str) -> list[tuple[Any, ...]]:
        found = connection.exec_driver_sql(
            "SELECT txid, writer_epoch, attempt, held.* FROM txtopo_ledger "
            f"LEFT JOIN {table}_view held ON 1 = 1 WHERE state = '{table}'"
        )
        return [tuple(row) for row in found]

    def _judge(self, table: str, rows: list[tuple[Any, ...]]) -> None:
        if not rows:
            return
        self.samples += 1
        held = {key: (numbers, total) for *_, key, numbers, total in rows if numbers is not None}
        count = sum(numbers for numbers, _ in held.values())
        expected = fold(count)
        if table == self._tables[1]:
            expected = {"global": folded_total(count)} if count else {}
        txid, epoch, attempt = rows[0][:3]
        before, found = self._held[table], Held(txid, epoch, attempt, count)
        if held != expected or not self._goes_on(before, found):
            self.wrong = (
                f"{table} held {held}, {found}; expected the fold of its first {count} numbers of "
                f"{self._arrivals.there()}; before it was {before}"
            )
        self._held[table] = found

    def _goes_on(self, before: Held, found: Held) -> bool:
        if found.numbers > self._arrivals.there() or found.epoch < before.epoch:
            return False
        if found.txid > before.txid:
            return found.numbers >= before.numbers
        if found[:3] == before[:3]:
            return found == before
        again = found[:3] > before[:3]
        return again and (self._opaque or found.numbers == before.numbers)

    def _note(self) -> None:
        now_s = time.monotonic()
        if self.count != self._noted or self.count == self._arrivals.there():
            self._noted, self._grew_s = self.count, now_s
        self.stall_s = max(self.stall_s, now_s - self._grew_s)
