"""What a worker has begun, and what it may still begin after its commit was given up."""

from __future__ import annotations

import threading

from tests.harness.polling import LIMIT_S
from txtopo.runtime.commit_progress import CommitProgress, Reached


def test_the_loop_learns_how_far_the_worker_was() -> None:
    progress = CommitProgress()

    assert progress.wanted()
    assert all(progress.calls(batch) for batch in range(3))
    assert progress.close() == Reached(2, 0)

    progress = CommitProgress()
    assert progress.calls(1)
    assert progress.sends(2)
    assert progress.sends(1)
    assert progress.close() == Reached(1, 1)


def test_after_the_end_nothing_may_begin_and_nothing_is_noted() -> None:
    """Otherwise the loop would decide by less than what is sent."""
    progress = CommitProgress()
    progress.calls(0)
    reached = progress.close()

    assert not progress.wanted()
    assert not progress.calls(1)
    assert not progress.sends(1)
    assert progress.close() == reached


def test_whoever_is_first_decides_also_when_both_come_at_once() -> None:
    for _ in range(200):
        progress, together = CommitProgress(), threading.Barrier(2)
        sent: list[bool] = []

        def send(
            progress: CommitProgress = progress,
            sent: list[bool] = sent,
            together: threading.Barrier = together,
        ) -> None:
            together.wait(LIMIT_S)
            sent.append(progress.sends(3))

        worker = threading.Thread(target=send)
        worker.start()
        together.wait(LIMIT_S)
        reached = progress.close()
        worker.join(LIMIT_S)

        assert sent == [reached.sent == 3]
