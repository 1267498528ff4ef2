"""Witness: a note of one row of the last write, which reveals that a table was restored alone.

Ledger and rows are written together. But somebody may restore the table of a state from a backup
without its ledger (``pg_restore -t``, ``.dump``), or empty it, or restore the ledger alone. Then
the rows are from an earlier or later txid than the ledger, and the batches between them would be
lost or count twice.

Rules
-----
1. A commit that writes rows notes one of them in the ledger: its key, and the txid that tags it. A
   commit without rows keeps the note, which still describes the last change.
2. A redo that writes no rows drops the note of the rows that it undoes. A redo of a transactional
   state keeps its rows, and their note.
3. A claim reads that row. The row must have the noted txid; or be gone, if the txid only deleted
   rows. Otherwise table and ledger are from different moments, and the start is refused.
4. If a row can vanish without a commit, its absence proves nothing: a row that may have expired
   since its txid, and a row that a user may delete: a dead letter that is dealt with, or a row in a
   user's own table, which the user may also add again, without a txid.

In mode ``log`` a key has many rows, which are folded into one of a later txid. There the largest
txid of all rows counts: it must be at least the txid of the last write, and at most the txid of the
ledger.

Not noticed: a table that is restored while a topology writes to it, if the topology writes rows
before its next start. (In Delta it is noticed, by the versions of its table.)
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreDamagedError, ValueRefusedError
from txtopo.state.backend import Key, Puts, Snapshot, StateTable, Writes
from txtopo.state.column_rows import ColumnRows
from txtopo.state.columns import values_of
from txtopo.state.ledger import Ledger, Standing
from txtopo.state.row_text import RowText, dumped
from txtopo.state.values import Row

if TYPE_CHECKING:
    import pyarrow as pa

KEY_CHARS_MAX = 2_000
"""A longer key is not noted, since the ledger is written with each commit."""


class Left(Enum):
    """What a write left of the noted row."""

    THERE = "there"
    GONE = "gone"
    EXPIRES = "expires"
    """The row exists until it expires."""
    THEIRS = "theirs"
    """The row exists until a user deletes it."""


@dataclass(frozen=True, slots=True)
class Witness:
    """The note of a row.

    Attributes:
        txid: The last txid that changed rows.
        left: What it left of the row.
        key: The key of the row, as JSON; empty in mode ``log``.
    """

    txid: int
    left: Left
    key: str

    @classmethod
    def of(cls, text: str) -> Witness:
        """Return the note from the text in a ledger.

        Raises:
            StoreDamagedError: The text is not a note.
        """
        try:
            txid, left, key = json.loads(text)
            return cls(int(txid), Left(left), str(key))
        except (ValueError, TypeError) as error:
            raise StoreDamagedError(
                f"the ledger names a row that cannot be read; got {text!r:.200}; expected the row "
                "that a commit noted; was the ledger changed by hand? restore the table and its "
                "ledger as of the same moment",
                got=f"{text!r:.200}",
            ) from error

    def text(self) -> str:
        """Return the note as a text for a ledger."""
        return dumped([self.txid, self.left.value, self.key])


def witness_of(
    table: StateTable, ledger: Ledger, attempt: TransactionAttempt, writes: Writes, found: Standing
) -> str:
    """Return the note that a commit leaves in the ledger, for ``Ledger.written_by``.

    Args:
        table: The state.
        ledger: The ledger before the commit.
        attempt: The attempt that is committed.
        writes: What it writes.
        found: What ``standing`` returned.
    """
    redone = found is Standing.REDO
    if redone and table.kind == "transactional":
        return ledger.witness
    noted = _noted(table, writes)
    if noted is not None:
        left, key = noted
        return "" if len(key) > KEY_CHARS_MAX else Witness(attempt.txid, left, key).text()
    undone = redone and ledger.witness and Witness.of(ledger.witness).txid == attempt.txid
    return "" if undone else ledger.witness


def check_witness(snapshot: Snapshot, table: StateTable, name: str) -> None:
    """Check that the rows of a state match its ledger, by the row that the ledger notes.

    Args:
        snapshot: The state.
        table: Its schema.
        name: Its name, for messages.

    Raises:
        StoreDamagedError: They are from another moment.
    """
    ledger = snapshot.ledger
    flaw = snapshot.flaw()
    if flaw is not None:
        raise StoreDamagedError(
            f"the rows of state {name!r} do not match its ledger: {flaw}", state=name
        )
    if ledger is None or not ledger.witness:
        return
    witness = Witness.of(ledger.witness)
    if not witness.key:
        last = snapshot.last_txid()
        if not witness.txid <= last <= ledger.txid:
            raise _damaged(name, ledger, witness, "the newest row", last)
        return
    key = RowText(table).key_of(witness.key)
    row = next(iter(snapshot.rows([key]).values()), None)
    if not _is_left(row, witness, ledger):
        txid = None if row is None else row.txid
        raise _damaged(name, ledger, witness, f"the row of key {key!r:.200}", txid)


def check_none_later(snapshot: Snapshot, name: str) -> None:
    """Check that no row of a state is of a later txid than its ledger; may read all rows.

    Raises:
        StoreDamagedError: A row is of a later txid.
    """
    if (ledger := snapshot.ledger) is None:
        return  # nor need there be a table
    if (last := snapshot.last_txid()) > ledger.txid:
        raise StoreDamagedError(
            f"the rows of state {name!r} do not match its ledger: one belongs to txid {last}; "
            f"expected at most txid {ledger.txid}, which the ledger holds; nothing was written; "
            "was the ledger restored from a backup without the table? restore both as of the "
            "same moment",
            state=name,
            ledger_txid=ledger.txid,
            expected_txid=ledger.txid,
            row_txid=last,
        )


def check_undone(row: Row | None, witness: Witness, state: str) -> None:
    """Check that an undo of the noted txid has undone the noted row.

    Args:
        row: The row, after the undo.
        witness: The note of the txid that was undone.
        state: The state and its store, for the message.

    Raises:
        StoreDamagedError: The row is still in the form that the txid left.
    """
    if row is not None and row.txid == witness.txid:
        raise StoreDamagedError(
            f"an earlier attempt of txid {witness.txid} cannot be taken back in {state}: the row "
            f"of key {witness.key} still has its txid; nothing was written; expected the list of "
            "the keys of the last txid to contain it; was only that list restored or changed? "
            "restore all tables of the state as of the same moment",
            state=state,
        )


def _is_left(row: Row | None, witness: Witness, ledger: Ledger) -> bool:
    theirs = witness.left is Left.THEIRS
    if row is None:
        # Rows of the last txid never expire, since it may be undone.
        expired = witness.left is Left.EXPIRES and witness.txid < ledger.txid
        return witness.left is Left.GONE or theirs or expired
    if witness.left is Left.GONE:
        return row.deleted and row.txid == witness.txid
    return row.txid == witness.txid or (theirs and not row.txid)


def _damaged(
    name: str, ledger: Ledger, witness: Witness, what: str, got: int | None
) -> StoreDamagedError:
    wanted = "no such row" if witness.left is Left.GONE else f"one of txid {witness.txid}"
    found = "missing" if got is None else f"of txid {got}"
    later = got is not None and got > witness.txid
    alone, without = ("ledger", "table") if later else ("table", "ledger")
    return StoreDamagedError(
        f"the rows of state {name!r} do not match its ledger: {what} is {found}; expected "
        f"{wanted}, which txid {witness.txid} left; the ledger holds txid {ledger.txid}; no batch "
        f"was written; was the {alone} restored from a backup without the {without}, or changed "
        "by hand? restore both as of the same moment",
        state=name,
        ledger_txid=ledger.txid,
        expected_txid=witness.txid,
        row_txid=got,
    )


def _noted(table: StateTable, writes: Writes) -> tuple[Left, str] | None:
    """Return a note on one row that a commit writes, and its key; None if it writes no row."""
    found = _put(table, writes) if isinstance(writes, Puts) else _first(table, writes.partials)
    if found is None:
        return None
    key, put = found
    if table.mode == "log":
        return Left.THERE, ""
    try:
        text = RowText(table).key(key)
    except ValueRefusedError:
        return None  # the store refuses it as well
    if table.origin != "made" or table.prunable:
        return Left.THEIRS, text
    there = Left.THERE if table.range_by is None else Left.EXPIRES
    return there if put else Left.GONE, text


def _put(table: StateTable, writes: Puts) -> tuple[Key, bool] | None:
    """Return the first key that is not deleted, or the first deleted one if all are."""
    rows = writes.rows
    if isinstance(rows, ColumnRows):
        if (found := _first(table, rows.kept)) is not None:
            return found
        found = _first(table, rows.table)
        return None if found is None else (found[0], False)
    put = next((key for key, values in rows.items() if values is not None), None)
    if put is not None:
        return put, True
    gone = next(iter(rows), None)
    return None if gone is None else (gone, False)


def _first(table: StateTable, rows: pa.Table) -> tuple[Key, bool] | None:
    """Return the key of the first row of a table; None if there is none or the store refuses it."""
    import pyarrow as pa

    if not rows.num_rows:
        return None
    try:
        keys = rows.slice(0, 1).select(list(table.key.names)).cast(table.key.arrow_schema())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, KeyError):
        return None
    return tuple(values_of(column)[0] for column in keys.columns), True
