"""The programs of Storm's page under real faults: killed processes, a ZooKeeper that pauses."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from tests.faults.storm.process import KilledAfter
from tests.faults.storm.programs import (
    RECORDS,
    Database,
    Tables,
    expected_top_words,
    global_count,
    goes_back,
    opaque_count,
    top_words,
)
from tests.harness.dying import Died
from tests.harness.polling import LIMIT_S
from tests.harness.processes import Child
from tests.harness.runs import LOCAL, Changes, on, started
from tests.harness.servers.zookeeper import ZooKeeperProcess
from txtopo import ZooKeeper
from txtopo.config import Carrier, Config
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import TxtopoError
from txtopo.runtime.commit_permit import CommitPermit
from txtopo.runtime.progress import BatchCommitted, Leading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROCESS = "tests.faults.storm.process"
EXPECTED = {
    "global": {"global": RECORDS},
    "opaque": {"global": RECORDS},
    "words": expected_top_words(),
}
DEATH = 15
SESSION_S = 1.0


@pytest.fixture
def database(tmp_path: Path) -> Database:
    return Database.new(tmp_path)


def check(database: Database, expected: dict[str, int]) -> None:
    assert {key: count for key, count in database.counts().items() if count} == expected
    assert goes_back(database.work()) == []


on_each_carrier = pytest.mark.parametrize(
    "carrier",
    [
        "local",
        pytest.param("rdd", marks=[pytest.mark.spark, pytest.mark.slow]),
        pytest.param("resident", marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)


@pytest.mark.kills
@pytest.mark.parametrize("program", EXPECTED)
@on_each_carrier
def test_a_driver_that_is_killed_after_a_write_counts_nothing_twice(
    zookeeper: ZooKeeperProcess, database: Database, program: str, carrier: str
) -> None:
    """Also if a worker of Spark has written, and lives a little longer than its driver."""
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    arguments = (program, carrier, database.path, hosts)

    with Child(PROCESS, *arguments, str(DEATH)) as killed:
        killed.wait()
    assert max(txid for _, txid in database.work()) == DEATH
    with Child(PROCESS, *arguments) as again:
        again.wait_for("done")

    check(database, EXPECTED[program])


EXECUTING = "tests.faults.storm.executing"
EXECUTED, COMMITTED = "write.before:sum.here", "write.after:sum.here"
SLOW = pytest.mark.slow
POSTGRESQL = (SLOW, pytest.mark.service("postgresql"))


@pytest.mark.kills
@pytest.mark.parametrize(
    ("carrier", "spout", "step", "server"),
    [
        ("local", "opaque", COMMITTED, ""),
        pytest.param("local", "opaque", EXECUTED, "", marks=SLOW),
        pytest.param("local", "repeats", COMMITTED, "", marks=SLOW),
        pytest.param("local", "opaque", EXECUTED, "postgresql", marks=POSTGRESQL),
        pytest.param("local", "opaque", COMMITTED, "postgresql", marks=POSTGRESQL),
        pytest.param("local", "repeats", COMMITTED, "postgresql", marks=POSTGRESQL),
        pytest.param("rdd", "repeats", COMMITTED, "", marks=[pytest.mark.spark, SLOW]),
        pytest.param("resident", "opaque", COMMITTED, "", marks=[pytest.mark.spark, SLOW]),
    ],
)
def test_a_driver_that_is_killed_has_executed_sql_with_its_txids_or_not_at_all(
    zookeeper: ZooKeeperProcess,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    carrier: str,
    spout: str,
    step: str,
    server: str,
) -> None:
    """In groups of txids, right before and right after COMMIT; a replay has other records, if it
    may. The other state has nothing of the group yet, so it is written again."""
    url = f"sqlite:///{tmp_path}/own.db"
    if server:
        url = str(request.getfixturevalue(server).create_schema(f"executing{uuid4().hex[:8]}"))
    tables = Tables.new(url, f"sqlite:///{tmp_path}/other.db")
    hosts = f"{zookeeper.hosts}/{uuid4().hex}"
    before, after = (3, 2) if spout == "opaque" else (2, 2)

    with Child(EXECUTING, carrier, url, tables.other, spout, str(before), hosts, step) as killed:
        killed.wait()
    held, words = tables.held(), tables.total()
    with Child(EXECUTING, carrier, url, tables.other, spout, str(after), hosts) as again:
        again.wait_for("done")

    assert held == ([(4, 6), (1, 3)] if step == COMMITTED else [(1, 3), (1, 3)])
    assert words == (6 if step == COMMITTED else 3) * before
    assert tables.counts() == [RECORDS] * 4
    assert tables.astray() == []


class Pauses(Changes):
    """Stops ZooKeeper's time, for longer than a session, when a txid is committed."""

    def __init__(self, zookeeper: ZooKeeperProcess, txids: set[int]) -> None:
        super().__init__(self._pause)
        self._zookeeper, self._txids = zookeeper, txids

    def _pause(self, change: object) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid in self._txids:
            self._zookeeper.freeze()
            time.sleep(1.5 * SESSION_S)  # this is the fault
            self._zookeeper.thaw()


