"""An at-least-once topology on Spark that is killed, or whose executors are.

Says on its standard output how far it is, and at the end what it cost.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from tests.harness.spark_session import open_test_session
from tests.unit.runtime.resident.recorded import CONFIG, acked, held, process_of, recorded
from tests.unit.runtime.resident.threads import LIMIT_S
from txtopo.errors import InfrastructureError
from txtopo.runtime.handle import ReliableRun


def main(kind: str, folder: Path, count: int, kills: int) -> None:
    """Process all numbers; if *kind* is ``executor``, kill one every now and then, else stop the
    session under the run at the end."""
    on_executors = kind == "executor"
    spark = open_test_session("local-cluster[2,1,1024]" if on_executors else "local[2]")
    run = recorded(folder, count).start(spark, CONFIG)
    tell("running")
    watch = threading.Thread(target=tell_acked, args=(folder, count), daemon=True)
    watch.start()
    for number in range(kills):
        part = count // (kills + 1)
        while len(acked(folder)) < part * number + 300:
            time.sleep(0.01)
        # It may be still away since the kill before.
        while not Path(f"/proc/{process_of(folder, number % 2)}").exists():
            time.sleep(0.01)
        # A worker is forked by PySpark's daemon, which the executor has started.
        os.kill(parent(parent(process_of(folder, number % 2))), signal.SIGKILL)
        held(folder, number).unlink(missing_ok=True)
    run.process_all_available()
    progress = run.last_progress
    if on_executors:
        run.stop()
    spark.stop()
    assert progress is not None
    tell(
        "done",
        replays=progress.replays,
        slots_lost=progress.slots_lost,
        timed_out=progress.timed_out,
        error=ended_with(run),
    )


def ended_with(run: ReliableRun) -> str:
    """Wait for the end of the run, and return what it ended with."""
    try:
        assert run.await_termination(LIMIT_S)
    except InfrastructureError as error:
        return str(error)
    return ""


def tell_acked(folder: Path, count: int) -> None:
    """Say how many numbers were acked, until all are."""
    done = 0
    while done < count:
        done = len(acked(folder))
        tell("acked", numbers=done)
        time.sleep(0.1)


def parent(pid: int) -> int:
    """Return the parent of a process."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def tell(event: str, **facts: object) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
