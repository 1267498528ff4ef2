"""States in Delta tables that Spark writes: the rules, and that both writers fence each other."""

from __future__ import annotations

import datetime
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from state_backends.delta.backend import DeltaBackend
from state_backends.delta.spark import SparkMerger
from state_backends.delta.tables import application, packed
from tests.unit.state_backends.delta.by_spark import SCHEME, framed, register
from tests.unit.state_backends.delta.names import DeltaNames
from tests.unit.state_backends.delta.tables import table_of
from txtopo import Fields, TransactionAttempt
from txtopo.errors import FencedError, PromiseError, ValueRefusedError
from txtopo.plugins.stores import FrameWrites, Puts
from txtopo.state import Count, Ledger, State, open_state
from txtopo.testing.conformance import StateBackendSuite
from txtopo.testing.conformance.combining_suites import HistorySuite
from txtopo.testing.conformance.driver import (
    Drive,
    StateDriver,
    StoreFixtures,
    partials,
    putting,
    whole_ledger,
)
from txtopo.testing.conformance.driver import packed as puts
from txtopo.testing.conformance.ledger_suites import (
    FenceSuite,
    OutcomeSuite,
    RestartSuite,
    UndoSuite,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.service("delta-spark"), pytest.mark.usefixtures("spark")]


def merge(store: StateDriver, txid: int, rows: list[tuple[str, int]], attempt: int = 0) -> Ledger:
    """Commit partial aggregates by Spark."""
    assert isinstance(store.backend, DeltaBackend)
    writes = framed(store.state.layout(), partials(store.state, rows))
    return store.backend.apply_frame(store.attempt(txid, attempt), writes)


