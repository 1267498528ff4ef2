"""The servers that tests share, the marks and the order of tests, and why tests were skipped."""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Generator, Iterator
from functools import cache
from glob import glob
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.harness.browser import missing_browser
from tests.harness.shards import read_shard, share

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.harness.browser import Browser
    from tests.harness.servers.kafka import KafkaBroker
    from tests.harness.servers.mariadb import MariaServer
    from tests.harness.servers.object_store import ObjectStore
    from tests.harness.servers.postgresql import PostgresServer
    from tests.harness.servers.rabbitmq import RabbitServer
    from tests.harness.servers.redis import RedisServer
    from tests.harness.servers.schema_registry import SchemaRegistry
    from tests.harness.servers.spark_connect import SparkConnectServer
    from tests.harness.servers.zookeeper import ZooKeeperProcess

# No suite does more or less on a busy machine; tests/unit/state_backends/extent.py says how much.
os.environ.setdefault("TXTOPO_LONG", "1")

# Quick tests come first, so that a mistake shows early. Tests of one rank share their fixtures.
RANKS = ("integration", "service", "spark", "kills", "slow")
# The fixtures that need a server, whose mark their tests get.
SERVICES = (
    *("postgresql", "mariadb", "redis", "rabbitmq", "zookeeper", "kafka", "chromium"),
    "schema-registry",
)
# The mark that all tests of a folder get.
MARKED_FOLDERS = {"integration": "integration", "processes": "kills"}
# The first mark of all tests of a file.
MARKS_OF_FILE = re.compile(r"^pytestmark = \[?pytest\.mark\.(\w+)", re.MULTILINE)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The Spark session of this run."""
    from tests.harness.spark_session import open_test_session

    session = open_test_session()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgresServer]:
    """A private PostgreSQL cluster on a loopback port."""
    from tests.harness.servers.postgresql import PostgresServer

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper() -> Iterator[ZooKeeperProcess]:
    """A ZooKeeper server in a process of its own."""
    from tests.harness.servers.zookeeper import ZooKeeperProcess

    with ZooKeeperProcess() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A private MariaDB server on a loopback port."""
    from tests.harness.servers.mariadb import MariaServer

    with MariaServer() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    """A private Redis server on a loopback port."""
    from tests.harness.servers.redis import RedisServer

    with RedisServer() as server:
        yield server


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitServer]:
    """A private RabbitMQ server on a loopback port."""
    from tests.harness.servers.rabbitmq import RabbitServer

    with RabbitServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaBroker]:
    """A private Kafka broker on a loopback port."""
    from tests.harness.servers.kafka import KafkaBroker

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture(scope="module", autouse=True)
def no_idle_clients() -> Iterator[None]:
    """Close the clients of Kafka that a module leaves: idle ones ask their broker all the time."""
    yield
    if "txtopo.kafka.offsets" in sys.modules:
        from txtopo.kafka.offsets import forget_clients
        from txtopo.kafka.reading import close_idle

        close_idle()
        forget_clients()


@pytest.fixture(scope="session")
def schema_registry() -> Iterator[SchemaRegistry]:
    """A schema registry on a loopback port, in a process of its own."""
    from tests.harness.servers.schema_registry import SchemaRegistry

    with SchemaRegistry() as registry:
        yield registry


@pytest.fixture(scope="session")
def object_store() -> Iterator[ObjectStore]:
    """A private object store on a loopback port."""
    from tests.harness.servers.object_store import ObjectStore

    with ObjectStore() as store:
        yield store


