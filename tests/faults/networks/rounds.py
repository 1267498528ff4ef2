"""One round: a topology counts numbers, a link has a fault for a while, and all must be counted.

The seed and the number of a round decide everything that is drawn. The waits for a silent peer are
short here, so that a fault may be longer than they are and a round takes a few seconds.
"""

from __future__ import annotations

import collections
import faulthandler
import logging
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import patch
from uuid import uuid4

import sqlalchemy as sa

from state_backends.sql import mariadb, postgresql
from tests.conftest import missing
from tests.faults.networks.links import FAULTS, Link
from tests.faults.networks.numbers import Arrivals, topology
from tests.faults.networks.watcher import Watcher
from tests.harness.polling import NeverHappenedError, retry, wait_until
from tests.harness.servers.mariadb import MariaServer
from tests.harness.servers.postgresql import PostgresServer
from tests.harness.servers.private import free_port
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.harness.spark_session import open_test_session
from txtopo import Config, ZooKeeper
from txtopo.config import Carrier
from txtopo.errors import FencedError, InfrastructureError
from txtopo.resident.slot_jobs import SlotJobs, SlotTask
from txtopo.resident.slot_runner import LIMITS
from txtopo.resident.sockets import Keys
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import Leading, TopologyEvent, TopologyListener
from txtopo.state import StateKind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINKS = ("ensemble", "store", "executors")
STORES = ("postgresql", "mariadb")
KINDS: tuple[StateKind, ...] = ("opaque", "transactional")
CARRIERS: tuple[Carrier, ...] = ("resident", "resident", "resident", "resident", "rdd")
"""On the first the sockets of slots have the fault, on the other the ports of Spark's driver."""
DRIVER_HOST = "127.0.0.2"
"""The driver's address as executors know it: that of proxies, since Spark cannot name other ports
than those that it listens at."""

SESSION_S = 1.0
BATCH_S = 1.5
SLOT_SILENCE_S, SPARK_BATCH_S = 2.0, 40.0
SHORT_S = (0.1, 0.7)
LONG_S = (1.2, 3.0)
"""Below and above the waits for a silent peer."""
RATE_PER_S = 300
TICK_S = 0.02
LIMIT_S = 240.0
"""In this time after the end of a fault all is counted, or the run hangs."""


