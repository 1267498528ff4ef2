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

from tests.runtime.resident.recorded import CONFIG, Slowly, acked, recorded
from tests.runtime.resident.threads import LIMIT_S
from tests.spark_session import open_test_session
from txtopo.collector import BatchOutputCollector
from txtopo.errors import InfrastructureError
from txtopo.runtime.reliable.handle import ReliableRun
from txtopo.tuples import Tuple


class Dying(Slowly):
    """Kills the executor of its task at certain numbers, once for each: so that one is under way.

    Args:
        folder: Where it is noted.
        numbers: At which.
    """

    def __init__(self, folder: Path, numbers: set[int]) -> None:
        super().__init__(folder)
        self._numbers = numbers

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        number = tuple["number"]
        if number in self._numbers and not (self._folder / f"died-{number}").exists():
            (self._folder / f"died-{number}").touch()
            # A worker is forked by PySpark's daemon, which the executor has started.
            os.kill(parent(os.getppid()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        super().execute(tuple, collector)


def main(kind: str, folder: Path, count: int, kills: int) -> None:
    """Process all numbers; if *kind* is ``executor``, kill one every now and then, else stop the
    session under the run at the end."""
    on_executors = kind == "executor"
    spark = open_test_session("local-cluster[2,1,1024]" if on_executors else "local[2]")
    deaths = {count // (kills + 1) * number + 300 for number in range(kills)}
    run = recorded(folder, count, Dying(folder, deaths)).start(spark, CONFIG)
    tell("running")
    watch = threading.Thread(target=tell_acked, args=(folder, count), daemon=True)
    watch.start()
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
