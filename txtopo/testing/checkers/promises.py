"""The checkers, one class for each promise, which check the history of a simulation.

* C1 :class:`ExactCount`: each record counts in exactly one committed txid, and the states are the
  fold of the committed batches.
* C2 :class:`Prefix`: at every moment a reader sees the fold of batches 1 to *k*, and *k* never goes
  back.
* C3 :class:`TxidDiscipline`: ledgers advance by one group of txids, a redo has the same bounds,
  rows fit their ledger, and writes to ZooKeeper and the stores keep their order: the metadata of
  each attempt of a group before its commit, the commit in every store before ``current``.
* C4 :class:`OffsetChain`: in each partition a batch starts where the one before it ended. The batch
  of a transactional spout is the same in every attempt.
* C5 :class:`Zombies`: a deposed coordinator changes nothing, neither in a store nor in ZooKeeper.
* C6 :class:`Skew`: the states of a topology are at most one group apart, and equal at the end.
* C7 :class:`Undo`: when a later attempt of a group is written, nothing of the earlier one is left.
* C8 :class:`Liveness`: after the faults stop, everything is processed in bounded time, and nothing
  is left open.
* C10 :class:`TraceReplay`: a seed that runs again does the same at the same virtual times.
* C11 :class:`~txtopo.testing.checkers.commands.Commanded`: operators' commands were executed once,
  in order, by an entitled process, and their effect lasts.
* C12 :class:`Paced`: no committed batch is above the limit in its metadata, all attempts of a txid
  have the same limit, and in no time span more rows were planned than the rate allows.
* C13 :class:`PlannedStamps`: the stamp that a txid got when it was planned is the same in
  every attempt, both as stored and as passed to tasks; and planned time never goes back.
* C14 :class:`Together`: the states of one database, if it tells its identity, change at the same
  instant.
* C15 :class:`~txtopo.testing.checkers.switched.Switched`: a sequence of spouts switches once, after
  all before it was committed, and keeps the place where its second part begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from itertools import zip_longest
from types import MappingProxyType
from typing import Any

from txtopo.attempt import TransactionAttempt
from txtopo.context import EPOCH
from txtopo.state.ledger import Ledger
from txtopo.testing.checkers.evidence import (
    Evidence,
    TwoCuts,
    Violation,
    before,
    current_of,
    epoch_of,
    is_expiry,
    members_of,
    stored_attempt,
    stored_attempts,
    stored_pace,
    stored_stamp,
    visible,
)
from txtopo.testing.simulation.history import EmittedShare, History, NodesWrite, Record, StoreWrite
from txtopo.testing.simulation.source import PARTITIONS_APART
from txtopo.testing.simulation.topologies import Oracle, Rows

Batches = list[list[Record]]


class ExactCount:
    """C1: counts the records of the committed batches, and folds them."""

    name = "C1"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield records that are lost or doubled, and tables that differ from the fold."""
        batches: Batches = []
        for table in evidence.tables():
            try:
                batches = evidence.batches(table)
            except TwoCuts as error:
                yield Violation(self.name, f"table {table}: {error}")
                continue
            for what in [*self._count(evidence, batches), *_missing(evidence, batches)]:
                yield Violation(self.name, f"table {table}: {what}")
            stores, expected = evidence.history.stores, _fold(evidence.oracles[table], batches)
            got = visible(stores[table]) if table in stores else {}
            for _, expired in evidence.versions(table)[-1:]:
                got = {**expired, **got}
            if got != expected:
                yield Violation(self.name, f"table {table} holds {got}; expected {expected}")
        for name, found in evidence.outside.items():
            expected = _fold(evidence.oracles[name], batches)
            if found != expected:
                what = f"{name!r}, outside the states, holds {found}; expected {expected}"
                yield Violation(self.name, f"{what}; only states are written exactly once")

    def _count(self, evidence: Evidence, batches: Batches) -> Iterator[str]:
        if evidence.source is None:
            return
        source = evidence.source
        counted = Counter(record[:2] for batch in batches for record in batch)
        for partition in source.all_partitions:
            for offset in range(source.records):
                times = counted.pop((partition, offset), 0)
                if times != 1:
                    what = f"record {offset} of partition {partition} counted {times} times"
                    yield f"{what}; expected once"
        if counted:
            yield f"unknown records {sorted(counted)}"


