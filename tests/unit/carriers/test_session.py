from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tests.harness.processes import run_child
from txtopo import Count, Fields, PersistentAggregate, TransactionalTopologyBuilder, open_state
from txtopo.carriers.daemon import FreezingCollector
from txtopo.carriers.session import added, not_fetched, open_session, tuned_conf
from txtopo.carriers.spark_log import short_log
from txtopo.errors import ConfigError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.uncaught import TRACEBACK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_session_that_is_given_or_active_is_used_as_it_is(spark: SparkSession) -> None:
    before = dict(spark.sparkContext.getConf().getAll())

    given, given_owned = open_session(spark, conf={"spark.sql.shuffle.partitions": "99"})
    active, active_owned = open_session(conf={"spark.sql.shuffle.partitions": "99"})

    assert (given, given_owned, active, active_owned) == (spark, False, spark, False)
    assert dict(spark.sparkContext.getConf().getAll()) == before
    assert spark.conf.get("spark.sql.shuffle.partitions") != "99"


def test_workers_are_used_again_and_freeze_after_their_first_task(spark: SparkSession) -> None:
    def about(number: int) -> tuple[int, bool]:
        import os

        return os.getpid(), gc.get_freeze_count() > 0

    numbers = spark.sparkContext.range(0, 2, numSlices=2)
    known, again = set[int](), 0
    for _ in range(8):  # Spark takes idle workers in turn, and another one when two tasks meet
        found = dict(numbers.map(about).collect())
        assert all(found[worker] for worker in found.keys() & known)
        again += len(found.keys() & known)
        known |= found.keys()

    assert again


def test_a_session_that_was_stopped_is_refused_before_anything_asks_it() -> None:
    """As in a notebook, where a cell further up stops the session."""
    from pyspark.sql import SparkSession

    stopped = object.__new__(SparkSession)
    vars(stopped).update(_sc=SimpleNamespace(_jsc=None), _jvm=None)
    spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("words", "words", spout)
    count = PersistentAggregate(open_state("memory:"), "word", Count())
    builder.set_bolt("count", count).fields_grouping("words", "word")

    with pytest.raises(ConfigError, match="the Spark session has been stopped"):
        builder.build_topology().start(stopped)


def test_a_master_in_place_of_a_session_is_answered_with_what_to_write() -> None:
    master: Any = "local[2]"

    with pytest.raises(ConfigError, match=r"write open_session\(master='local\[2\]'\)"):
        open_session(master)


def test_a_jvm_that_txtopo_starts_logs_no_stack_traces_unless_the_user_configures_the_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "LOG4J_CONFIGURATION_FILE"
    for each in (name, "SPARK_HOME", "SPARK_CONF_DIR", TRACEBACK):
        monkeypatch.delenv(each, raising=False)
    with short_log():
        assert os.environ[name].endswith("/txtopo/carriers/log4j2.properties")
    assert name not in os.environ

    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "log4j2.properties").touch()
    with short_log():
        assert name not in os.environ
    monkeypatch.delenv("SPARK_CONF_DIR")
    monkeypatch.setenv(TRACEBACK, "1")
    with short_log():
        assert name not in os.environ


def test_a_session_elsewhere_is_not_bound_to_this_machine() -> None:
    assert "spark.driver.host" in tuned_conf("local[2]")
    assert "spark.driver.host" not in tuned_conf("spark://elsewhere:7077")
    assert "spark.executorEnv.PYTHONPATH" not in tuned_conf("yarn")


@pytest.fixture
def unfrozen() -> Iterator[None]:
    """Undo what conftest.py has frozen, which would count as well."""
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.integration
@pytest.mark.usefixtures("unfrozen")
def test_the_first_collection_freezes_what_is_left() -> None:
    collector = FreezingCollector()

    collector.collect()
    frozen = gc.get_freeze_count()
    collector.collect()

    assert frozen > 10_000
    assert gc.get_freeze_count() <= frozen


@pytest.mark.spark
def test_a_run_whose_session_is_stopped_ends_and_says_so(tmp_path: Path) -> None:
    """No job runs on a stopped session, so the run would fail and retry for ever.

    Or it would wait for ever, for a job that Spark has dropped. A run that was to be started again
    is not.
    """
    child = run_child("tests.unit.runtime.stopped_session", str(tmp_path))

    (ended,) = child.events("ended")
    assert "the Spark session was stopped while the topology was running on it" in ended["error"]
    assert ended["failures"] <= 1
    (dropped,) = child.events("dropped")
    assert "the Spark session was stopped while the topology was running on it" in dropped["error"]
    assert dropped["failures"] == 0
    (restarted,) = child.events("restarted")
    assert restarted["restarts"] == 1
    assert "ConfigError" in restarted["error"]
    assert "the Spark session has been stopped" in restarted["error"]


@pytest.mark.parametrize(
    ("given", "value", "together"),
    [
        (None, "io.delta:one:1", "io.delta:one:1"),
        ("org.own:two:2", "io.delta:one:1", "org.own:two:2,io.delta:one:1"),
        ("io.delta:one:1", "io.delta:one:1", "io.delta:one:1"),
    ],
)
def test_what_the_environment_sets_is_kept_beside_what_a_store_needs(
    given: str | None, value: str, together: str
) -> None:
    assert added(given, value) == together


def test_a_session_that_cannot_fetch_its_packages_says_what_to_do() -> None:
    error = not_fetched(RuntimeError("JAVA_GATEWAY_EXITED"), "io.delta:one:1")
    assert "TXTOPO_JARS" in str(error)
    assert (error.setting, error.got) == ("spark.jars.packages", "io.delta:one:1")
