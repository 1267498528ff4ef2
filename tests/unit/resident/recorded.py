"""A topology whose source redelivers, and that writes down what it processed, and where."""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Fields,
    ReliableTopology,
    Spout,
    TaskContext,
    TopologyBuilder,
)
from txtopo.collector import BatchOutputCollector
from txtopo.config import AnyConfig
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.tuples import Tuple

NUMBER = Fields("number long")
# So that there is something under way at every moment.
CONFIG = AtLeastOnceConfig(carrier="resident", message_timeout_s=3, max_spout_pending=200)
WORK_S = 0.001


class Numbers(Spout):
    """The numbers below a count; the file ``acked`` is its queue's memory of what is done."""

    output_fields = NUMBER

    def __init__(self, folder: Path, count: int) -> None:
        self._folder, self._count = folder, count

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        self._collector = collector
        done = acked(self._folder)
        self._waiting = deque(number for number in range(self._count) if number not in done)
        self._acked = (self._folder / "acked").open("a", buffering=1)

    def next_tuple(self) -> None:
        if self._waiting:
            number = self._waiting.popleft()
            self._collector.emit([number], number)

    def ack(self, message_id: Any) -> None:
        self._acked.write(f"{message_id}\n")

    def fail(self, message_id: Any) -> None:
        self._waiting.append(message_id)

    def close(self) -> None:
        self._acked.close()


class Slowly(BasicBolt):
    """Passes numbers on, and says which process its task is in.

    The last 100 of a thousand wait as long as there is a file for it: see :func:`held`.
    """

    output_fields = NUMBER

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        (self._folder / f"process-{context.task_index}").write_text(str(os.getpid()))

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        time.sleep(WORK_S)
        number = tuple["number"]
        if number % 1000 >= 900:
            while held(self._folder, number // 1000).exists():
                time.sleep(0.01)
        collector.emit([number])


class Record(BasicBolt):
    """Writes each number to a file of its life."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepare(self, config: AnyConfig, context: TaskContext) -> None:
        name = f"processed-{os.getpid()}-{context.task_index}-{time.monotonic_ns()}"
        self._file = (self._folder / name).open("w", buffering=1)

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        self._file.write(f"{tuple['number']}\n")


def recorded(folder: Path, count: int) -> ReliableTopology:
    """Return the topology; numbers go from slot to slot."""
    builder = TopologyBuilder("recorded")
    builder.set_spout("numbers", Numbers(folder, count))
    builder.set_bolt("slowly", Slowly(folder), 2).shuffle_grouping("numbers")
    builder.set_bolt("record", Record(folder), 2).fields_grouping("slowly", "number")
    return builder.build_topology()


def held(folder: Path, thousand: int) -> Path:
    """Return the file that keeps a thousand from its end, so that work is there to be lost."""
    return folder / f"held-{thousand}"


def acked(folder: Path) -> set[int]:
    """Return which numbers were acked."""
    path = folder / "acked"
    return set(map(int, whole_lines(path))) if path.exists() else set()


def processed(folder: Path) -> Counter[int]:
    """Return how often each number was processed."""
    return Counter(int(line) for path in folder.glob("processed-*") for line in whole_lines(path))


def whole_lines(path: Path) -> list[str]:
    """Return the lines of a file that a kill may have cut short."""
    return path.read_text().split("\n")[:-1]


def process_of(folder: Path, task: int) -> int:
    """Return which process a task of the first bolt is in."""
    return int((folder / f"process-{task}").read_text())


def judge(folder: Path, count: int) -> int:
    """Check that every number was processed; return how many came twice or more."""
    numbers = processed(folder)
    assert set(numbers) == acked(folder) == set(range(count))
    return sum(times > 1 for times in numbers.values())