class Prefix:
    """C2: compares every version of every table with the fold up to the txid of its ledger."""

    name = "C2"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield the first version of each table that differs from the fold."""
        for table in evidence.tables():
            yield from self._table(evidence, table)

    def _table(self, evidence: Evidence, table: str) -> Iterator[Violation]:
        held = len(evidence.base)
        before = after = _fold(evidence.oracles[table], list(map(list, evidence.base)))
        for write, expired in evidence.versions(table):
            ledger = write.after.ledger
            if ledger is None:
                continue
            where = f"table {table} at {write.at_s:.3f} s, written by {write.writer}, {ledger}"
            if ledger.first_txid == held + 1:
                held, before = ledger.txid, after
            elif ledger.txid != held:
                what = f"expected txid {held}, or a group that begins with the next"
                yield Violation(self.name, f"{where}: {what}")
                return
            members = [each for each in members_of(ledger) if each.txid > len(evidence.base)]
            try:
                batches = [evidence.batch(each, write.nodes) for each in members]
            except TwoCuts as error:
                yield Violation(self.name, f"{where}: {error}")
                return
            after = _fold(evidence.oracles[table], batches, before)
            seen = {**expired, **visible(write.after)}
            if seen != after:
                what = f"holds {seen}; expected {after}"
                yield Violation(self.name, f"{where}: {what}")
                return


class TxidDiscipline:
    """C3: compares each version of a table, and of ZooKeeper's nodes, with the previous one."""

    name = "C3"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every change that is not allowed."""
        durable = set(evidence.history.lost_attempts)
        for write in evidence.history.writes:
            if isinstance(write, StoreWrite):
                found = [*self._store(write), *self._metadata(write, durable)]
            else:
                durable |= stored_attempts(evidence.topology_id, write)
                found = list(self._nodes(evidence, write))
            for what in found:
                yield Violation(self.name, f"at {write.at_s:.3f} s by {write.writer}: {what}")

    def _metadata(self, write: StoreWrite, durable: set[TransactionAttempt]) -> Iterator[str]:
        """Yield an attempt that was committed although its metadata had never been stored."""
        earlier, after = write.before.ledger, write.after.ledger
        if after is None or not after.txid or (earlier and earlier.writer == after.writer):
            return
        for each in members_of(after):
            if each not in durable:
                yield f"table {write.table} holds attempt {each}, whose metadata was not stored"

    def _store(self, write: StoreWrite) -> Iterator[str]:
        before, after = write.before.ledger, write.after.ledger
        if after is None:
            yield f"table {write.table} lost its ledger"
            return
        bounds_before = _bounds(before) if before is not None else (0, 0)
        bounds = _bounds(after)
        if bounds != bounds_before and bounds[0] != bounds_before[1] + 1:
            yield f"the ledger of {write.table} went from txids {bounds_before} to {bounds}"
        if before is not None and after.epoch < before.epoch:
            yield f"the ledger of {write.table} went from epoch {before.epoch} to {after.epoch}"
        if before is not None and after.txid == before.txid and after.writer < before.writer:
            yield f"table {write.table} went from attempt {before.writer} back to {after.writer}"
        rows, within = write.after.rows.items(), range(*bounds)
        odd = [key for key, row in rows if row.txid > after.txid or row.txid in within]
        if odd:
            yield f"rows {odd} of {write.table} are ahead of, or within, its txids {bounds}"
        yield from self._previous(write, after.txid)
        if is_expiry(write):
            yield from self._expiry(write, after)

    def _expiry(self, write: StoreWrite, ledger: Ledger) -> Iterator[str]:
        """Yield rows that were changed or added, or that the last group had written."""
        before, after = write.before.rows, write.after.rows
        wrong = [key for key, row in after.items() if before.get(key) != row]
        if wrong:
            yield f"rows {wrong} of {write.table} changed while others expired"
        needed = [key for key in before.keys() - after.keys() if before[key].txid >= ledger.txid]
        if needed:
            yield f"rows {needed} of {write.table} expired that the last group had written"

    def _previous(self, write: StoreWrite, txid: int) -> Iterator[str]:
        """Yield rows whose previous value is not what they were before this txid."""
        earlier = write.before.ledger
        if earlier is None or txid == earlier.txid or not _keeps_previous(write):
            return
        seen = visible(write.before)
        for key, row in write.after.rows.items():
            if row.txid != txid:
                continue
            if before(row) != seen.get(key):
                was = f"says that it was {before(row)} before txid {txid}; it was {seen.get(key)}"
                yield f"row {key} of {write.table} {was}"

    def _nodes(self, evidence: Evidence, write: NodesWrite) -> Iterator[str]:
        id = evidence.topology_id
        before, after = current_of(id, write.before), current_of(id, write.after)
        skipped = [t for t in range(before, after) if stored_attempt(id, write.before, t) is None]
        if after < before or skipped:
            yield f"current went from {before} to {after}; no metadata was stored of {skipped}"
        for table, contents in write.stores.items():
            bounds = _bounds(contents.ledger) if contents.ledger is not None else (0, 0)
            if after - 1 > bounds[1]:
                yield f"ZooKeeper says that txid {after - 1} is committed; {table} holds {bounds}"
            elif after != before and contents.ledger is not None:
                if bounds != (before, after - 1):
                    yield f"current went from {before} to {after}; {table} holds txids {bounds}"
                for each in members_of(contents.ledger):
                    stored = stored_attempt(id, write.before, each.txid)
                    if each != stored:
                        done = f"txid {each.txid} is done; {table} holds {each}"
                        yield f"{done}, ZooKeeper the cut of {stored}"
        if after > 1 and stored_attempt(id, write.after, after - 1) is None:
            yield f"the metadata of txid {after - 1} is gone; txid {after} starts from it"


class OffsetChain:
    """C4: follows the offsets of the committed batches, partition by partition."""

    name = "C4"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield the first gap or overlap of each table. It needs a source with known offsets."""
        if evidence.source is None:
            return
        for table in evidence.tables():
            yield from self._table(evidence, table)
        yield from self._repeats(evidence)

    def _repeats(self, evidence: Evidence) -> Iterator[Violation]:
        first: dict[tuple[int, int], EmittedShare] = {}
        for attempt, emissions in evidence.history.emissions.items():
            for emission in emissions:
                if emission.share // PARTITIONS_APART not in evidence.repeatable:
                    continue
                known = first.setdefault((attempt.txid, emission.share), emission)
                if known.records != emission.records:
                    yield Violation(
                        self.name,
                        f"share {emission.share} of txid {attempt.txid} was {known.records}; "
                        f"attempt {attempt} made it {emission.records}; its plan was not durable",
                    )
                    return

    def _table(self, evidence: Evidence, table: str) -> Iterator[Violation]:
        ends: dict[int, int] = {}
        try:
            batches = evidence.batches(table)
        except TwoCuts as error:
            yield Violation(self.name, f"table {table}: {error}")
            return
        for txid, batch in enumerate(batches, 1):
            for partition, offset, *_ in sorted(batch):
                if offset != ends.get(partition, 0):
                    yield Violation(
                        self.name,
                        f"table {table}: txid {txid} has offset {offset} of partition {partition} "
                        f"where {ends.get(partition, 0)} was expected",
                    )
                    return
                ends[partition] = offset + 1


