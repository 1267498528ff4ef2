"""Stages of transactional topologies in resident slots: what is told to whom.

* **The driver** takes a run through the levels of its chain. At each level every slot is given one
  *order*: the run, the level, and the envelopes that the level before sent to this slot. It runs
  the usual stage function and *answers* with what that yields. When all slots have answered, the
  driver hands the envelopes on, unread, to the next level. It keeps what the last level left, the
  cut for a commit in tasks too.
* **By way of the driver, not from slot to slot**: an envelope takes one hop more, half a
  millisecond, and passes through the driver's memory. But then nothing is under way between slots
  when one of them dies; a late envelope of an abandoned run cannot exist; and the cut outlives
  the slots. Topologies that shuffle much more than they bring to the driver are better off with the
  carrier ``rdd``.
* **A slot does one order at a time** and knows of no other: the rest wait in the driver, commits
  first, then lower txids. So what can be lost with a slot is one order, and a run that is
  cancelled has at most one order in each slot. If that is not done within ``CANCEL_S``, the
  slot's job is cancelled, which kills its worker and with it user code that hangs.
* **Bounds.** ``Config.jobs_max`` runs process at once and one batch commits. The envelopes of one
  level of each are in the memory of driver and slots; what waits for its commit afterwards counts
  towards ``Config.driver_bytes_max``.
* **A lost slot** fails the chain whose order it was doing, as a lost Spark job does: it counts
  towards ``attempts_max`` if the slot's job ends because a Python worker died, and not if the
  connection or an executor was lost. On a cluster Spark tries a task again by itself, up to
  ``spark.task.maxFailures`` times in the life of a job, and only the last of them ends it. A lost
  connection may be only the first sign of a dead worker, so the reason is waited for, ``REASON_S``.
  Orders that were waiting are done by the next life, unless two jobs in a row bring none.
* **Nothing can be doubled.** An order has a number of its own, which signs all that it makes; the
  driver takes one answer for it, from the life that was given it, while its chain is waited for.
  Whatever else a slot computed is heard by nobody, and wrote nowhere: states are written by the
  driver alone, in one store transaction an attempt.
"""

from __future__ import annotations

from dataclasses import dataclass

from txtopo.stages.pickling import loads, pack
from txtopo.stages.program import Chain, Run

Record = tuple[int, bytes]
"""(address, payload)."""


@dataclass(frozen=True, slots=True)
class StageOrder:
    """What a slot is to compute.

    Attributes:
        number: Its number; no other order of the topology's start has it.
        chain: The chain.
        run: The run.
        level: The level.
    """

    number: int
    chain: Chain
    run: Run
    level: int


def pack_answer(number: int, records: list[Record]) -> list[bytes]:
    """Return an answer as it travels: payloads as they are, one frame each."""
    return [pack((number, [address for address, _ in records])), *(each for _, each in records)]


def unpack_answer(frames: list[bytes]) -> tuple[int, list[Record]]:
    """Return (number of the order, what its stage yielded)."""
    number, addresses = loads(frames[0])
    return number, list(zip(addresses, frames[1:], strict=True))
