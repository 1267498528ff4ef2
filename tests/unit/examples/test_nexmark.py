"""The queries of NEXMark: equal to pandas, however the events are cut, and under kills."""

from __future__ import annotations

import datetime
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.nexmark.generator import FIELDS, TOTAL, Generator
from examples.nexmark.queries import QUERIES, Auctions, topology
from examples.nexmark.spout import EventSpout
from tests.harness.nexmark import (
    EXPECTED,
    TABLES,
    Events,
    held,
    of_all_times,
    oracle,
    tables_of,
)
from tests.unit.streams.worlds import judged, planned_time
from txtopo import Config, Max, Mean, open_state
from txtopo.context import EPOCH
from txtopo.testing.own_topology import _run  # simulate, but not of all tables
from txtopo.testing.simulation.clock import ThreadHandoff

LOCAL = Config(carrier="local", zookeeper="memory", slots=2)
# Events of 50 seconds: five tumbling windows close.
GENERATOR = Generator(2_500, rate=50, seed=7)
CUTS = [(200, 2), pytest.param((2_500, 1), marks=pytest.mark.slow)]
# For the simulator: 30 seconds in four batches.
SMALL = Generator(400, rate=13, seed=5)
SEEDS = 1
each_query = pytest.mark.parametrize("query", QUERIES)


@cache
def expected(query: str) -> Any:
    return EXPECTED[query](Events.made_by(GENERATOR))


def test_every_fiftieth_event_is_a_person_and_three_are_auctions() -> None:
    generator = Generator(10_000)
    rows = {kind: generator.all(kind) for kind in FIELDS}

    assert {kind: each.num_rows for kind, each in rows.items()} == {
        "persons": 200,
        "auctions": 600,
        "bids": 9_200,
    }
    assert rows["persons"]["id"].to_pylist() == list(range(1000, 1200))
    assert rows["auctions"]["id"].to_pylist() == list(range(1000, 1600))


def test_an_event_is_the_same_in_whatever_range_it_is_made() -> None:
    for kind in FIELDS:
        parts = [GENERATOR.rows(kind, np.arange(at, at + 37)) for at in range(0, 2_500, 37)]
        found = [row for part in parts for row in part.to_pylist()]

        assert found == GENERATOR.all(kind).to_pylist()


def test_another_seed_makes_other_events() -> None:
    assert not Generator(100, seed=1).all("bids").equals(Generator(100, seed=2).all("bids"))


def test_a_share_of_the_events_is_delayed_and_no_more_than_was_asked() -> None:
    generator = Generator(50_000, rate=1_000, delayed=0.2, delayed_by_ms=500)
    bids = generator.all("bids").to_pandas()
    turns = bids["id"].to_numpy()
    start = np.datetime64("2015-07-15", "ms").astype(np.int64)
    times = bids["date_time"].dt.tz_localize(None).to_numpy().astype("datetime64[ms]")
    back = turns + start - times.astype(np.int64)

    assert 0.19 < (back > 0).mean() < 0.21
    assert back.max() <= 500
    assert back.min() == 0


def test_bids_are_on_auctions_near_their_time() -> None:
    """Joins over time rely on it."""
    generator = Generator(100_000, rate=1_000)
    bids = generator.all("bids").to_pandas()
    auctions = generator.all("auctions").to_pandas()
    both = bids.merge(auctions, left_on="auction", right_on="id")
    apart = (both["date_time_x"] - both["date_time_y"]).abs().max()

    assert len(both) > 0.999 * len(bids)
    assert apart <= generator.longest_wait
    open_for = (auctions["expires"] - auctions["date_time"]).max()
    assert datetime.timedelta(0) < open_for <= generator.longest_auction


@pytest.mark.parametrize(
    "wrong", [{"events": 0}, {"rate": 0}, {"delayed": 1.5}, {"delayed_by_ms": -1}], ids=str
)
def test_a_generator_that_could_make_nothing_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"; got .*; expected "):
        Generator(**{"events": 10, **wrong})


