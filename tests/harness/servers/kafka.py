"""A private Kafka broker on a free loopback port, for the tests, the demo and the benchmark."""

from __future__ import annotations

import re
import tempfile
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tests.harness.servers.private import ServerProcess, free_port, installed, run_program
from tests.harness.servers.zookeeper import find_java

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_POM = Path(__file__).parents[3] / "docker" / "kafka" / "pom.xml"
_JVM = (
    "-Xmx512m",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
)
# One node that is broker and controller; what has several copies elsewhere has one here.
_SETTINGS = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": (
        "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT"
    ),
    "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
    "inter.broker.listener.name": "PLAINTEXT",
    "num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "auto.create.topics.enable": "false",
    # Else the broker waits for more consumers of a group, and cleans a log every 15 s.
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "200",
    "log.retention.check.interval.ms": "500",
    # A killed broker is fenced until its session ends, and comes back no sooner; one that is only
    # slow, on a busy machine, must not be.
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "500",
}


def jars() -> Path | None:
    """Return the folder of the broker's jars, or None if nobody has fetched them."""
    after = _POM.read_text().split("kafka_2.13", 1)[1]
    found = re.search(r"<version>(.*)</version>", after)
    assert found is not None
    folder = installed(f"kafka-{found.group(1)}")
    return folder if folder.is_dir() else None


class KafkaBroker(ServerProcess):
    """A broker with a folder of its own; a context manager that starts and stops it.

    Attributes:
        port: The port that was given, or a free one.
        servers: ``127.0.0.1:port``; the same after :meth:`start` again.
        sasl_servers: The same broker, where user ``reader`` has to show :attr:`password`.
    """

    password = "secret-of-the-tests"

    def __init__(self, port: int | None = None) -> None:
        found = jars()
        if found is None:
            raise FileNotFoundError("no Kafka found; run make kafka")
        self._java = [find_java(), *_JVM, "-cp", f"{found}/*"]
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-kafka-"))
        self.port = port or free_port()
        self.servers = f"127.0.0.1:{self.port}"
        self.sasl_servers = f"127.0.0.1:{free_port()}"
        self._settings = self._configure(f"127.0.0.1:{free_port()}")

    def _configure(self, controller: str) -> Path:
        """Write the settings, with the address of the controller, and format the storage."""
        advertised = f"PLAINTEXT://{self.servers},SASL://{self.sasl_servers}"
        settings = _SETTINGS | {
            "log.dirs": str(self.folder / "data"),
            "listeners": f"{advertised},CONTROLLER://{controller}",
            "advertised.listeners": advertised,
            "controller.quorum.voters": f"1@{controller}",
            "listener.name.sasl.plain.sasl.jaas.config": (
                "org.apache.kafka.common.security.plain.PlainLoginModule required "
                f'user_reader="{self.password}";'
            ),
        }
        file = self.folder / "settings"
        file.write_text("".join(f"{n}={v}\n" for n, v in settings.items()))
        format = [*self._java, "kafka.tools.StorageTool", "format", "--ignore-formatted"]
        cluster = ["-t", "AAAAAAAAAAAAAAAAAAAAAQ", "-c", str(file)]
        run_program([*format, *cluster], self.folder)
        return file

    def start(self) -> None:
        """Start the broker and wait until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Start the broker, and do not wait."""
        command = [*self._java, "kafka.Kafka", str(self._settings)]
        self._process = self._open(command, cwd=self.folder)

    def wait(self) -> None:
        """Wait until it answers."""
        assert self._process is not None
        self._wait_until_it_answers(self._process, self._answers)

    def end(self) -> None:
        """End the broker, however it stands."""
        self.__dict__.pop("admin", None)
        self.kill()

    @cached_property
    def admin(self) -> AdminClient:
        """A client that makes and changes topics."""
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException

        try:
            return bool(self.admin.list_topics(timeout=0.5).brokers)
        except KafkaException:
            return False
