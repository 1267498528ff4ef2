"""The works that are done on the cluster: flights, W2 and the count of the Kafka demo, made small.

Each has some twenty batches, so that there is something left to do when a machine dies.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.data import Source, prepare
from benchmarks.store import TABLE
from benchmarks.topology import word_topology
from benchmarks.workloads import WORKLOADS, Workload
from examples.flights import cut, flights, flights_csv
from examples.kafka_demo import PARTITIONS, reported
from examples.kafka_word_count import counted, word_count
from tests.faults.processes.flights_folds import folds
from tests.faults.processes.sampling_process import digest
from txtopo import Topology, open_state

if TYPE_CHECKING:
    from tests.harness.servers.kafka import KafkaBroker

FLIGHTS = 60_000
FLIGHTS_BATCH_BYTES = 240_000
WORDS = 40_000
MESSAGES = 20_000
MESSAGES_BATCH = 250
"""Of each of the four partitions."""
VOCABULARY = 500


class Work(ABC):
    """A topology with a source that stays, and what its states must be at the end.

    Attributes:
        name: Its name in tables.
    """

    name: str

    @abstractmethod
    def prepare(self) -> None:
        """Make the source."""

    def prepare_run(self, folder: Path) -> None:  # noqa: B027 - most have nothing to make
        """Make what a run writes to."""

    @abstractmethod
    def topology(self, folder: Path) -> Topology:
        """Return the topology; *folder* is where its states are, and no other run's."""

    @abstractmethod
    def wrong(self, folder: Path) -> str:
        """Return how the states differ from what plain Python counts; empty if they are equal."""


class Flights(Work):
    """The first flights of 2013, by carrier and hour and in total."""

    name = "flights"

    def __init__(self, place: Path) -> None:
        self._input = place / "flights"

    def prepare(self) -> None:
        lines = flights_csv().splitlines(keepends=True)
        cut(self._input, b"".join(lines[: FLIGHTS + 1]))

    def topology(self, folder: Path) -> Topology:
        return flights(self._input, self._state(folder), batch_bytes=FLIGHTS_BATCH_BYTES)

    def wrong(self, folder: Path) -> str:
        expected = folds(self._input, ())[FLIGHTS]
        differing = []
        for table, fold in expected.items():
            with open_state(self._state(folder), table=f"flights_{table}").reader() as reader:
                if digest(dict(reader.items())) != fold:
                    differing.append(table)
        return f"differing: {', '.join(differing)}" if differing else ""

    def _state(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'flights.db'}"


class Words(Work):
    """W2 of the benchmark: words of Parquet files, by word."""

    name = "W2"

    def __init__(self, place: Path) -> None:
        self._place = place

    def prepare(self) -> None:
        self._place.mkdir(exist_ok=True)
        assert self._source.expected

    def topology(self, folder: Path) -> Topology:
        return word_topology(self._workload, self._source, self._state(folder))

    def wrong(self, folder: Path) -> str:
        with open_state(self._state(folder), table=TABLE).reader() as reader:
            return difference(dict(reader.items()), self._source.expected)

    @property
    def _workload(self) -> Workload:
        (whole,) = (each for each in WORKLOADS if each.name == "W2")
        return Workload("W2", whole.title, whole.kind, WORDS, whole.batches, whole.goal)

    @cached_property
    def _source(self) -> Source:
        return prepare(self._workload, self._place)

    def _state(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'words.db'}"


class Messages(Work):
    """The Kafka demo: words of a topic, by word, and a report of each batch in another topic."""

    name = "Kafka"

    def __init__(self, servers: str, broker: KafkaBroker | None = None) -> None:
        self.servers = servers
        self._broker = broker

    def prepare(self) -> None:
        from confluent_kafka import Producer

        self._make("words", PARTITIONS)
        producer = Producer({"bootstrap.servers": self.servers, "log_level": 0})
        for at, word in enumerate(messages()):
            producer.produce("words", word.encode(), partition=at % PARTITIONS)
        assert producer.flush() == 0

    def topology(self, folder: Path) -> Topology:
        return word_count(
            self.servers,
            self._state(folder),
            reports=self._reports(folder),
            batch_rows_max=MESSAGES_BATCH,
        )

    def prepare_run(self, folder: Path) -> None:
        self._make(self._reports(folder), 1)

    def wrong(self, folder: Path) -> str:
        found = difference(counted(self._state(folder)), Counter(messages()))
        reports = reported(self.servers, MESSAGES, self._reports(folder))
        if sum(words for _, words in reports) != MESSAGES:
            found += f" {sum(words for _, words in reports)} words are reported"
        if [txid for txid, _ in reports] != list(range(1, len(reports) + 1)):
            found += f" the reports are of the txids {[txid for txid, _ in reports]}"
        return found

    def _make(self, topic: str, partitions: int) -> None:
        from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

        assert self._broker is not None
        for made in self._broker.admin.create_topics([NewTopic(topic, partitions, 1)]).values():
            made.result(60)

    def _reports(self, folder: Path) -> str:
        return f"reports-{folder.name}"

    def _state(self, folder: Path) -> str:
        return f"sqlite:///{folder / 'words.db'}"


def messages() -> list[str]:
    """Return the words of the topic, in order."""
    return [f"word-{at * at % VOCABULARY}" for at in range(MESSAGES)]


def difference(found: dict[str, int], expected: dict[str, int]) -> str:
    """Return how counts differ; empty if they do not."""
    differing = {key for key in {*found, *expected} if found.get(key) != expected.get(key)}
    few = sorted(differing)[:5]
    shown = ", ".join(f"{key}: {found.get(key)} for {expected.get(key)}" for key in few)
    return f"{len(differing)} words differ: {shown}" if differing else ""
