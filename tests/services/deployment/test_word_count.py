"""The word count of docker/compose.yml runs on its services, one of each of which is killed."""

from __future__ import annotations

import json
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.harness import compose
from tests.harness.polling import wait_until
from tests.services.deployment.loopback import START_LIMIT_S, Container, Loopback
from txtopo import Config, open_state
from txtopo.errors import TxtopoError
from txtopo.operations.ensemble import Ensemble, TopologyStatus

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3_000),
    *map(pytest.mark.service, ("compose", "versitygw", "kafka", "postgresql", "zookeeper")),
]
TOPOLOGY = "word-count"
TXIDS = 3
"""How many more txids, in both stores, show that the count continues; some may be under way."""


def leading_zookeeper(services: Loopback) -> str:
    def found() -> str | None:
        modes = {name: server.mode for name, server in services.zookeepers.items()}
        return next((name for name, mode in modes.items() if mode == "leader"), None)

    return wait_until(found, "a ZooKeeper leads") or ""


class Watch:
    """Looks at the services from outside."""

    def __init__(self, services: Loopback, ensemble: Ensemble) -> None:
        self.services = services
        self._ensemble = ensemble
        self._txid = 0
        self._driver_cores = int(compose.variables()["DRIVER_CORES"])
        self.environment = services.environment_of("driver-1")

    def status(self) -> TopologyStatus | None:
        """What the ensemble says of the topology; None while that cannot be read."""
        try:
            return self._ensemble.topology(TOPOLOGY)
        except TxtopoError:
            return None

    def txid(self) -> int:
        """The last txid that both states are known to hold."""
        status = self.status()
        self._txid = max(self._txid, (status and status.txid) or 0)
        return self._txid

    def leading_driver(self) -> str:
        """The driver that leads."""
        status = wait_until(self.status, "the ensemble answers")
        assert status is not None
        assert isinstance(status.leader, dict), status
        pid = status.leader["pid"]
        servers = self.services.servers.items()
        (name,) = [n for n, each in servers if isinstance(each, Container) and each.pid == pid]
        return name

    def is_whole(self) -> bool:
        """Whether one driver leads and one stands by, each with its cores of two workers."""
        status = self.status()
        if status is None or status.leader is None or len(status.standbys) != 1:
            return False
        try:
            with urllib.request.urlopen(f"http://{self.services.master}/json/") as answer:
                cluster: dict[str, Any] = json.load(answer)
        except OSError:
            return False
        cores = [app["cores"] for app in cluster["activeapps"] if app["state"] == "RUNNING"]
        return cluster["aliveworkers"] == 2 and cores == 2 * [self._driver_cores]

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait, while what ends is started again."""

        def holds() -> bool:
            self.services.keep()
            return condition()

        def told() -> str:
            logs = {name: server.log for name, server in self.services.servers.items()}
            parts = [what, str(self.status()), *self.services.ended]
            return "\n".join([*parts, *(f"{name}: {log}" for name, log in logs.items())])

        wait_until(holds, told, START_LIMIT_S, pause_s=0.5)

    def until_it_counts(self, after: str) -> None:
        """Wait until three more txids are in both states, and everything is there again."""
        txid = self.txid()
        self.until(lambda: self.txid() >= txid + TXIDS, f"the count continues after {after}")
        self.until(self.is_whole, f"everything is there again after {after}")

    def words(self) -> Counter[str]:
        """What a plain consumer finds in the topic."""
        from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

        topic = self.environment["WORDS_TOPIC"]
        settings = {"bootstrap.servers": self.environment["KAFKA_SERVERS"], "group.id": "plain"}
        consumer = Consumer({**settings, "enable.partition.eof": True, "enable.auto.commit": False})
        partitions = consumer.list_topics(topic).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        found: Counter[str] = Counter()
        ended: set[int] = set()
        while len(ended) < len(partitions):
            for message in consumer.consume(10_000, timeout=1.0):
                error, partition, value = message.error(), message.partition(), message.value()
                assert partition is not None
                if error is None:
                    assert value is not None
                    found[value.decode()] += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ended.add(partition)
        consumer.close()
        return found

    def counts(self) -> dict[Any, Any]:
        """The state in PostgreSQL."""
        return contents(self.environment["COUNTS_URL"], "counts")

    def lengths(self) -> dict[Any, Any]:
        """The state in S3."""
        options = {n: value for n, value in self.environment.items() if n.startswith("AWS_")}
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return contents(f"{self.environment['LENGTHS_URL']}?{query}", "lengths")


def contents(url: str, table: str) -> dict[Any, Any]:
    with open_state(url, table=table).reader() as reader:
        return dict(reader.items())


def kill(watch: Watch, name: str) -> None:
    """Kill a service, start it again as its ``restart`` says, and see the count continue."""
    watch.services.servers[name].kill()
    watch.services.servers[name].start()
    watch.until_it_counts(f"{name} was killed")


@pytest.fixture
def watch() -> Iterator[Watch]:
    with Loopback() as services:
        services.start("words")
        hosts = services.environment_of("driver-1")["TXTOPO_ZOOKEEPER_HOSTS"]
        with Ensemble.open(Config(zookeeper=hosts)) as ensemble:
            yield Watch(services, ensemble)


def test_words_are_counted_exactly_while_one_of_each_service_is_killed(watch: Watch) -> None:
    words = watch.services.servers["words"]
    words.start()
    watch.until_it_counts("the start")

    kill(watch, leading_zookeeper(watch.services))
    for name in ("postgres", "kafka", "s3", "spark-master", "spark-worker-1"):
        kill(watch, name)
    kill(watch, watch.leading_driver())

    words.kill()
    expected = watch.words()
    total = sum(expected.values())
    watch.until(lambda: sum(watch.lengths().values()) >= total, f"all {total} words are counted")
    lengths: Counter[int] = Counter()
    for word, times in expected.items():
        lengths[len(word)] += times
    assert watch.counts() == expected
    assert watch.lengths() == lengths
    assert watch.services.ended == []