class TestBySpark(StoreFixtures):
    """Each merge of Spark's costs 5 s of processor time here, so there are few."""

    @pytest.mark.slow
    def test_replays_of_both_writers_undo_each_other(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        store.merge(1, [("a", 1), ("b", 1)])
        merge(store, 2, [("a", 10), ("new", 1)])
        assert store.contents() == {"a": 11, "b": 1, "new": 1}
        store.merge(2, [("b", 5)], attempt=1)
        assert store.contents() == {"a": 1, "b": 6}
        assert merge(store, 2, [("a", 1), ("a", 2)], attempt=2) == whole_ledger(
            "topology", 1, 2, 1, 2
        )
        assert store.contents() == {"a": 4, "b": 1}
        assert merge(store, 2, [("a", 3)], attempt=2).attempt == 2, "a replay is held already"
        store.merge(3, [("a", 2), ("c", 1)])
        assert store.contents() == {"a": 6, "b": 1, "c": 1}

    @pytest.mark.slow
    def test_a_claim_fences_spark_and_spark_fences_older_attempts(
        self, counts: State, drive: Drive
    ) -> None:
        old = drive(counts, epoch=1)
        old.merge(1, [("a", 1)], attempt=2)
        for late in (old.merge, lambda *a: merge(old, *a)):
            with pytest.raises(FencedError):
                late(1, [("a", 9)], 1)

        new = drive(counts, epoch=2)
        assert new.ledger == whole_ledger("topology", 2, 1, 1, 2)
        assert merge(new, 1, [("a", 3)]) == whole_ledger("topology", 2, 1, 2, 0)
        assert new.contents() == {"a": 3}
        with pytest.raises(FencedError) as caught:
            merge(old, 2, [("a", 9)])
        assert caught.value.successor == 2
        new.merge(2, [("a", 1)])
        with pytest.raises(PromiseError):
            merge(old, 2, [("a", 9)])
        assert new.contents() == {"a": 4}

    def test_a_zombie_in_the_jvm_that_checked_the_ledger_before_is_fenced(
        self, counts: State, drive: Drive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The claim comes between its reading of the ledger and Spark's merge."""
        old = drive(counts, epoch=1)
        old.merge(1, [("a", 1)])
        write = SparkMerger.write

        def late(self: SparkMerger, *arguments: object, **settings: object) -> None:
            drive(counts, epoch=2)
            write(self, *arguments, **settings)  # type: ignore[arg-type]

        monkeypatch.setattr(SparkMerger, "write", late)
        with pytest.raises(FencedError):
            merge(old, 2, [("a", 9)])

        assert old.contents() == {"a": 1}
        assert old.held() == whole_ledger("topology", 2, 1, 1, 0)

    def test_an_attempt_that_comes_in_before_the_merge_is_undone_by_it(
        self, counts: State, drive: Drive, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Its version is smaller, so Delta lets the merge through: only the undo can help."""
        store, other = drive(counts), drive(counts)
        store.merge(1, [("a", 1), ("b", 1)])
        write = SparkMerger.write

        def late(self: SparkMerger, *arguments: object, **settings: object) -> None:
            other.merge(2, [("a", 50), ("b", 50), ("stray", 50)])
            write(self, *arguments, **settings)  # type: ignore[arg-type]

        monkeypatch.setattr(SparkMerger, "write", late)
        merge(store, 2, [("a", 2)], attempt=1)

        assert store.contents() == {"a": 3, "b": 1}

    def test_spark_merges_into_columns_that_a_claim_has_added(self, url: str, drive: Drive) -> None:
        """It undoes a batch of before the change, too; files of before lack the columns."""
        old = drive(open_state(url, table="paid", value=Fields("paid long")))
        old.puts(1, {"a": 1, "gone": 5})
        old.puts(2, {"a": 2, "gone": None})
        value, defaults = Fields("paid long, refunds long, note string"), {"refunds": 7}
        state = open_state(url, table="paid", value=value, defaults={**defaults, "note": None})
        with closing(StateDriver(state, epoch=2, changes_table=True)) as store:
            assert isinstance(store.backend, DeltaBackend)
            writes = Puts({("b",): (3, 1, "x")})
            store.backend.apply_frame(store.attempt(2, 1), framed(state.layout(), writes))

            before = {"refunds": 7, "note": None}
            assert store.contents() == {
                "a": {"paid": 1, **before},
                "gone": {"paid": 5, **before},
                "b": {"paid": 3, "refunds": 1, "note": "x"},
            }

    def test_a_replay_on_a_fresh_snapshot_is_skipped_and_found(
        self, counts: State, drive: Drive
    ) -> None:
        """The answer was lost: Delta skips the merge that comes again, and the ledger tells.

        It looks at the transaction alone, whoever wrote it: delta-rs here, which is quicker.
        """
        store = drive(counts)
        ledger = store.merge(1, [("a", 1)])
        table = table_of(store)

        writes = framed(counts.layout(), partials(counts, [("a", 1)]))
        uri = table.table_uri.removeprefix("file://")
        SparkMerger(store.backend._layout, uri).write(1, writes, ledger, tombstones=False)  # type: ignore[attr-defined]

        newest = table_of(store)
        assert newest.version() == table.version()
        assert newest.transaction_version(application("topology", counts.layout().name)) == packed(
            ledger
        )
        assert store.contents() == {"a": 1}

    @pytest.mark.slow
    def test_what_cannot_be_stored_exactly_is_refused(self, counts: State, drive: Drive) -> None:
        store = drive(counts)
        store.merge(1, [("a", 2**63 - 1)])

        for rows in ([("a", 1)], [(None, 1)], [("b", 2**63 - 1), ("b", 1)]):
            with pytest.raises(ValueRefusedError):
                merge(store, 2, rows)  # type: ignore[arg-type]

        assert store.contents() == {"a": 2**63 - 1}
        assert store.held() == whole_ledger("topology", 1, 1, 1, 0)

    @pytest.mark.slow
    def test_final_values_and_deletes(self, tmp_path: Path, drive: Drive) -> None:
        state = open_state(f"delta://{tmp_path}/states", table="put", value=Fields("v long"))
        store = drive(state)

        def put(txid: int, rows: dict[str, int | None], attempt: int = 0) -> None:
            assert isinstance(store.backend, DeltaBackend)
            writes = framed(state.layout(), puts(rows))
            store.backend.apply_frame(TransactionAttempt(txid, attempt, 1), writes)

        put(1, {"a": 1, "b": 1})
        put(2, {"a": None, "c": 3})
        assert store.contents() == {"b": 1, "c": 3}
        put(2, {"b": None}, attempt=1)
        assert store.contents() == {"a": 1}
        put(3, {"b": 7})
        assert store.contents() == {"a": 1, "b": 7}
        frame = framed(state.layout(), puts({"x": 1})).frame
        with pytest.raises(ValueRefusedError, match="is used twice"):
            store.backend.apply_frame(TransactionAttempt(4, 0, 1), FrameWrites(frame.union(frame)))  # type: ignore[attr-defined]


class Whole(DeltaNames):
    """What the suite is told of a store whose every commit costs seconds."""

    histories = 2
    keys_max = 5_000
    forks = False  # Spark is in this process

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"{SCHEME}://{tmp_path}/states"


@pytest.mark.slow
@pytest.mark.integration
class TestStateBackend(Whole, StateBackendSuite):
    """All of the suite, every commit merged by Spark.

    The rows of a frame need not be grouped: those of one key are combined where the suite, which
    hands over partial results of the driver, expects that they are refused.
    """

    def test_a_key_twice_in_a_batch_is_refused_whole(self, counts: State, drive: Drive) -> None:
        store = drive(counts)

        store.merge(1, [("a", 1), ("b", 1), ("a", 1)])

        assert store.contents() == {"a": 2, "b": 1}

    def test_null_and_nan_are_no_keys_and_zero_has_no_sign(self, url: str, drive: Drive) -> None:
        state = self.aggregated(url, "keys", Fields("x double"), Fields("n long"), (Count(),))
        store = drive(state)

        for key in (None, float("nan")):
            with pytest.raises(ValueRefusedError):
                store.merge(1, [(key, 1)])
        store.merge(1, [(-0.0, 1)])
        store.merge(2, [(0.0, 1), (-0.0, 1)])

        assert store.contents() == {0.0: 3}
        assert str(next(iter(store.contents()))) == "0.0"


@pytest.mark.slow
class TestByBoth(Whole, FenceSuite, UndoSuite, RestartSuite, OutcomeSuite, HistorySuite):
    """Spark and delta-rs take turns."""

    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"{SCHEME}-and-rs://{tmp_path}/states"


register()


@pytest.mark.slow
def test_spark_reads_a_state_by_itself_at_the_version_of_the_reader(
    spark: SparkSession, tmp_path: Path
) -> None:
    url = f"delta://{tmp_path}/states?writer=spark"
    fields = Fields("n long, at timestamp, wall timestamp_ntz")
    state = open_state(url, table="kept", value=fields)
    at = datetime.datetime(2013, 7, 4, tzinfo=datetime.UTC)
    store = StateDriver(state)
    store.run(
        1,
        putting(
            {"a": (1, at, at.replace(tzinfo=None)), "b": (2, None, None), "gone": (3, None, None)}
        ),
    )
    store.puts(2, {"gone": None})

    with state.reader() as reader:
        frame = reader.to_spark(spark)
        table = reader.to_arrow()
    store.run(3, putting({"a": (9, None, None)}))

    assert frame.inputFiles()
    assert frame.schema.simpleString() == (
        "struct<key:string,n:bigint,at:timestamp,wall:timestamp_ntz>"
    )
    found = frame.toArrow().sort_by("key")
    assert found.select(["key", "n"]).to_pydict() == {"key": ["a", "b"], "n": [1, 2]}
    assert found.to_pylist() == table.sort_by("key").to_pylist()
    with state.reader(2) as reader:
        assert reader.to_spark(spark).where("key = 'a'").collect()[0]["n"] == 1
    with open_state(f"delta://{tmp_path}/states", table="kept").reader() as reader:
        through_here = reader.to_spark(spark)
    assert not through_here.inputFiles()
    assert through_here.where("key = 'a'").collect()[0]["n"] == 9