SPARK = {
    "spark.driver.host": DRIVER_HOST,
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.heartbeatInterval": "1s",
    "spark.executor.heartbeat.maxFailures": "4",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10s",
    "spark.rpc.askTimeout": "30s",
    "spark.deploy.maxExecutorRetries": "-1",
}
"""Short waits, and an application that outlives any number of executors."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn for a round.

    Attributes:
        link: The link that has the fault.
        number: Number of the round.
        fault: The fault.
        fault_s: How long it lasts.
        before_s: How long the topology counts before it.
        store: The store.
        kind: Of the states, and of the spout.
        carrier: How batches are processed; of the executors' link it says which ports are meant.
        drivers: One, or a leader and a standby.
        everywhere: Whether the fault hits all of them, and all slots; or only the leader, and one.
    """

    link: str
    number: int
    fault: str
    fault_s: float
    before_s: float
    store: str
    kind: StateKind
    carrier: Carrier
    drivers: int
    everywhere: bool


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a round.

    Attributes:
        link: The link that had the fault.
        number: Number of the round.
        seed: Of the campaign.
        fault: The fault.
        store: The store.
        carrier: How batches were processed.
        drivers: How many there were.
        txids: How many were committed.
        takeovers: How often a term began, but for the first.
        deposed: How many drivers ended because another one led.
        samples: How often the outside reader has read a table.
        stall_s: The longest time in which it saw no progress though there were numbers.
        wrong: What broke a promise; empty if nothing did.
    """

    link: str
    number: int
    seed: int
    fault: str
    store: str
    carrier: str
    drivers: int
    txids: int
    takeovers: int
    deposed: int
    samples: int
    stall_s: float
    wrong: str

    @property
    def command(self) -> str:
        """The command that runs it again."""
        return (
            f"python -m tests.faults.networks --links {self.link} --round {self.number} "
            f"--seed {self.seed} --fault '{self.fault}'"
        )


def drawn(link: str, number: int, seed: int, fault: str | None = None) -> Drawn:
    """Draw a round; the faults take turns, so that each comes equally often."""
    chance = Random(f"{link} {number} {seed}")
    return Drawn(
        link=link,
        number=number,
        fault=fault or list(FAULTS)[number % len(FAULTS)],
        fault_s=chance.uniform(*chance.choice((SHORT_S, LONG_S))),
        before_s=chance.uniform(0.0, 0.4),
        store=STORES[0] if chance.random() < 0.7 or missing(STORES[1]) is not None else STORES[1],
        kind=chance.choice(KINDS),
        carrier=chance.choice(CARRIERS) if link == "executors" else "local",
        drivers=1 if link == "executors" else chance.choice((1, 2)),
        everywhere=chance.random() < 0.5,
    )


class Services:
    """The servers of a campaign, each started when a round first needs it; a context manager."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._zookeeper: ZooKeeperProcess | None = None
        self._stores: dict[str, tuple[int, str]] = {}
        self._spark: SparkSession | None = None
        self.folder, self.driver_link = Path(), Link()

    def __enter__(self) -> Services:
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self._stack.enter_context(short_waits())
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def zookeeper(self) -> int:
        """Return the port of ZooKeeper."""
        if self._zookeeper is None:
            self._zookeeper = self._stack.enter_context(ZooKeeperProcess(tick_ms=250))
        return self._zookeeper.port

    def store(self, name: str) -> tuple[int, str]:
        """Return the port of a store, and the URL of its database."""
        if name not in self._stores:
            server = PostgresServer() if name == "postgresql" else MariaServer()
            self._stack.enter_context(server)
            self._stores[name] = server.port, server.create_database(f"networks_{uuid4().hex}")
        return self._stores[name]

    def use(self, spark: SparkSession) -> None:
        """Take a session that there is; the ports of its driver get no fault."""
        self._spark = spark

    def spark(self) -> SparkSession:
        """Return a session with two executors, which reach the driver through :attr:`driver_link`.

        Each executor is a process of its own.
        """
        if self._spark is None:
            link = self._stack.enter_context(Link())
            ports = {}
            for name in ("spark.driver.port", "spark.driver.blockManager.port"):
                port = free_port()
                ports[name] = str(link.port_to(port, (DRIVER_HOST, port)))
            self._spark = open_test_session("local-cluster[2,1,1024]", SPARK | ports)
            self._stack.callback(self._spark.stop)
            self.driver_link = link
        return self._spark


@contextmanager
def short_waits() -> Iterator[None]:
    """Make the waits for a silent peer short that no setting of a run has."""
    probes = {name: 1 for name in postgresql._CONNECTION if name.startswith("keepalives")}
    changed: dict[ModuleType, dict[str, Any]] = {
        postgresql: {
            "_CONNECTION": {**probes, "tcp_user_timeout": 1_500, "connect_timeout": 2},
            "_LOCK_TIMEOUT": "1s",
            "_IDLE_TIMEOUT_S": 2,
        },
        mariadb: {
            "_CONNECTION": {**dict.fromkeys(mariadb._CONNECTION, 1), "TCP_USER_TIMEOUT": 1_500},
            "_CONNECT_TIMEOUT_S": 2,
            "_LOCK_TIMEOUT_S": 1,
            "_IDLE_TIMEOUT_S": 2,
        },
    }
    limits = {
        "silent_s": 1.5 * SLOT_SILENCE_S,
        "stop_s": 3.0,
        "cancel_s": 1.0,
        "reason_s": SLOT_SILENCE_S,
    }
    usual = {name: getattr(LIMITS, name) for name in limits}
    with ExitStack() as stack:
        for module, values in changed.items():
            stack.enter_context(patch.multiple(module, **values))
        stack.enter_context(patch.object(SlotTask.__init__, "__defaults__", (SLOT_SILENCE_S,)))
        for name, value in limits.items():
            object.__setattr__(LIMITS, name, value)  # the default of those who take limits
            stack.callback(object.__setattr__, LIMITS, name, usual[name])
        yield


