"""Stores that break a rule of rows and values: undo, previous, tombstones, exactness, keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from state_backends.memory import MemoryStore
from tests.unit.testing.conformance.broken_store import BrokenStore, Changes, Rows
from txtopo.attempt import TransactionAttempt
from txtopo.errors import ValueRefusedError
from txtopo.plugins.stores import (
    Key,
    Merges,
    Row,
    Standing,
    StateTable,
    Writes,
    combines_in_store,
    final_values,
)
from txtopo.state import Ledger, Sum


class DoesNotUndo(BrokenStore):
    fails, rule = "test_a_key_that_a_replay_lacks_is_taken_back", "UNDO"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if self.table.kind == "opaque":
            rows = {key: replace(row, txid=min(row.txid, txid - 1)) for key, row in rows.items()}
        return super().changed(rows, txid, writes, found)


class UndoesOnlyWhatComesAgain(BrokenStore):
    """Storm's rule: a row is taken back when its key is written again."""

    fails, rule = "test_an_empty_replay_takes_everything_back", "UNDO"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        if self.table.kind == "transactional":
            return changes
        return {
            key: row
            for key, row in changes.items()
            if key not in rows or rows[key].txid != txid or (row is not None and row.txid == txid)
        }


class CountsATransactionalReplayAgain(BrokenStore):
    fails, rule = "test_partials_of_a_held_txid_are_not_added_again", "KEPT"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if self.table.kind == "transactional":
            found = Standing.APPLY
        return super().changed(rows, txid, writes, found)


class DoesNotMovePrevious(BrokenStore):
    fails, rule = "test_an_undo_leads_back_one_txid_and_no_further", "PREVIOUS"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        for key, row in changes.items():
            old = rows.get(key)
            if row is not None and old is not None and old.previous is not None:
                changes[key] = replace(row, previous=old.previous)
        return changes


class TakesANullForNoRow(BrokenStore):
    fails, rule = "test_what_was_null_or_not_comes_back_as_it_was", "PREVIOUS"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        for key, row in changes.items():
            if row is not None and row.previous == (None,):
                changes[key] = replace(row, previous=None, previous_txid=None)
        return changes


class DeletesWhatIsNull(BrokenStore):
    fails, rule = "test_a_null_is_a_value_and_not_a_removal", "EXACT"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        return {k: None if row and row.current == (None,) else row for k, row in changes.items()}


class DeletesWithoutATombstone(BrokenStore):
    fails, rule = "test_check_41_a_removal_is_undone_and_redone", "TOMBSTONE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        return {k: None if row is not None and row.deleted else row for k, row in changes.items()}


class ShowsTombstones(BrokenStore):
    fails, rule = "test_a_tombstone_is_hidden_and_then_gone", "TOMBSTONE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        return {k: row and replace(row, deleted=False) for k, row in changes.items()}


class NeverSweeps(BrokenStore):
    fails, rule = "test_a_tombstone_is_swept_by_the_txid_that_follows", "TOMBSTONE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        gone = [k for k, row in changes.items() if row is None and k in rows and rows[k].deleted]
        return {
            key: row for key, row in changes.items() if key not in gone or rows[key].txid == txid
        }


class WritesPartialsThatItCannotCombine(BrokenStore):
    """It takes partials for final values, unless a database could combine them."""

    fails, rule = "test_what_combines_in_python_meets_what_is_stored", "COMBINE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if isinstance(writes, Merges) and not combines_in_store(self.table):
            writes = final_values(self.table, txid, writes, lambda _: {})
        return super().changed(rows, txid, writes, found)


class CombinesWithAnEarlierAttempt(BrokenStore):
    """It undoes the rows, but not what it combines with."""

    fails, rule = "test_a_replay_is_combined_with_what_was_before_it", "UNDO"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        if isinstance(writes, Merges) and not combines_in_store(self.table):
            seen = {key: replace(row, txid=0) for key, row in rows.items()}
            writes = final_values(self.table, txid, writes, lambda _: seen)
        return super().changed(rows, txid, writes, found)


@dataclass(frozen=True, slots=True)
class _Wraps(Sum):
    def combine_values(self, left: Any, right: Any) -> Any:
        total = super().combine_values(left, right)
        return (total + 2**63) % 2**64 - 2**63 if isinstance(total, int) else total