def test_a_spout_that_could_emit_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="got take=0, partitions=1; expected at least 1"):
        EventSpout("bids", GENERATOR, 0)


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_the_spouts_emit_each_event_once(partitions: int, tmp_path: Path) -> None:
    generator = Generator(TOTAL * 7 + 13, rate=100)

    found = run(tmp_path, "q0", generator, parallelism=partitions, take=60)

    assert found == EXPECTED["q0"](Events.made_by(generator))


@pytest.mark.integration
@pytest.mark.parametrize("cut", CUTS, ids=str)
@each_query
def test_a_query_finds_what_pandas_finds(query: str, cut: Any, tmp_path: Path) -> None:
    take, partitions = cut

    found = run(tmp_path, query, GENERATOR, parallelism=partitions, take=take)

    if query == "q12":
        found = of_all_times(found)
    assert found == expected(query)
    assert found


def run(folder: Path, query: str, generator: Generator, **more: Any) -> Any:
    url = f"sqlite:///{folder / 'nexmark.db'}"
    with topology(query, generator, url, **more).start(config=LOCAL) as handle:
        handle.process_all_available()
    with open_state(url, table=query).reader() as reader:
        return held(reader)


@pytest.mark.integration
@pytest.mark.parametrize("query", [query for query in QUERIES if query != "q12"])
def test_a_query_is_right_whatever_crashes(query: str) -> None:
    """Not q12, which needs the planned times of the run."""
    program = topology(query, SMALL, "memory:", take=100)
    tables = tables_of(program).values()
    oracles = {table: oracle(table) for table in tables if table in TABLES}

    handoff = ThreadHandoff()
    for seed in range(SEEDS):
        judged = _run(program, oracles, seed, None, None, {}, handoff)

        assert not judged.violations, f"seed {seed}: {judged.violations[:3]}"
    handoff.close()


@pytest.mark.integration
def test_the_mean_of_the_winning_bids_by_a_join_without_a_bound_in_time(tmp_path: Path) -> None:
    """q4 as the original has it: the time that an auction is open is a condition of the join."""
    url = f"sqlite:///{tmp_path / 'nexmark.db'}"
    house = Auctions("q4", SMALL, url, lambda kind: EventSpout(kind, SMALL, 100))
    bids = house.bids.select("auction", "price", bid_time="date_time")
    auctions = house.auctions.select("id", "category", "date_time", "expires")
    final = (
        auctions.join(bids, on={"id": "auction"}, state=house.state("q4_open"))
        .filter(lambda row: row["date_time"] <= row["bid_time"] <= row["expires"])
        .group_by("id", "category")
        .persistent_aggregate(house.state("q4_final"), price=Max("price"))
    )
    prices = final.changes(retracted=True).group_by("category")
    prices.persistent_aggregate(house.state("q4"), price=Mean("price"))
    with house.builder.build_topology().start(config=LOCAL) as handle:
        handle.process_all_available()

    with open_state(url, table="q4").reader() as reader:
        assert held(reader) == EXPECTED["q4"](Events.made_by(SMALL))


@pytest.mark.integration
def test_bids_are_counted_by_the_planned_time_of_their_txid_whatever_crashes() -> None:
    """q12: each bid counts in the ten seconds in which its batch was planned first."""

    def counts(batches: Any, stamps: Any) -> dict[str, dict[Any, Any]]:
        found: Counter[Any] = Counter()
        for txid, batch in enumerate(batches, 1):
            planned = planned_time(stamps[txid])
            assert planned is not None
            start = planned - (planned - EPOCH) % datetime.timedelta(seconds=10)
            found.update((start, bid[bidder]) for bid in batch)
        return {"q12": {key: {"bids": bids} for key, bids in found.items()}}

    bidder = FIELDS["bids"].index["bidder"]
    bids = [tuple(row.values()) for row in SMALL.all("bids").to_pylist()]
    for seed in range(2):
        program = topology("q12", SMALL, "memory:", take=20)
        found = judged(program, seed, counts, bids)

        assert not found.violations, f"seed {seed}: {found.violations[:3]}"
