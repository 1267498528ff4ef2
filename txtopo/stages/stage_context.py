"""StageContext: one level of a run in one slot, and the addresses of the records that it sends.

A *record* is an envelope, a manifest or a chunk, as bytes. Carriers move records by *address*:

* between two levels an address is the number of a slot; where all tuples stay in their slot
  (``CompiledTopology.staying``), carriers need not move them;
* the last level sends to ``DRIVER``, which is 0;
* the last level of the processing phase also sends the handover, if the commit phase runs in tasks.
  The handover of the i-th attempt of the run for a slot has the address ``1 + i * slots + slot``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from txtopo.stages.compiled_topology import Chain, CompiledTopology, PlannedEdge, Run
from txtopo.stages.envelopes import Producer

DRIVER = 0
"""The address of the driver, in what the last level of a chain sends."""

Record = tuple[int, bytes]
"""(address, record)."""

ByAddress = dict[int, list[bytes]]
"""Records by their address."""

ChainLevel = tuple[Chain, int]
"""A level of a chain."""


@dataclass(frozen=True, slots=True)
class RunLevel:
    """One level of a run, in whatever slot. Carriers send it to all of their slots.

    Attributes:
        chain: Whether it is a level of the processing phase or of the commit phase.
        run: The run; for the commit phase ``run.only(attempt)``.
        level: Number of the level in its chain.
    """

    chain: Chain
    run: Run
    level: int

    @property
    def tag(self) -> str:
        """The tag of the job that computes this level."""
        return self.run.tag_of(self.chain)

    def in_slot(self, compiled: CompiledTopology, slot: int, task_id: int) -> StageContext:
        """Return this level in one slot; see :class:`StageContext`."""
        return StageContext(self.chain, self.run, self.level, compiled, slot, task_id)


@dataclass(frozen=True, slots=True)
class StageContext(RunLevel):
    """One level of a run in one slot, as one task computes it.

    Attributes:
        compiled: The topology.
        slot: Number of the slot.
        task_id: Id of the task attempt. A task that is run again has another id.
    """

    compiled: CompiledTopology
    slot: int
    task_id: int

    @property
    def producer(self) -> Producer:
        """The name that this stage puts on the records that it makes."""
        return Producer(self.chain, self.level, self.slot, self.task_id)

    @property
    def last(self) -> bool:
        """Whether this is the last level of its chain."""
        return self.level == len(self.compiled.levels_of(self.chain)) - 1

    @property
    def sends_handover(self) -> bool:
        """Whether this stage sends the handover for a commit phase in tasks."""
        return self.last and self.chain == "processing" and not self.compiled.commit_in_driver

    @property
    def above(self) -> ChainLevel:
        """The level whose manifests this stage reads; the commit phase begins with the handover."""
        if self.level or self.chain == "processing":
            return self.chain, self.level - 1
        return "processing", len(self.compiled.levels_of("processing")) - 1

    @property
    def senders(self) -> range:
        """The slots of the level above, each of which sends this stage a manifest."""
        chain, level = self.above
        if chain == "processing" == self.chain and level in self.compiled.staying:
            return range(self.slot, self.slot + 1)
        return range(self.compiled.slots_of(chain))

    @property
    def addresses(self) -> range:
        """All addresses that this stage sends a manifest to."""
        if self.chain == "processing" and self.level in self.compiled.staying:
            return range(self.slot, self.slot + 1)
        if not self.last:
            return range(self.compiled.slots_of(self.chain))
        if self.sends_handover:
            return range(HandoverAddresses(self.run, self.compiled.slots).count)
        return range(DRIVER, DRIVER + 1)

    def address_of(self, edge: PlannedEdge, to_slot: int, txid: int) -> int:
        """Return the address of an envelope: where it goes next on its way along an edge."""
        if not self.last:
            next_level = edge.chain == self.chain and edge.level == self.level + 1
            return to_slot if next_level else self.slot
        if edge.chain is None or not self.sends_handover:
            return DRIVER
        return HandoverAddresses(self.run, self.compiled.slots).of(txid)[to_slot]

    def tasks(self, tasks: int) -> range:
        """Return the tasks of a component that live in this slot, out of all its tasks."""
        return range(self.slot, tasks, self.compiled.slots_of(self.chain))


@dataclass(frozen=True, slots=True)
class HandoverAddresses:
    """Addresses of the handover that a run leaves for a commit phase in tasks.

    Attributes:
        run: The run.
        slots: Number of slots.
    """

    run: Run
    slots: int

    @property
    def count(self) -> int:
        """The number of addresses, with that of the driver."""
        return 1 + len(self.run.attempts) * self.slots

    def of(self, txid: int) -> range:
        """Return the addresses of one attempt's handover, one for each slot."""
        first = 1 + (txid - self.run.attempts[0].txid) * self.slots
        return range(first, first + self.slots)


def by_address(records: Iterable[Record]) -> ByAddress:
    """Group records by their address, in the order in which they came."""
    grouped: ByAddress = {}
    for address, record in records:
        grouped.setdefault(address, []).append(record)
    return grouped
