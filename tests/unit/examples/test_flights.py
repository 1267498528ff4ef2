"""The main job on real input: its totals are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from examples import flights, flights_check
from txtopo import Config

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[3]


def test_each_line_is_in_one_part_and_cutting_again_changes_nothing(tmp_path: Path) -> None:
    lines = [b"a,b\n", *(b"%d,x\n" % n for n in range(21))]

    flights.cut(tmp_path / "input", b"".join(lines))
    flights.cut(tmp_path / "input", b"something else")

    parts = [part.read_bytes().splitlines(True) for part in sorted((tmp_path / "input").iterdir())]
    assert len(parts) == flights.PARTITIONS
    assert all(part[0] == b"a,b\n" for part in parts)
    assert [line for part in parts for line in part[1:]] == lines[1:]


@pytest.mark.integration
def test_a_flight_without_departure_is_a_cancellation_and_adds_no_delay(tmp_path: Path) -> None:
    header = b"carrier,hour,dep_time,dep_delay\n"
    rows = [b"UA,5,517,2\n", b"UA,5,NA,NA\n", b"UA,5,515,-3\n", b"EV,6,600,0\n"]
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    flights.cut(tmp_path / "input", header + b"".join(rows), parts=2)

    topology = flights.flights(tmp_path / "input", state, batch_bytes=30)
    flights.main(topology, config=Config(carrier="local", zookeeper="memory", slots=2))

    counted = flights_check.counted_by_txtopo(state, "flights").to_dict("index")
    assert list(counted[("UA", 5)].values()) == [2, -1, 1]
    assert list(counted[("EV", 6)].values()) == [1, 0, 0]
    assert flights_check.total_in_store(state, "flights") == {
        "departures": 3,
        "delay_minutes": -1,
        "cancellations": 1,
    }


def test_the_known_totals_of_2013(spark: SparkSession, tmp_path: Path) -> None:
    state = f"sqlite:///{tmp_path / 'flights.db'}"
    flights.cut(tmp_path / "input", flights.flights_csv())

    topology = flights.flights(tmp_path / "input", state, batch_bytes=2_000_000)
    flights.main(topology, spark, Config(zookeeper="memory"))

    counted = flights_check.counted_by_txtopo(state, "flights")
    by_carrier = counted.groupby("carrier").sum().to_dict("index")
    assert len(counted) == 207
    assert list(by_carrier["UA"].values())[:2] == [57_979, 701_898]
    assert list(by_carrier["EV"].values())[:2] == [51_356, 1_024_829]
    assert list(by_carrier["HA"].values())[:2] == [342, 1_676]
    assert flights_check.total_in_store(state, "flights") == {
        "departures": 328_521,
        "delay_minutes": 4_152_200,
        "cancellations": 8_255,
    }
    assert flights_check.compare(state, "flights", Console(quiet=True))


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.kills
def test_the_demo_is_killed_three_times_and_agrees_with_pandas(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.demo", "--seed", "1", "--dir", str(tmp_path)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("killed (SIGKILL)") == 3
    assert "store and pandas are equal" in done.stdout