class Paced:
    """C12: compares committed batches with the limits that ZooKeeper had for them."""

    name = "C12"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield batches above their limit, limits that change, and time spans above the rate."""
        if not evidence.limited:
            return
        paces: dict[int, dict[str, Any]] = {}
        for write in evidence.history.writes:
            if not isinstance(write, NodesWrite):
                continue
            for attempt in stored_attempts(evidence.topology_id, write):
                pace = stored_pace(evidence.topology_id, write.after, attempt.txid)
                if pace is None:
                    yield Violation(self.name, f"attempt {attempt} was stored without a limit")
                elif paces.setdefault(attempt.txid, pace) != pace:
                    was = f"the limit of txid {attempt.txid} was {paces[attempt.txid]}"
                    yield Violation(self.name, f"{was}; attempt {attempt} made it {pace}")
        for table in evidence.tables():
            yield from self._table(evidence, table, paces)

    def _table(
        self, evidence: Evidence, table: str, paces: dict[int, dict[str, Any]]
    ) -> Iterator[Violation]:
        taken: list[tuple[float, int]] = []
        try:
            batches = evidence.batches(table)
        except TwoCuts:
            return  # another checker reports it
        for txid, batch in enumerate(batches, 1):
            if txid <= len(evidence.base):
                continue
            pace = paces.get(txid, {"rows_max": {}})
            limits = pace["rows_max"]
            by_partition = Counter(record[0] for record in batch)
            by_spout = Counter(record[0] // PARTITIONS_APART for record in batch)
            over = [
                spout
                for number, spout in enumerate(evidence.spouts)
                if _is_over(limits.get(spout, 0), number, by_spout[number], by_partition)
            ]
            if over:
                yield Violation(
                    self.name,
                    f"table {table}: txid {txid} has {by_partition}; its limits are {limits}",
                )
                return
            taken.append((pace.get("at_s", 0.0), len(batch)))
        if evidence.rows_per_second is not None:
            yield from self._spans(table, taken, evidence.rows_per_second)

    def _spans(
        self, table: str, taken: list[tuple[float, int]], rate: float
    ) -> Iterator[Violation]:
        for at, (begin_s, _) in enumerate(taken):
            rows = 0
            for end_s, more in taken[at:]:
                rows += more
                # Times are stored in milliseconds.
                allowed = rate * (end_s - begin_s + 0.002) + max(rate, 1.0) + 0.01
                if rows > allowed:
                    span = f"{rows} rows were planned within {end_s - begin_s:.3f} s"
                    yield Violation(self.name, f"table {table}: {span}; {allowed:g} are allowed")
                    return


def _is_over(
    limit: int | list[int], number: int, rows: int, by_partition: Mapping[int, int]
) -> bool:
    """Return whether a batch has more rows of a spout, or of a partition, than is allowed."""
    if not isinstance(limit, list):
        return rows > limit
    first = number * PARTITIONS_APART
    return rows > sum(limit) or any(
        by_partition.get(first + at, 0) > most for at, most in enumerate(limit)
    )


class PlannedStamps:
    """C13: compares the stamps of attempts at a txid, and the times of txids."""

    name = "C13"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield stamps that change, tasks that got another time, and times that go back."""
        known: dict[int, dict[str, Any]] = {}
        for write in evidence.history.writes:
            if not isinstance(write, NodesWrite):
                continue
            for attempt in sorted(stored_attempts(evidence.topology_id, write)):
                stamp = stored_stamp(evidence.topology_id, write.after, attempt.txid)
                told = evidence.history.times.get(attempt, set())
                if stamp is None:
                    if attempt.txid in known or told:
                        yield Violation(self.name, f"attempt {attempt} was stored without a stamp")
                    continue
                if known.setdefault(attempt.txid, stamp) != stamp:
                    was = f"the stamp of txid {attempt.txid} was {known[attempt.txid]}"
                    yield Violation(self.name, f"{was}; attempt {attempt} made it {stamp}")
                if told - {EPOCH + timedelta(milliseconds=stamp["time"])}:
                    what = f"attempt {attempt} was stored with {stamp}; its tasks were told {told}"
                    yield Violation(self.name, what)
        for txid, stamp in known.items():
            before = known.get(txid - 1, stamp)
            if stamp["time"] < before["time"]:
                back = f"txid {txid} was planned at {stamp['time']} ms, before {before['time']} ms"
                yield Violation(self.name, f"{back} of the previous txid")


