"""An at-least-once topology on Spark that is killed, or whose executors are.

It says how many numbers are acked, and at the end how many were replayed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.processes import is_alive, parent_of, say
from tests.harness.spark_session import open_test_session
from tests.unit.resident.recorded import CONFIG, acked, held, process_of, recorded
from txtopo.errors import ConfigError
from txtopo.runtime.handle import ReliableRun


def main(kind: str, folder: Path, count: int, kills: int) -> None:
    """Process all numbers.

    If *kind* is ``executor``, executors are killed meanwhile. Else the session is stopped under the
    run at the end.
    """
    on_executors = kind == "executor"
    spark = open_test_session("local-cluster[2,1,1024]" if on_executors else "local[2]")
    run = recorded(folder, count).start(spark, CONFIG)
    say("running")
    watch = threading.Thread(target=tell_acked, args=(folder, count), daemon=True)
    watch.start()
    for number in range(kills):
        kill_an_executor(folder, number, count // (kills + 1) * number + 300)
        held(folder, number).unlink(missing_ok=True)
    run.process_all_available()
    progress = run.last_progress
    if on_executors:
        run.stop()
    spark.stop()
    assert progress is not None
    say(
        "done",
        replays=progress.replays,
        slots_lost=progress.slots_lost,
        timed_out=progress.timed_out,
        error=ended_with(run),
    )


def kill_an_executor(folder: Path, number: int, enough: int) -> None:
    """Kill the executor of one of the two workers once *enough* numbers are acked."""
    limit_s = 2 * LIMIT_S
    wait_until(lambda: len(acked(folder)) >= enough, "enough numbers are acked", limit_s)
    # The worker may still be away after the kill before. That of task 0 has the spout, whose trees
    # are lost with it, so it is not the first: what the other one had times out and is replayed.
    task = (number + 1) % 2
    wait_until(lambda: is_alive(process_of(folder, task)), "the worker is back", limit_s)
    # A worker is forked by PySpark's daemon, which the executor has started.
    os.kill(parent_of(parent_of(process_of(folder, task))), signal.SIGKILL)


def ended_with(run: ReliableRun) -> str:
    """Wait for the end of the run, and return what it ended with."""
    try:
        assert run.await_termination(LIMIT_S)
    except ConfigError as error:
        return str(error)
    return ""


def tell_acked(folder: Path, count: int) -> None:
    """Say how many numbers were acked, until all are."""
    done = 0
    while done < count:
        done = len(acked(folder))
        say("acked", numbers=done)
        time.sleep(0.1)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
