"""The examples of streams: what they print, on Spark as well, and their tables under kills."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from examples import streams_balances, streams_branches, streams_stock, streams_word_count
from txtopo import Config, Topology
from txtopo.testing import simulate

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
LOCAL = Config(carrier="local", zookeeper="memory", slots=2)
SEEDS = 20

EXAMPLES: list[tuple[Any, str]] = [
    (streams_word_count, "apple: 2\nbanana: 1\ncat: 8\nchicken: 1\ndog: 7\n"),
    (
        streams_balances,
        "ann has -25\nbob has -11\ne4: ann had -30, below -20\ne8: ann had -25, below -20\n"
        "e9: bob had -11, below 0\n",
    ),
    (streams_branches, "totals: {'north': 42, 'south': 7}\nrejected: ['s2', 's5']\n"),
    (streams_stock, "salt: 0, at last from 4 to 0\ntea: 7, at last from 8 to 7\n"),
]
each_example = pytest.mark.parametrize(
    ("example", "printed"),
    [pytest.param(example, text, id=example.__name__) for example, text in EXAMPLES],
)

Records = Sequence[Sequence[Any]]


@each_example
def test_an_example_prints_what_it_says(
    example: Any, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(None, LOCAL, f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out == printed


@each_example
def test_an_example_prints_the_same_on_spark(
    spark: SparkSession,
    example: Any,
    printed: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    example.main(spark, Config(zookeeper="memory"), f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out == printed


def counts(records: Records) -> Mapping[str, int]:
    return Counter(word for (line,) in records for word in line.split())


def batches(records: Records, take: int) -> list[Records]:
    return [records[at : at + take] for at in range(0, len(records), take)]


def balances(records: Records) -> Mapping[str, Any]:
    totals: dict[str, int] = {}
    for _, kind, account, amount, _ in records:
        if kind == "transfer":
            totals[account] = totals.get(account, 0) + amount
    return totals


def limits(records: Records) -> Mapping[str, Any]:
    return {account: amount for _, kind, account, amount, _ in records if kind == "limit"}


def alarms(records: Records) -> Mapping[str, Any]:
    """Each balance is compared with the limits after all rows of its batch."""
    found: dict[str, Any] = {}
    done: list[Sequence[Any]] = []
    for batch in batches(records, streams_balances.TAKE):
        floors = limits([*done, *batch])
        for record in batch:
            done.append(record)
            id, kind, account, _, _ = record
            balance = balances(done).get(account, 0)
            if kind == "transfer" and account in floors and balance < floors[account]:
                found[id] = (account, balance, balance < 0, floors[account])
    return found


def totals(records: Records) -> Mapping[str, Any]:
    found: dict[str, int] = {}
    for _, shop, amount in records:
        if amount is not None:
            found[shop] = found.get(shop, 0) + amount
    return found


def rejected(records: Records) -> Mapping[str, Any]:
    return {id: (shop, None) for id, shop, amount in records if amount is None}


def stock(records: Records) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for product, pieces in records:
        found[product] = found.get(product, 0) + pieces
    return found


def last_change(records: Records) -> Mapping[str, Any]:
    found: dict[str, Any] = {}
    done: list[Sequence[Any]] = []
    for batch in batches(records, streams_stock.TAKE):
        before = stock(done)
        done += batch
        for product, pieces in stock(done).items():
            if pieces != before.get(product):
                found[product] = (pieces, before.get(product))
    return found


UNDER_KILLS: list[tuple[Callable[[str], Topology], Mapping[str, Any], Records]] = [
    (
        streams_word_count.topology,
        {"counts": counts},
        [(line,) for line in streams_word_count.LINES],
    ),
    (
        streams_balances.topology,
        {"balances": balances, "limits": limits, "alarms": alarms},
        streams_balances.EVENTS,
    ),
    (streams_branches.topology, {"totals": totals, "rejected": rejected}, streams_branches.SALES),
    (streams_stock.topology, {"stock": stock, "last_change": last_change}, streams_stock.MOVES),
]


@pytest.mark.parametrize("case", UNDER_KILLS, ids=lambda case: case[0].__module__)
def test_an_example_is_right_whatever_crashes(case: Any) -> None:
    topology, oracle, records = case

    simulate(topology("memory:"), oracle, seeds=SEEDS, records=records)