class Zombies:
    """C5: compares the epoch of each writer with the claimed one."""

    name = "C5"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every write of a deposed coordinator."""
        epochs: dict[str, int] = {}
        for write in evidence.history.writes:
            if isinstance(write, StoreWrite):
                before, after = write.before.ledger, write.after.ledger
                epoch = 0 if after is None else after.epoch
                wrote = after is not None and (before is None or before.writer != after.writer)
                # An added state begins at a txid that nobody has written to it.
                if wrote and after is not None and after.attempts and after.writer_epoch != epoch:
                    yield Violation(
                        self.name,
                        f"{write.writer} wrote attempt {after.writer} to table {write.table}, "
                        f"which epoch {after.epoch} has claimed",
                    )
                writer = epochs.get(write.writer, 0)
                if is_expiry(write) and after is not None and writer != after.epoch:
                    yield Violation(
                        self.name,
                        f"{write.writer} of epoch {writer} deleted what had expired in table "
                        f"{write.table}, which epoch {after.epoch} has claimed",
                    )
                continue
            before_epoch = epoch_of(evidence.topology_id, write.before)
            after_epoch = epoch_of(evidence.topology_id, write.after)
            if after_epoch != before_epoch:
                epochs[write.writer] = after_epoch
            if epochs.get(write.writer, 0) != after_epoch and not _only_asks(write):
                yield Violation(
                    self.name,
                    f"{write.writer} of epoch {epochs.get(write.writer, 0)} wrote to ZooKeeper in "
                    f"epoch {after_epoch}",
                )


def _only_asks(write: NodesWrite) -> bool:
    """Return whether a write only adds a command. Clients send commands without an epoch."""
    changed = [path for path, node in write.after.items() if write.before.get(path) is not node]
    gone = write.before.keys() - write.after.keys()
    return not gone and all("/commands/" in path and path not in write.before for path in changed)


class Skew:
    """C6: compares the ledgers of all tables at each write."""

    name = "C6"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every moment at which they are more than one group apart."""
        held = dict.fromkeys(evidence.tables(), (len(evidence.base),) * 2)
        for write in evidence.store_writes():
            ledger = write.after.ledger
            if write.table not in held or ledger is None:
                continue
            held[write.table] = _bounds(ledger)
            behind = min(last for _, last in held.values())
            ahead = {bounds for bounds in held.values() if bounds[1] > behind}
            if len(ahead) > 1 or any(first != behind + 1 for first, _ in ahead):
                yield Violation(self.name, f"at {write.at_s:.3f} s the tables hold txids {held}")
        if len(set(held.values())) > 1:
            yield Violation(self.name, f"at the end the tables hold txids {held}")


