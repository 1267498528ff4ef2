"""Random programs with event time against the same programs in plain Python."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from state_backends.sql.backend import SqlBackend
from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.unit.streams.__main__ import JUDGES, of_seed, section
from tests.unit.streams.seeds import assert_promises_kept, judged_timed_program
from tests.unit.streams.timed_programs import random_timed_program, sources_of
from tests.unit.streams.worlds import (
    LOCAL,
    TIMED,
    run,
    timed_sales,
    timed_tables,
    timed_topology,
)
from txtopo import Config, Count, Fields, open_state
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.streams import tumbling

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import Carrier

pytestmark = pytest.mark.integration

# More than rows of one partition are out of order.
DELAY = "15 minutes"
MORE = [pytest.param(first, marks=pytest.mark.slow) for first in range(20, 200, 10)]
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))]


@pytest.fixture(autouse=True)
def nothing_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that have expired may be deleted at any time; the tables are compared with all rows."""
    monkeypatch.setattr(SqlBackend, "expire", lambda *arguments: False)


@pytest.mark.parametrize("first", [0, 10, *MORE])
@pytest.mark.rule("txtopo.streams.event_time", "Rules", 2)
def test_random_programs_with_event_time_are_right_whatever_crashes(first: int) -> None:
    """Every second one commits txids in groups."""
    are_right(range(first, first + 10))


def test_fresh_programs_with_event_time_are_right_whatever_crashes() -> None:
    are_right(fresh_seeds(3))


def are_right(seeds: Iterable[int]) -> None:
    for seed in seeds:
        assert_promises_kept(judged_timed_program(seed))


def test_the_report_says_how_many_there_were_and_what_they_had() -> None:
    found = of_seed(3)
    found.seeds = 7

    lines = section("some --seeds 7", found)

    assert "    some --seeds 7" in lines
    families = len(JUDGES)
    assert f"* {7 * families} programs of {families} families, 0 with a violation" in lines


def in_order(count: int, seed: int, source: str) -> list[list[Any]]:
    """Rows of which none is further behind than the delay."""
    rows = timed_sales(count, seed, source)
    newest, kept = rows[0][3], []
    for row in rows:
        if (newest - row[3]).total_seconds() < 15 * 60:
            kept.append(row)
            newest = max(newest, row[3])
    return kept


def ran(
    program: Any,
    seed: int,
    folder: Path,
    *,
    take: int = 4,
    parallelism: int = 1,
    config: Config = LOCAL,
    spark: Any = None,
) -> dict[str, Any]:
    folder.mkdir()
    url = f"sqlite:///{folder / 'states.db'}"
    spouts = {
        id: MemoryTransactionalSpout({0: in_order(20, seed, id[0])}, Fields(TIMED), take)
        for id in sources_of(seed)
    }

    def state(name: str, **more: Any) -> Any:
        return open_state(url, table=name, **more)

    run(timed_topology(program, spouts, parallelism, state), config, spark)
    held = {}
    for name in timed_tables(program, []):
        with open_state(url, table=name).reader() as reader:
            held[name] = {key: as_values(value) for key, value in reader.items()}
    return held


def as_values(value: Any) -> tuple[Any, ...]:
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def expected(program: Any, seed: int, take: int) -> dict[str, Any]:
    rows = [in_order(20, seed, id[0]) for id in sources_of(seed)]
    batches = [
        [row for each in rows for row in each[start : start + take]] for start in range(0, 20, take)
    ]
    return {
        name: {key: tuple(value.values()) for key, value in table.items()}
        for name, table in timed_tables(program, batches).items()
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_without_late_rows_the_cut_changes_no_result(seed: int, tmp_path: Path) -> None:
    program = random_timed_program(seed, DELAY, changes=False, planned=False)
    found = {
        take: ran(program, seed, tmp_path / str(take), take=take, parallelism=1 + take % 3)
        for take in (1, 4, 20)
    }

    assert found[1] == found[4] == found[20] == expected(program, seed, 7)
    assert not any(rows for name, rows in found[1].items() if name.endswith("_late"))


@pytest.mark.parametrize("seed", SEEDS)
def test_neither_parallelism_nor_slots_change_a_result(seed: int, tmp_path: Path) -> None:
    program = random_timed_program(seed, "0 seconds", planned=False)
    for number, (parallelism, slots) in enumerate([(1, 1), (3, 2), (4, 3)]):
        config = Config(carrier="local", zookeeper="memory", slots=slots)
        held = ran(program, seed, tmp_path / str(number), parallelism=parallelism, config=config)

        assert held == expected(program, seed, 4)


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "resident"])
def test_programs_with_event_time_are_the_same_on_spark(
    carrier: Carrier, spark: SparkSession, tmp_path: Path
) -> None:
    for seed in (3, 4):
        program = random_timed_program(seed, "2 minutes", planned=False)
        config = Config(carrier=carrier, zookeeper="memory")
        folder = tmp_path / str(seed)
        held = ran(program, seed, folder, parallelism=2, config=config, spark=spark)
        assert held == expected(program, seed, 4)


@pytest.mark.parametrize("take", [1, 3, 10])
def test_what_is_kept_and_what_is_late_make_all_rows(take: int, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'states.db'}"
    rows = timed_sales(120, take)

    def program(builder: Any, source: Any, state: Any) -> None:
        sales = source("sales", event_time="ts", delay="3 minutes")
        counted = sales.group_by("shop").window(tumbling("5 minutes"))
        counted.persistent_aggregate(state("kept"), n=Count())

    spout = MemoryTransactionalSpout({0: rows[::2], 1: rows[1::2]}, Fields(TIMED), take)

    def state(name: str) -> Any:
        return open_state(url, table=name)

    run(timed_topology(program, {"sales": spout}, 2, state))
    held = []
    for name in ("kept", "kept_late"):
        with open_state(url, table=name).reader() as reader:
            held.append(Counter({key: row["n"] for key, row in reader.items()}))

    kept, late = held
    assert late
    assert kept + late == Counter(
        (at.replace(minute=at.minute // 5 * 5, second=0, microsecond=0), shop)
        for _, shop, _, at in rows
    )