@pytest.fixture(scope="session")
def connect_server() -> Iterator[SparkConnectServer]:
    """A private Spark Connect server on a loopback port."""
    from tests.harness.servers.spark_connect import SparkConnectServer

    with SparkConnectServer() as server:
        yield server


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The process of the headless Chromium."""
    from tests.harness.browser import Browser

    with Browser() as browser:
        yield browser


@pytest.fixture
def chromium(browser: Browser) -> Iterator[Browser]:
    """A headless Chromium. A page that it still showed would compute as long as other tests run."""
    yield browser
    browser.driver.get("about:blank")


@cache
def missing(need: str) -> str | None:
    """Return why tests that need *need* cannot run here, or None if they can."""
    if need == "postgresql":
        found = shutil.which("initdb") or glob("/usr/lib/postgresql/*/bin/initdb")
        return None if found else "no PostgreSQL (initdb not found; try make services)"
    if need == "mariadb":
        from tests.harness.servers.mariadb import find_program

        if find_spec("pymysql") is None:
            return "no PyMySQL (try pip install txtopo[mysql])"
        programs = map(find_program, ("mariadbd", "mariadb-install-db"))
        return None if all(programs) else "no MariaDB (mariadbd not found; try make services)"
    if need == "redis":
        from tests.harness.servers.redis import find_server

        if find_spec("redis") is None:
            return "no redis-py (try pip install txtopo[redis])"
        return None if find_server() else "no Redis (redis-server not found; try make services)"
    if need == "rabbitmq":
        from tests.harness.servers.rabbitmq import find_server as find_rabbitmq

        if find_spec("pika") is None:
            return "no pika (try pip install txtopo[rabbitmq])"
        return None if find_rabbitmq() else "no RabbitMQ (not found; try make services)"
    if need == "kafka":
        from tests.harness.servers.kafka import jars

        if find_spec("confluent_kafka") is None:
            return "no confluent-kafka (try pip install txtopo[kafka])"
        if jars() is None:
            return "no Kafka broker (jars not found; try make kafka)"
        return None if _java() else "no Java"
    if need == "delta-spark":
        from tests.harness.spark_session import delta_conf

        return None if delta_conf() else "no jars of delta-spark (try make delta-jar)"
    if need == "object-store":
        from tests.harness.servers.object_store import find_python

        return None if find_python() else "no object store (try make object-store)"
    if need in ("compose", "promtool", "schema-registry", "spark-connect", "versitygw"):
        return _no_program(need)
    if need == "chromium":
        return missing_browser()
    if need in ("spark", "zookeeper"):
        if not _java():
            return "no Java"
        return None if find_spec("pyspark") else "no PySpark"
    others = "delta-spark, object-store or spark-connect"
    return f"unknown service {need!r}; expected {', '.join(SERVICES)}, {others}"


def _no_program(need: str) -> str | None:
    from tests.harness.compose import find_checker, find_s3

    if need == "promtool":
        return None if shutil.which("promtool") else "no promtool (not found; try make services)"
    if need == "schema-registry":  # the registry is Python's own; its clients are not
        found = all(map(find_spec, ("fastavro", "google", "authlib")))
        return None if found else "no Avro, Protobuf (try pip install txtopo[avro,protobuf])"
    if need == "spark-connect":
        return None if find_spec("grpc") else "no grpcio (try pip install txtopo[connect])"
    if need == "versitygw":
        return None if find_s3() else "no S3 store of compose.yml (try make versitygw)"
    return None if find_checker() else "no program that reads compose.yml (try make compose)"


def _java() -> bool:
    home = os.environ.get("JAVA_HOME")
    return shutil.which(f"{home}/bin/java" if home else "java") is not None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let several machines share the tests, and show that none needs another one before it."""
    parser.addoption(
        "--shard", metavar="K/N", type=read_shard, help="every Nth test, from the Kth on"
    )
    parser.addoption(
        "--shuffle", metavar="SEED", help="the files, and the tests of each, in another order"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Do less where one may, if a part of the tests is left out; collect no garbage yet."""
    gc.disable()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # What a script runs in its background ignores ^C, and so would the programs of tests.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    from tests.harness.chance import be_patient, take_fewer

    be_patient()
    if left_out("slow", config.option.markexpr):
        take_fewer()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Skip a folder or file whose tests are all left out; imports of clients are slow."""
    marks = [mark for folder, mark in MARKED_FOLDERS.items() if folder == collection_path.name]
    if collection_path.suffix == ".py":
        marks = MARKS_OF_FILE.findall(collection_path.read_text())
    return any(left_out(mark, config.option.markexpr) for mark in marks) or None


def left_out(mark: str, expression: str) -> bool:
    """Return whether a marker expression leaves out every test with *mark*."""
    outside = re.sub(r"\([^()]*\)", "in_brackets", expression)
    return " or " not in outside and f"not {mark}" in outside.split(" and ")


def pytest_collection_finish() -> None:
    """Exempt imported modules from the garbage collector; it would take a tenth of the time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None]:
    """Mark tests by their fixtures and folders, put the quick ones first, and keep a shard."""
    for item in items:
        for folder in set(MARKED_FOLDERS).intersection(item.path.parts):
            item.add_marker(MARKED_FOLDERS[folder])
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            item.add_marker(pytest.mark.spark)
        names = set(fixtures)
        if "request" in names and isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            # What asks for a server by the name that is its parameter.
            parameters = item.callspec.params.values()
            names.update(each for each in parameters if isinstance(each, str))
        for service in SERVICES:
            if {service.replace("-", "_"), f"{service}_server"} & names:
                item.add_marker(pytest.mark.service(service))
    items.sort(key=lambda item: max((RANKS.index(m) + 1 for m in marks(item)), default=0))
    if config.option.shuffle is not None:
        chance = Random(config.option.shuffle)
        places = {path: chance.random() for path in dict.fromkeys(item.path for item in items)}
        items.sort(key=lambda item: (places[item.path], chance.random()))
    yield  # here -m leaves tests out
    if config.option.shard is not None:
        kept = share(items, config.option.shard)
        others = set(items).difference(kept)
        config.hook.pytest_deselected(items=[item for item in items if item in others])
        items[:] = kept


def marks(item: pytest.Item) -> list[str]:
    """Return the marks of *item* that have a rank."""
    return [mark.name for mark in item.iter_markers() if mark.name in RANKS]


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test that needs a server that this machine does not have."""
    needs = [mark.args[0] for mark in item.iter_markers("service")]
    if item.get_closest_marker("spark"):
        needs.append("spark")
    for need in needs:
        reason = missing(need)
        if reason is not None:
            pytest.skip(reason)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print one line for each reason why tests were skipped."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, number in reasons.most_common():
        tests = "1 test" if number == 1 else f"{number} tests"
        terminalreporter.write_line(f"skipped {tests}: {reason}", yellow=True)