class Undo:
    """C7: follows each key when a group is redone in an opaque state."""

    name = "C7"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield every key that still has the value of an abandoned attempt."""
        for write in evidence.store_writes():
            earlier, ledger = write.before.ledger, write.after.ledger
            if earlier is None or ledger is None or not ledger.txid:
                continue
            if ledger.txid == earlier.txid and ledger.writer != earlier.writer:
                for what in _left(write):
                    yield Violation(self.name, what)


class Liveness:
    """C8: checks how runs ended, and what is left."""

    name = "C8"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield what is left, and runs that ended with an unexpected error."""
        for what in evidence.leftovers:
            yield Violation(self.name, what)
        for ended in evidence.history.endings:
            if ended.error is not None and not isinstance(ended.error, evidence.expected):
                yield Violation(
                    self.name,
                    f"the run of {ended.process} ended at {ended.at_s:.3f} s with {ended.error!r}",
                )


class Together:
    """C14: compares states that must share a transaction, after each commit.

    Those are the states of a term to which one store told its identity. Claims and operators write
    states one by one; they ask no store for it.
    """

    name = "C14"

    def check(self, evidence: Evidence) -> Iterator[Violation]:
        """Yield each commit after which one of them holds another attempt."""
        for write in evidence.store_writes():
            earlier, ledger = write.before.ledger, write.after.ledger
            if ledger is None or (earlier is not None and earlier.writer == ledger.writer):
                continue
            held = {table: write.stores[table].ledger for table in write.together}
            if any(other is None or other.writer != ledger.writer for other in held.values()):
                what = f"at {write.at_s:.3f} s, after a write of {write.table} by {write.writer}"
                yield Violation(self.name, f"{what}, states of one transaction hold {held}")


class TraceReplay:
    """C10: compares the traces of two runs of one scenario."""

    name = "C10"

    def compare(self, first: History, again: History) -> Iterator[Violation]:
        """Yield a violation for the first line that differs."""
        for number, (one, other) in enumerate(zip_longest(first.lines(), again.lines())):
            if one != other:
                what = f"line {number} of the trace was {one!r}; run again it is {other!r}"
                yield Violation(self.name, what)
                return


def _bounds(ledger: Ledger) -> tuple[int, int]:
    """Return the first and the last txid of the group that a state took last."""
    return ledger.first_txid, ledger.txid


def _fold(oracle: Oracle, batches: Batches, before: Rows = MappingProxyType({})) -> Rows:
    rows = before
    for batch in batches:
        rows = oracle(rows, batch)
    return rows


def _missing(evidence: Evidence, batches: Batches) -> Iterator[str]:
    if evidence.records is None:
        return
    counted = Counter(record for batch in batches for record in batch)
    expected = Counter(evidence.records)
    if counted != expected:
        lost, more = (
            sorted((expected - counted).elements()),
            sorted((counted - expected).elements()),
        )
        yield f"the committed batches lack {lost!r:.300} and have {more!r:.300} too many"


def _keeps_previous(write: StoreWrite) -> bool:
    """Return whether the table is opaque, which its rows show once a row was written twice."""
    return any(row.previous_txid is not None for row in write.after.rows.values())


def _left(write: StoreWrite) -> Iterator[str]:
    assert write.after.ledger is not None
    txid = write.after.ledger.txid
    rows = write.before.rows
    if not any(row.previous_txid is not None for row in rows.values()):
        return  # a transactional state, which keeps no earlier values
    for key, row in rows.items():
        if row.txid != txid:
            continue
        now = write.after.rows.get(key)
        again = now is not None and now.txid == txid
        got = before(now) if again and now is not None else visible(write.after).get(key)
        if got != before(row):
            yield (
                f"key {key} of {write.table} was {before(row)} before txid {txid}; an attempt "
                f"wrote {row.current}; the next one, {write.after.ledger.writer}, starts from {got}"
            )