@pytest.mark.service("zookeeper")
@pytest.mark.parametrize("program", [global_count, opaque_count])
def test_a_zookeeper_that_pauses_for_longer_than_a_session_doubles_nothing(
    zookeeper: ZooKeeperProcess, database: Database, program: type
) -> None:
    """Nobody dies; the process loses its session, and is elected again."""
    config = replace(
        LOCAL, zookeeper=ZooKeeper(f"{zookeeper.hosts}/{uuid4().hex}", session_timeout_s=1.0)
    )
    changes = Pauses(zookeeper, {4, 9, 14})

    with program(database).start(config=config, listeners=[changes]) as run:
        run.process_all_available(LIMIT_S)

    assert len(changes.of(Leading)) > 1
    check(database, {"global": RECORDS})


def dies_after(written: int) -> None:
    """End the work of a driver right after a write."""
    if written == DEATH:
        raise Died(f"after the write of txid {DEATH}")


@pytest.mark.kills
@pytest.mark.parametrize("carrier", [pytest.param("rdd", marks=pytest.mark.slow), "resident"])
def test_on_spark_committers_that_die_after_a_write_count_nothing_twice(
    spark: SparkSession,
    database: Database,
    tmp_path: Path,
    carrier: Carrier,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The committer of the first program dies in the driver, whose work ends; two of the second
    have tasks, and die with the process of their worker."""
    config, ensemble = on(carrier, replace(LOCAL, attempts_max=None)), MemoryEnsemble()
    dying = global_count(replace(database, dies=dies_after))
    with (
        started(dying, config, ensemble, spark=spark) as run,
        pytest.raises((TxtopoError, RuntimeError), match="Died"),
    ):
        run.await_termination(LIMIT_S)
    assert database.counts() == {"global": DEATH}
    finish(spark, config, ensemble, global_count(database))
    check(database, {"global": RECORDS})

    (tmp_path / "words").mkdir()
    words, asked = Database.new(tmp_path / "words"), list[CommitPermit]()
    ask = CommitPermit.ask

    def counted(permit: CommitPermit) -> None:
        asked.append(permit)
        ask(permit)

    monkeypatch.setattr(CommitPermit, "ask", counted)
    finish(spark, config, ensemble, top_words(replace(words, dies=KilledAfter(DEATH))))
    check(words, expected_top_words())
    # Before the tasks of each level; the two counting bolts are on levels of their own.
    assert len(asked) >= 2 * RECORDS


def finish(spark: SparkSession, config: Config, ensemble: MemoryEnsemble, topology: object) -> None:
    with started(topology, config, ensemble, spark=spark) as run:  # type: ignore[arg-type]
        run.process_all_available(LIMIT_S)