class Driver(TopologyListener):
    """A run with its links.

    Attributes:
        terms: How often it began to lead.
        leads_since_s: When it began to lead last; 0 if it never did.
    """

    def __init__(self, spec: Drawn, name: str, arrivals: Arrivals, services: Services) -> None:
        self.link = services.driver_link if spec.carrier == "rdd" else Link()
        self.terms, self.leads_since_s = 0, 0.0
        self._name, self._arrivals, self._services = name, arrivals, services
        self.spec = spec

    def start(self) -> None:
        """Start the run."""
        spec, services = self.spec, self._services
        zookeeper = services.zookeeper()
        port, url = services.store(spec.store)
        if spec.link == "ensemble":
            zookeeper = self.link.port_to(zookeeper)
        elif spec.link == "store":
            url = at_port(url, self.link.port_to(port))
        on_spark = spec.carrier != "local"
        config = Config(
            carrier=spec.carrier,
            slots=2,
            zookeeper=ZooKeeper(
                f"127.0.0.1:{zookeeper}/{self._name}",
                session_timeout_s=SESSION_S,
                connect_timeout_s=LIMIT_S,
            ),
            batch_timeout_s=SPARK_BATCH_S if on_spark else BATCH_S,
            attempts_max=None,
            backoff_s=0.02,
        )
        counting = topology(self._name, url, spec.kind, self._arrivals, 2)
        spark = services.spark() if on_spark else None
        self.run: TopologyRun = counting.start(spark, config, [self])

    def on_change(self, change: TopologyEvent) -> None:
        if isinstance(change, Leading):
            self.terms += 1
            self.leads_since_s = time.monotonic()

    def error(self) -> BaseException | None:
        """Return what the run has ended with; None if it continues."""
        return self.run.exception()

    def stop(self, limit_s: float) -> bool:
        """Stop the run; return whether it has ended in time."""
        try:
            self.run.stop(limit_s)
        except TimeoutError:
            return False
        return True


def at_port(url: str, port: int) -> str:
    """Return a URL with another port."""
    return sa.make_url(url).set(port=port).render_as_string(hide_password=False)


@contextmanager
def slots_through(link: Link) -> Iterator[None]:
    """Put a proxy between the driver and each task of a slot."""
    direct = SlotJobs.run

    def run(jobs: SlotJobs, slot: int, submission: int, keys: Keys, driver: str) -> None:
        port = link.port_to(int(driver.rpartition(":")[2]), (DRIVER_HOST, 0))
        direct(jobs, slot, submission, keys, f"tcp://{DRIVER_HOST}:{port}")

    with patch.object(SlotJobs, "run", run):
        yield


