"""Without the jars Spark writes no Delta tables, and everything else works."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from state_backends.delta.layout import Layout
from state_backends.delta.spark import SparkMerger
from state_backends.delta.spark_session import JARS, check_session, session_conf
from state_backends.delta.tables import transaction
from txtopo import Fields
from txtopo.errors import ConfigError, TopologyError
from txtopo.frames.states import frames_refused
from txtopo.plugins.stores import StateTable
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import Drive, StoreFixtures, whole_ledger

pytestmark = pytest.mark.integration


class Settings:
    """A session, of which only the settings are asked for."""

    def __init__(self, **settings: str) -> None:
        self.conf = self
        self._settings = settings

    def get(self, name: str, default: str) -> str:
        return self._settings.get(name, default)


class Session(Settings):
    """A session that notes what is set in it, and in the sessions that are made of it."""

    read: Frame

    def __init__(self) -> None:
        super().__init__()
        self.made: list[Session] = []

    def newSession(self) -> Session:
        self.made.append(Session())
        return self.made[-1]

    def set(self, name: str, value: str) -> None:
        self._settings[name] = value


@pytest.mark.rule("state_backends.delta.spark", "Rules", 1, 3)
def test_a_merge_has_a_session_of_its_own_with_the_transaction_of_its_ledger() -> None:
    """Delta for Spark has no other way to say which one; delta-rs writes the same."""
    layout = Layout(StateTable("counts", "opaque", Fields("k string"), Fields("n long")))
    ledger = whole_ledger("words", 3, 7, 3, 1)
    theirs: Any = Session()

    SparkMerger(layout, "/nowhere")._session(theirs, ledger)

    (ours,) = theirs.made
    (expected,) = transaction(ledger, "counts").app_transactions or []
    prefix = "spark.databricks.delta.write.txn"
    assert ours.get(f"{prefix}AppId", "") == expected.app_id == "words/counts"
    assert ours.get(f"{prefix}Version", "") == str(expected.version)
    assert theirs._settings == {}


class Frame:
    """A frame that notes what it was made by."""

    def __init__(self, *made: tuple[str, tuple[Any, ...]]) -> None:
        self.made = made

    def __getattr__(self, name: str) -> Callable[..., Frame]:
        return lambda *given: Frame(*self.made, (name, given))


@pytest.mark.rule("state_backends.delta.spark", "Rules", 2)
def test_each_merge_takes_back_what_its_txid_has_written_by_then() -> None:
    """Also the first attempt that a backend knows of: another may have come in between."""
    layout = Layout(StateTable("counts", "opaque", Fields("k string"), Fields("n long")))
    merger, session = SparkMerger(layout, "/nowhere"), Session()
    rows: Any = Frame()
    session.read = Frame()

    source: Any = merger._with_undo(session, rows, 7, tombstones=False)  # type: ignore[arg-type]

    ((union, (undone,)),) = source.made
    assert union == "unionByName"
    assert undone.made[:3] == (
        ("format", ("delta",)),
        ("load", ("/nowhere",)),
        ("where", ("txid = 7",)),
    )


def test_without_jars_spark_fetches_those_of_the_installed_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(JARS, raising=False)
    monkeypatch.setattr("sys.prefix", str(tmp_path))

    found = session_conf()
    spark = ".".join(version("pyspark").split(".")[:2])
    wanted = f"io.delta:delta-spark_{spark}_2.13:{version('delta-spark')}"
    assert found["spark.jars.packages"] == wanted
    assert "DeltaSparkSessionExtension" in found["spark.sql.extensions"]
    assert "spark.driver.extraClassPath" not in found


def test_a_named_folder_without_jars_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS, str(tmp_path))

    with pytest.raises(ConfigError, match="unset the variable to let Spark fetch them") as caught:
        session_conf()
    assert str(tmp_path) in str(caught.value)

    (tmp_path / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    assert session_conf()["spark.driver.extraClassPath"].endswith("delta-spark_4.2_2.13-4.4.0.jar")


def test_a_session_that_cannot_is_refused() -> None:
    plain: Any = Settings()

    with pytest.raises(ConfigError, match=r"DeltaSparkSessionExtension.*let txtopo build it"):
        check_session(plain)


def test_a_session_of_spark_connect_is_refused() -> None:
    """At the start, and not when the first batch is to be committed."""
    kind: Any = type("SparkSession", (Settings,), {"__module__": "pyspark.sql.connect.session"})
    remote = kind(**{"spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension"})

    with pytest.raises(ConfigError, match=r"Spark Connect.*classic session.*writer=spark"):
        check_session(remote)


def test_a_writer_that_there_is_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TopologyError, match=r"bad writer.*'flink'"):
        open_state(f"delta://{tmp_path}?writer=flink")


@pytest.mark.parametrize(
    ("query", "mode", "reason"),
    [
        ("", "table", "writer=spark"),
        ("?writer=spark", "log", "mode 'log'"),
        ("?writer=spark", "table", None),
    ],
)
def test_frames_are_taken_where_the_url_says_so(
    tmp_path: Path, query: str, mode: Any, reason: str | None
) -> None:
    state = open_state(f"delta://{tmp_path}{query}", table="counts", mode=mode)

    refused = frames_refused(state)

    assert refused is None if reason is None else reason in str(refused)


class TestWithoutJars(StoreFixtures):
    @pytest.fixture
    def url(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
        monkeypatch.setenv(JARS, str(tmp_path))
        return f"delta://{tmp_path}/states?writer=spark"

    def test_rows_are_committed_without_spark(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        store.merge(1, [("a", 1)])

        assert store.contents() == {"a": 1}
