"""How fast a cluster is that we do not have: a formula, and the same cluster in virtual time.

Both take the costs that ``python -m benchmarks.scale`` has measured. A txid goes through

1. the driver's Python: plan, orders to the slots, answers from them, its commit phase. It computes
   one thing at a time, so it is a resource of one;
2. the driver's JVM: the embedded ZooKeeper and, on the carrier ``rdd``, Spark's scheduler. It is
   taken as a resource of one as well, although it has several threads: so its rate is the least
   that it does;
3. the executors: each slot takes its share of the records, and a constant cost of its order;
4. the store: one write of a group of txids at a time.

The formula says what each of the four can do, and takes the least::

    driver       1 / (driver_txid + driver_slot · E + driver_keys · k/1000)
    driver's JVM 1 / (jvm_txid + jvm_slot · E)
    executors    1 / (worker_order + worker_record · R / E)
    store        1 / (store_write / g + store_keys · k/1000)

in txids a second, with E executors of one core, R records a txid, k partial results of a txid that
reach the driver, and g txids in a group. While one group is written, the next one waits in the
same window: the two of them have as many txids as may be in flight, so g is half of that at most.
The formula knows nothing of waiting: the simulation does.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of one processor; those of ``_keys`` are for 1,000 partial results.

    Attributes:
        driver_txid: Of the driver, for each txid.
        driver_slot: Of the driver, for each order that it sends and answer that it gets.
        driver_keys: Of the driver, for partial results.
        jvm_txid: Of the driver's JVM, for each txid.
        jvm_slot: Of the driver's JVM, for each order.
        worker_order: Of a slot, for each order.
        worker_record: Of a slot, for each record: the work of the bolt, and what it takes to bring
            the record there.
        store_write: Of the store, for each write of a group.
        store_keys: Of the store, for partial results.
    """

    driver_txid: float
    driver_slot: float
    driver_keys: float
    jvm_txid: float
    jvm_slot: float
    worker_order: float
    worker_record: float
    store_write: float
    store_keys: float


@dataclass(frozen=True, slots=True)
class Load:
    """What a topology has to do.

    Attributes:
        records: Records of a txid.
        keys: Partial results of a txid that reach the driver. A key is one for each slot that has
            seen it, at the most.
        pending: Txids in flight.
        group: Txids that may be committed together.
    """

    records: int
    keys: int
    pending: int = 30
    group: int = 30

    @property
    def grouped(self) -> float:
        """Txids in a group on the average, if the store is busy all the time."""
        return max(1.0, min(self.group, self.pending / 2))


def rates(costs: Costs, load: Load, executors: int) -> dict[str, float]:
    """Return the txids a second that each part can do. The least is the rate of all."""
    keys = load.keys / 1000
    took_s = {
        "driver": costs.driver_txid + costs.driver_slot * executors + costs.driver_keys * keys,
        "driver's JVM": costs.jvm_txid + costs.jvm_slot * executors,
        "executors": costs.worker_order + costs.worker_record * load.records / executors,
        "store": costs.store_write / load.grouped + costs.store_keys * keys,
    }
    # What costs nothing measurable is never the bottleneck.
    return {part: 1 / max(s, 1e-12) for part, s in took_s.items()}


def saturated(costs: Costs, load: Load, executors: int) -> tuple[float, str]:
    """Return the rate of all in txids a second, and the part that is busy all the time."""
    found = rates(costs, load, executors)
    part = min(found, key=lambda name: found[name])
    return found[part], part


def simulated(costs: Costs, load: Load, executors: int, txids: int = 2000) -> float:
    """Return the txids a second of a cluster in virtual time.

    The driver does one thing at a time, in the order in which they come: it sends the orders of a
    txid, takes an answer, or prepares a commit. Its JVM does its part between a plan and the
    orders. A slot has one order at a time, and as many wait for it as there are txids in flight.
    """
    cluster = _Cluster(costs, load, executors, txids)
    return txids / cluster.run()


class _Cluster:
    def __init__(self, costs: Costs, load: Load, executors: int, txids: int) -> None:
        self.costs, self.load, self.executors, self.txids = costs, load, executors, txids
        self.events: list[tuple[float, int, str, int]] = []
        self.number = 0
        self.driver_free = self.jvm_free = 0.0
        self.slots_free = [0.0] * executors
        self.missing = dict.fromkeys(range(1, txids + 1), executors)
        self.planned, self.committed, self.writing = 0, 0, 0

    def run(self) -> float:
        """Commit all txids; return the seconds that it took."""
        now = 0.0
        self.plan(now)
        while self.events:
            now, _, what, number = heapq.heappop(self.events)
            getattr(self, what)(now, number)
        return now

    def later(self, at_s: float, what: str, number: int) -> None:
        self.number += 1
        heapq.heappush(self.events, (at_s, self.number, what, number))

    def drive(self, now: float, cost_s: float) -> float:
        """Return when the driver has done something that it is asked for now."""
        self.driver_free = max(now, self.driver_free) + cost_s
        return self.driver_free

    def plan(self, now: float) -> None:
        """Plan txids up to the end of the window."""
        while self.planned < min(self.txids, self.committed + self.load.pending):
            self.planned += 1
            sent = (self.costs.driver_txid + self.costs.driver_slot * self.executors) / 2
            jvm = self.costs.jvm_txid + self.costs.jvm_slot * self.executors
            self.jvm_free = max(self.drive(now, sent), self.jvm_free) + jvm
            self.later(self.jvm_free, "sent", self.planned)

    def sent(self, now: float, txid: int) -> None:
        """Let each slot compute its share."""
        share = self.load.records / self.executors
        work = self.costs.worker_order + self.costs.worker_record * share
        for slot, free in enumerate(self.slots_free):
            self.slots_free[slot] = max(now, free) + work
            self.later(self.slots_free[slot], "answered", txid)

    def answered(self, now: float, txid: int) -> None:
        """Take an answer of a slot."""
        self.later(self.drive(now, self.costs.driver_slot / 2), "taken", txid)

    def taken(self, now: float, txid: int) -> None:
        """Begin the commit when the last answer of the lowest txid is there."""
        self.missing[txid] -= 1
        self.commit(now)

    def commit(self, now: float) -> None:
        """Commit those that are complete, if no other group is being written."""
        if self.writing:
            return
        last = self.committed
        while last < self.planned and last - self.committed < self.load.group:
            if self.missing[last + 1]:
                break
            last += 1
        if last == self.committed:
            return
        self.writing, txids = last, last - self.committed
        keys = self.load.keys / 1000
        ready = self.drive(
            now, txids * (self.costs.driver_txid / 2 + self.costs.driver_keys * keys)
        )
        store = self.costs.store_write + txids * self.costs.store_keys * keys
        self.later(ready + store, "written", last)

    def written(self, now: float, txid: int) -> None:
        """Advance."""
        self.committed, self.writing = txid, 0
        self.plan(now)
        self.commit(now)
