"""The offset that may be committed, against a plain model, whatever the log and the acks are."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.harness.chance import examples
from txtopo.kafka.uncommitted import UncommittedOffsets

FOUR = (0, 1, 2, 3)
WITH_GAPS = (3, 4, 9, 200)


def taken(start: int, *offsets: int) -> UncommittedOffsets[str]:
    """Return what is left of a log whose records were all taken."""
    uncommitted: UncommittedOffsets[str] = UncommittedOffsets(start)
    for offset in offsets:
        assert uncommitted.take(offset, f"record {offset}")
    return uncommitted


@pytest.mark.parametrize("log", [FOUR, WITH_GAPS])
@pytest.mark.rule("txtopo.kafka.uncommitted", "Rules", 1, 2)
def test_no_order_of_acks_has_a_record_passed_that_is_not_acked(log: tuple[int, ...]) -> None:
    for order in permutations(log):
        uncommitted, open_now = taken(0, *log), set(log)
        for offset in order:
            uncommitted.ack(offset)
            open_now.discard(offset)
            assert uncommitted.committable == min(open_now, default=log[-1] + 1)


def test_offsets_without_a_record_hold_nothing_up() -> None:
    uncommitted = taken(0, 5, 6)
    assert uncommitted.committable == 5
    uncommitted.ack(5)
    uncommitted.ack(6)
    assert uncommitted.committable == 7

    uncommitted.reach(12)
    assert uncommitted.committable == 12
    uncommitted.take(15, "record 15")
    assert uncommitted.committable == 15
    uncommitted.reach(20)
    assert uncommitted.committable == 15


def test_a_record_stays_open_until_it_is_acked() -> None:
    uncommitted = taken(0, 1, 2)
    assert uncommitted.open_record(1) == "record 1"

    uncommitted.ack(1)
    uncommitted.ack(1)
    uncommitted.ack(7)
    assert (uncommitted.open_record(1), uncommitted.open_record(2)) == (None, "record 2")
    assert (uncommitted.committable, len(uncommitted)) == (2, 1)


def test_what_was_taken_before_is_not_taken_again() -> None:
    uncommitted = taken(4, 4, 5)
    uncommitted.ack(4)

    assert not uncommitted.take(4, "again")
    assert not uncommitted.take(3, "from before the start")
    assert (uncommitted.committable, len(uncommitted)) == (5, 1)


def test_what_a_restart_repeats_begins_with_the_first_that_is_open() -> None:
    uncommitted = taken(0, *range(10))
    for offset in (0, 1, 4, 5, 9):
        uncommitted.ack(offset)
    assert len(uncommitted) == 8

    uncommitted.ack(2)
    assert len(uncommitted) == 7


class Model:
    """A partition, its group, and the one task that has it; all of it plain.

    Attributes:
        log: The offsets that have a record.
        end: The offset after the log.
        committed: That of the group.
        processed: The records whose trees were complete, by whomever.
    """

    def __init__(self, log: list[int], end: int) -> None:
        self.log, self.end = log, end
        self.committed = 0
        self.processed: set[int] = set()
        self.on_the_way: list[int] = []
        self.assign()

    def assign(self) -> None:
        """Give the partition to a task that knows nothing but the committed offset."""
        self.spout: UncommittedOffsets[int] = UncommittedOffsets(self.committed)
        self.left = [offset for offset in self.log if offset >= self.committed]
        self.open: list[int] = []

    def read(self) -> None:
        """Take the next record, or reach the end."""
        if self.left:
            offset = self.left.pop(0)
            assert self.spout.take(offset, offset)
            self.open.append(offset)
        else:
            self.spout.reach(self.end)

    def ack(self, at: int) -> None:
        """Ack any open record; nothing changes for one that fails."""
        if self.open:
            offset = self.open.pop(at % len(self.open))
            self.processed.add(offset)
            self.spout.ack(offset)

    def fail(self, at: int) -> None:
        """Emit a record again: it is still there."""
        if self.open:
            offset = self.open[at % len(self.open)]
            assert self.spout.open_record(offset) == offset

    def commit(self, at: int) -> None:
        """Send a commit, or have one that was sent arrive, in any order: an old owner's is late."""
        if at % 2:
            self.on_the_way.append(self.spout.committable)
        elif self.on_the_way:
            self.committed = self.on_the_way.pop(at % len(self.on_the_way))

    def check(self) -> None:
        """Check what holds at any time."""
        assert all(each in self.processed for each in self.log if each < self.committed)
        assert self.spout.committable == min(self.open, default=self.spout.position)
        taken_here = [each for each in self.log if each not in self.left]
        from_open = [each for each in taken_here if each >= min(self.open, default=self.end)]
        assert len(self.spout) == len(from_open)


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["read", "read", "ack", "ack", "fail", "commit", "assign"]),
        st.integers(0, 99),
    ),
    max_size=80,
)


@given(gaps=st.lists(st.integers(1, 4), max_size=25), tail=st.integers(0, 3), steps=STEPS)
@examples(300)
def test_a_group_never_passes_a_record_and_reaches_the_end(
    gaps: list[int], tail: int, steps: list[tuple[str, int]]
) -> None:
    """With gaps, failures, tasks that take over, and commits that come late."""
    log = [sum(gaps[: at + 1]) - 1 for at in range(len(gaps))]
    model = Model(log, (log[-1] + 1 if log else 0) + tail)
    for step, at in steps:
        match step:
            case "read":
                model.read()
            case "ack":
                model.ack(at)
            case "fail":
                model.fail(at)
            case "commit":
                model.commit(at)
            case "assign":
                model.assign()
        model.check()

    for _ in range(len(log) + 1):
        model.read()
    while model.open:
        model.ack(0)
        model.check()
    assert model.spout.committable == model.end
    assert len(model.spout) == 0
