"""Random programs of the stream API against the same programs in plain Python."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.simulated.fresh_seeds import fresh_seeds
from tests.unit.streams.programs import random_program
from tests.unit.streams.seeds import ROWS as COUNT
from tests.unit.streams.seeds import assert_promises_kept, judged_program
from tests.unit.streams.worlds import (
    LOCAL,
    SALE,
    plain_tables,
    run,
    sales,
    simulated,
    topology_of,
)
from txtopo import Config, Fields, open_state
from txtopo.spouts import MemoryTransactionalSpout

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.config import Carrier

pytestmark = pytest.mark.integration
ROWS = sales(COUNT)


def slow(seed: int) -> Any:
    """Return a parameter of ``make test-all``."""
    return pytest.param(seed, marks=pytest.mark.slow)


@pytest.mark.parametrize("first", [0, 10, *(slow(first) for first in range(20, 100, 10))])
def test_random_programs_are_right_whatever_crashes(first: int) -> None:
    """Every second one commits txids in groups."""
    are_right(range(first, first + 10))


def test_fresh_programs_are_right_whatever_crashes() -> None:
    are_right(fresh_seeds(3))


def are_right(seeds: Iterable[int]) -> None:
    for seed in seeds:
        assert_promises_kept(judged_program(seed))


def ran(program: Any, folder: Path, parallelism: int, config: Config, spark: Any = None) -> Any:
    url = f"sqlite:///{folder / 'states.db'}"
    tables: list[str] = []

    def state(name: str, **more: Any) -> Any:
        tables.append(name)
        return open_state(url, table=name, **more)

    spout = MemoryTransactionalSpout({0: ROWS[::2], 1: ROWS[1::2]}, Fields(SALE), 4)
    run(topology_of(program, spout, parallelism, state), config, spark)
    held = {}
    for name in tables:
        with open_state(url, table=name).reader() as reader:
            held[name] = {key: as_dict(value) for key, value in reader.items()}
    return held


def as_dict(value: Any) -> tuple[Any, ...]:
    return tuple(value.values()) if isinstance(value, dict) else (value,)


def expected(program: Any) -> Any:
    batches = [ROWS[::2][n : n + 4] + ROWS[1::2][n : n + 4] for n in range(0, 10, 4)]
    tables = plain_tables(program, batches)
    return {
        name: {key: tuple(value.values()) for key, value in table.items()}
        for name, table in tables.items()
    }


@pytest.mark.parametrize("seed", [0, 1, *(slow(seed) for seed in range(2, 6))])
def test_neither_parallelism_nor_slots_change_a_result(seed: int, tmp_path: Path) -> None:
    program = random_program(seed)

    for number, (parallelism, slots) in enumerate([(1, 1), (3, 2), (4, 3)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        config = Config(carrier="local", zookeeper="memory", slots=slots)
        assert ran(program, folder, parallelism, config) == expected(program)


@pytest.mark.spark
@pytest.mark.parametrize("carrier", ["rdd", "resident"])
def test_programs_are_the_same_on_spark(
    carrier: Carrier, spark: SparkSession, tmp_path: Path
) -> None:
    for seed in (3, 4):
        folder = tmp_path / str(seed)
        folder.mkdir()
        config = Config(carrier=carrier, zookeeper="memory")
        assert ran(random_program(seed), folder, 2, config, spark) == expected(random_program(seed))


def test_a_program_of_one_seed_is_always_the_same() -> None:
    rows = sales(6)
    verdicts = [simulated(random_program(7), 7, rows, LOCAL) for _ in range(2)]

    assert list(verdicts[0].history.lines()) == list(verdicts[1].history.lines())