class Feed:
    """Brings numbers until it is closed."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._thread.start()

    def _feed(self) -> None:
        while not self._over.wait(TICK_S):
            self._arrivals.bring(int(RATE_PER_S * TICK_S))

    def close(self) -> None:
        """Bring no more."""
        self._over.set()
        self._thread.join()


def run_round(spec: Drawn, seed: int, services: Services) -> Round:
    """Run a round."""
    name = f"{spec.link}_{spec.number}_{uuid4().hex[:6]}"
    path = services.folder / name
    path.touch()
    arrivals = Arrivals(path)
    _, url = services.store(spec.store)
    if spec.link == "executors":
        services.spark()
    drivers = [Driver(spec, name, arrivals, services) for _ in range(spec.drivers)]
    watcher = None
    with logged() as log, ExitStack() as stack:
        if spec.carrier == "resident":
            stack.enter_context(slots_through(drivers[0].link))
        if spec.carrier != "rdd":  # whose link is that of all rounds
            for driver in drivers:
                stack.enter_context(driver.link)
        try:
            for driver in drivers:
                # On a busy machine the short waits may be over in the middle of it.
                retry(driver.start, InfrastructureError)
                stack.callback(driver.stop, 0.0)
            watcher = Watcher(url, name, arrivals, opaque=spec.kind == "opaque")
            feed = Feed(arrivals)
            stack.callback(feed.close)
            wrong = story(spec, drivers, watcher, arrivals, feed)
        finally:
            if watcher is not None:
                watcher.close()
        wrong = wrong or watcher.wrong
        if wrong:
            wrong = "\n".join([wrong, *log])
    return Round(
        link=spec.link,
        number=spec.number,
        seed=seed,
        fault=spec.fault,
        store=spec.store,
        carrier=spec.carrier,
        drivers=spec.drivers,
        txids=watcher.txid,
        takeovers=sum(driver.terms for driver in drivers) - 1,
        deposed=sum(isinstance(driver.run.exception(), FencedError) for driver in drivers),
        samples=watcher.samples,
        stall_s=round(watcher.stall_s, 2),
        wrong=wrong,
    )


def story(
    spec: Drawn, drivers: list[Driver], watcher: Watcher, arrivals: Arrivals, feed: Feed
) -> str:
    """Begin the fault and end it, wait until all is counted, and return what went wrong."""

    def reached(condition: Callable[[], bool]) -> Callable[[], bool]:
        def is_over() -> bool:
            going_on = [driver for driver in drivers if driver.error() is None]
            return condition() or bool(watcher.wrong) or not going_on

        return is_over

    try:
        wait_until(reached(lambda: watcher.count > 0), "a first txid is committed", LIMIT_S)
        time.sleep(spec.before_s)
        chance = Random(spec.number)
        leader = max(drivers, key=lambda driver: driver.leads_since_s)
        fault, executors = FAULTS[spec.fault], spec.link == "executors"
        hit = drivers if spec.everywhere or executors else [leader]
        for driver in hit:
            driver.link.begin(fault, chance, everywhere=spec.everywhere or not executors)
        time.sleep(spec.fault_s)
        for driver in hit:
            driver.link.heal()
        time.sleep(0.1)
        feed.close()
        total = arrivals.there()
        wait_until(
            reached(lambda: watcher.count == total),
            lambda: f"all {total} numbers are counted; {watcher.count} are",
            LIMIT_S,
        )
    except NeverHappenedError as error:
        with tempfile.TemporaryFile("w+") as file:
            faulthandler.dump_traceback(file)
            file.seek(0)
            return f"it hangs: {error}\n{file.read()}"
    for driver in drivers:
        end = driver.error()
        if end is not None and not (isinstance(end, FencedError) and spec.drivers > 1):
            return f"a driver has ended with {end!r}"
    if watcher.count != total and not watcher.wrong:
        return f"all drivers have ended, and {watcher.count} of {total} numbers are counted"
    for driver in drivers:
        if driver.error() is None and not driver.stop(LIMIT_S):
            return f"a driver does not stop in {LIMIT_S:g} s"
    return ""


@contextmanager
def logged() -> Iterator[collections.deque[str]]:
    """Keep the last records of the log instead of showing them."""
    kept: collections.deque[str] = collections.deque(maxlen=200)
    logger = logging.getLogger("txtopo")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            kept.append(f"{record.created:.2f} {record.levelname} {record.getMessage()}")

    handler = Keep()
    logger.addHandler(handler)
    propagate, logger.propagate = logger.propagate, False
    try:
        yield kept
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagate
