"""SlotCarrier: what hosts slots that live long and moves envelopes to them. The border to build on.

The driver knows slots by number. The carrier brings each to life, moves envelopes to it, from the
driver and from other slots, and tells the driver of everything that happens. Promises:

1. All calls come from the driver's loop and return at once; all calls of the listener are made on
   the loop.
2. A work takes as long as its bolts do, and what comes of it leaves in parts while it goes on: the
   carrier beats the slot's pulse, and hands on each part, envelopes first, whatever ``execute``
   does next. A slot's reports come in the order in which it made them, those of its current *life*
   only. A life begins with ``ready`` and ends with ``lost``; the number of a life grows. A slot
   that comes to life again anywhere, because it died or seemed dead, cuts its earlier lives off: a
   report of an earlier life is never told. (An envelope of an earlier life may still arrive: that
   is harmless.)
3. An envelope arrives once or not at all, in a life of its slot. What was sent to a slot before
   ``lost`` was told may be dropped; what is sent later arrives in the next life. A lost envelope is
   not missed by anyone here: its trees time out.
4. What is sent is never refused and nobody waits: the driver looks after the backlog, see
   :mod:`txtopo.stages.anchoring`. It adds up what reports say was consumed and sent to whom,
   starts from zero when a slot is lost, and takes what gets below zero for zero. So a carrier
   leaves out of a report's *sent* what it knows to be lost: tuples for an earlier life of their
   receiver; they would keep spouts waiting for ever.
5. User code that raises is a *crash* in a report, and ends the run. A slot that cannot be brought
   to life is told as ``lost`` again and again.
6. A slot runs on one thread from ``prepare`` to ``cleanup``, and gives its bolts their ticks from a
   clock of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from txtopo.stages.anchoring.envelope import Report
from txtopo.stages.anchoring.sending import Sealed
from txtopo.stages.program import Program


class SlotListener(Protocol):
    """Who is told of slots: the driver."""

    def slot_ready(self, slot: int) -> None:
        """Take note that a slot has come to life; its bolts are prepared."""
        ...

    def slot_reported(self, slot: int, report: Report) -> None:
        """Take in a report."""
        ...

    def slot_lost(self, slot: int, reason: str) -> None:
        """Take note that a slot is gone, with its bolts' memory; another life will follow."""
        ...


class SlotCarrier(Protocol):
    """Hosts the slots of one run."""

    def start(self, program: Program, listener: SlotListener) -> None:
        """Bring all slots to life."""
        ...

    def send(self, sealed: list[Sealed]) -> None:
        """Send envelopes of the driver to their slots."""
        ...

    def stop(self, done: Callable[[], None]) -> None:
        """Let the bolts clean up and the slots end, then call *done*.

        Nothing is told any more but the report of each ``cleanup``, with its complaints.
        """
        ...