class WrapsAround(BrokenStore):
    fails, rule = "test_a_sum_beyond_a_long_is_refused_whole", "EXACT"

    def __init__(self, store: MemoryStore, table: StateTable) -> None:
        wraps = tuple(_Wraps() if isinstance(a, Sum) else a for a in table.aggregates)
        super().__init__(store, replace(table, aggregates=wraps))


class RefusesTooLate(BrokenStore):
    fails, rule = "test_a_sum_beyond_a_long_is_refused_whole", "EXACT"

    def commit(self, attempt: TransactionAttempt, writes: Writes) -> Ledger:
        try:
            return super().commit(attempt, writes)
        except ValueRefusedError:
            held = self.load().ledger
            if held is not None:
                self.replace(held, held, {("half",): Row(attempt.txid, (1,))})
            raise


class _ChangesValues(BrokenStore):
    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        return {key: row and self._stored(row) for key, row in changes.items()}

    def _stored(self, row: Row) -> Row:
        return replace(row, current=tuple(map(self._value, row.current)))

    def _value(self, value: Any) -> Any:
        return value


class TurnsNanIntoNull(_ChangesValues):
    fails, rule = "test_a_value_is_kept_exactly_or_refused[nan]", "EXACT"

    def _value(self, value: Any) -> Any:
        return None if value != value else value


class LosesTheSignOfZero(_ChangesValues):
    fails, rule = "test_a_partial_is_kept_exactly_or_refused[negative zero]", "EXACT"

    def _value(self, value: Any) -> Any:
        return value + 0.0 if isinstance(value, float) else value


class KeepsMilliseconds(_ChangesValues):
    fails, rule = "test_values_come_back_as_they_were[timestamp_ntz]", "EXACT"

    def _value(self, value: Any) -> Any:
        if not hasattr(value, "microsecond"):
            return value
        return value.replace(microsecond=value.microsecond // 1000 * 1000)


class CalculatesInDoubles(_ChangesValues):
    fails, rule = "test_values_come_back_as_they_were[long]", "EXACT"

    def _value(self, value: Any) -> Any:
        return int(float(value)) if type(value) is int and abs(value) < 2**62 else value


class _ChangesKeys(BrokenStore):
    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        stored = {tuple(map(self._key, key)): row for key, row in changes.items()}
        return super().replace(expected, ledger, stored)

    def _key(self, part: Any) -> Any:
        return self._text(part) if isinstance(part, str) else part

    _text: Callable[[str], str] = staticmethod(str)


class TrimsTrailingBlanks(_ChangesKeys):
    fails, rule = "test_keys_that_look_alike_are_different[trailing blanks]", "KEYS"
    _text = staticmethod(str.rstrip)


class IgnoresCase(_ChangesKeys):
    fails, rule = "test_keys_that_look_alike_are_different[case]", "KEYS"
    _text = staticmethod(str.lower)


class CutsLongKeys(_ChangesKeys):
    fails, rule = "test_keys_that_look_alike_are_different[700 characters]", "KEYS"
    _text = staticmethod(lambda text: text[:255])


class EndsAtNul(_ChangesKeys):
    fails, rule = "test_a_value_is_kept_exactly_or_refused[nul in keys]", "EXACT"
    _text = staticmethod(lambda text: text.partition("\0")[0])


class SharesATableBetweenStates(BrokenStore):
    fails, rule = "test_states_of_one_store_do_not_meet", "DURABLE"

    def __init__(self, store: MemoryStore, table: StateTable) -> None:
        super().__init__(store, replace(table, name="one for all"))


class MergesLikePuts(BrokenStore):
    """Sets what should be combined."""

    fails, rule = "test_aggregates_meet_what_is_stored", "COMBINE"

    def changed(self, rows: Rows, txid: int, writes: Writes, found: Standing) -> Changes:
        changes = super().changed(rows, txid, writes, found)
        if isinstance(writes, Merges) and not (self.table.kind == "transactional" and not changes):
            width = len(self.table.key)
            for record in zip(*(c.to_pylist() for c in writes.partials.columns), strict=True):
                row = changes.get(record[:width])
                if row is not None:
                    changes[record[:width]] = replace(row, current=record[width:])
        return changes
