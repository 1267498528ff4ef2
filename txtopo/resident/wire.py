"""The wire format between the driver and the slots: a kind, a slot, and a payload. No sockets.

Payloads are pickled: both ends are this program, and no one else has the keys of the connection.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace

from txtopo.reliable.anchoring.envelope import Complaint, FailedTrees, SlotReport
from txtopo.stages.pickling import loads, pack
from txtopo.stages.stage_context import Record, RunLevel
from txtopo.stages.user_errors import pickled_error, traceback_of, unpickled_error

# From a slot. Hello: where it listens. Report: a WireReport about its work. News: a WireReport
# about its spouts only. Answer: number and addresses, then records. Bye: a WireReport about its
# cleanup, answered by END.
HELLO, READY, REPORT, NEWS, ANSWER, BYE = b"h", b"r", b"p", b"n", b"a", b"b"
# To a slot. Welcome: the number of its life. Directory: a Neighbour for each slot. Grant: what its
# spouts may emit. Stage: a number, levels, then records. Cut off: DORMANT or RETURN.
WELCOME, DIRECTORY, GRANT, STAGE = b"w", b"d", b"g", b"s"
PING, CUT_OFF, END = b"i", b"c", b"x"
# DORMANT: another task of the same job has the slot. If this one returned, Spark would stop that
# task.
DORMANT = b"1"
RETURN = b"0"

Neighbour = tuple[int, str | None]
"""(life, endpoint); the endpoint is None if the life has not begun yet."""
Sent = dict[tuple[int, int], int]
"""Tuples by (slot, life) of the receiver."""

_SLOT = struct.Struct("<i")
_LIVES = struct.Struct("<qq")
_NUMBER = struct.Struct("<q")


@dataclass(frozen=True, slots=True)
class WireReport:
    """A slot's report of a work, in the form in which it travels.

    Attributes:
        report: The report; its *consumed* and *sent* are not used.
        sent: Number of sent tuples, by slot and life of the receiver.
        consumed: Number of consumed tuples, by the life of their sender.
    """

    report: SlotReport
    sent: Sent
    consumed: dict[int, int]


def new_identity(submission: int) -> bytes:
    """Return a new identity for a task of a slot's job."""
    return os.urandom(12) + _SLOT.pack(submission)


def submission_of(identity: bytes) -> int:
    """Return the number of the job of a slot that a task belongs to."""
    submission: int = _SLOT.unpack(identity[12:])[0]
    return submission


def slot_frame(slot: int) -> bytes:
    """Return the frame with a slot's number."""
    return _SLOT.pack(slot)


def slot_of(frame: bytes) -> int:
    """Read the number of a slot."""
    slot: int = _SLOT.unpack(frame)[0]
    return slot


def lives_frame(receiver: int, sender: int) -> bytes:
    """Return the frame with the lives of both slots, which precedes an envelope or answers."""
    return _LIVES.pack(receiver, sender)


def lives_of(frame: bytes) -> tuple[int, int]:
    """Read (life of the receiver, life of the sender)."""
    receiver, sender = _LIVES.unpack(frame)
    return receiver, sender


def pack_report(wired: WireReport) -> bytes:
    """Pack a report. Errors and message ids that cannot be pickled become text."""
    report = wired.report
    complaints = [_packed(each) for each in report.complaints]
    crash = None if report.crash is None else _packed(report.crash)
    plain = replace(report, complaints=[], crash=None)
    if plain.spouts is not None:
        plain.spouts.failed = [_picklable(trees) for trees in plain.spouts.failed]
    return pack((plain, complaints, crash, wired.sent, wired.consumed))


def unpack_report(packed: bytes) -> WireReport:
    """Read what :func:`pack_report` made."""
    report, complaints, crash, sent, consumed = loads(packed)
    report.complaints = [_unpacked(each) for each in complaints]
    report.crash = None if crash is None else _unpacked(crash)
    return WireReport(report, sent, consumed)


def _picklable(trees: FailedTrees) -> FailedTrees:
    try:
        pack(trees.messages)
    except Exception:  # noqa: BLE001 - a message id is any object of the user
        return trees._replace(messages=[repr(each) for each in trees.messages])
    return trees


_Packed = tuple[str, int, bytes, str]


def _packed(complaint: Complaint) -> _Packed:
    error = complaint.error
    note = f"in task {complaint.task} of {complaint.component!r}:\n{traceback_of(error)}"
    pickled = pickled_error(error, complaint.component)
    return complaint.component, complaint.task, pickled, note


def _unpacked(packed: _Packed) -> Complaint:
    component, task, pickled, note = packed
    return Complaint(component, task, unpickled_error(pickled, component, note))


@dataclass(frozen=True, slots=True)
class StageOrder:
    """Levels of a run that one slot computes.

    Attributes:
        number: Its number, which is unique since the start of the topology.
        levels: Consecutive levels; all tuples between them stay in their slot.
    """

    number: int
    levels: tuple[RunLevel, ...]


def pack_order(number: int, levels: bytes, records: Sequence[bytes]) -> list[bytes]:
    """Pack an order. Its levels come packed, so they are packed once and not for each slot."""
    return [_NUMBER.pack(number), levels, *records]


def unpack_order(frames: Sequence[bytes]) -> tuple[StageOrder, list[bytes]]:
    """Read (order, records) from what :func:`pack_order` made."""
    [number] = _NUMBER.unpack(frames[0])
    return StageOrder(number, loads(frames[1])), list(frames[2:])


def pack_answer(number: int, records: list[Record]) -> list[bytes]:
    """Pack an answer; each payload becomes a frame, unchanged."""
    return [pack((number, [address for address, _ in records])), *(each for _, each in records)]


def unpack_answer(frames: list[bytes]) -> tuple[int, list[Record]]:
    """Return (number of the order, records that its last level yielded)."""
    number, addresses = loads(frames[0])
    return number, list(zip(addresses, frames[1:], strict=True))
