"""The Structured Streaming on its page runs, and finds what the page says that it finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession, functions

from tests.unit.test_layout import ROOT
from tests.unit.test_pages import blocks_of

PAGE = ROOT / "docs" / "how-to" / "migrate" / "from-structured-streaming.md"

Rows = list[dict[str, Any]]


def at(clock: str) -> str:
    return f"2026-01-01T{clock}:00Z"


def sale(id: str, shop: str, amount: int, clock: str) -> dict[str, Any]:
    return {"id": id, "shop": shop, "amount": amount, "ts": at(clock)}


# The batches of the page, and one that moves the watermark past all of them.
SALES = [
    [sale("s1", "north", 10, "12:01"), sale("s2", "south", 20, "12:02")],
    [sale("s3", "north", 30, "12:06"), sale("s4", "north", 5, "12:17")],
    [sale("s5", "south", 7, "12:03"), sale("s6", "south", 40, "12:18")],
    [sale("s6", "south", 40, "12:18"), sale("s7", "north", 1, "12:40")],
    [sale("s8", "west", 0, "15:00")],
]
ORDERS = [
    [{"order_id": "o1", "customer": "ann", "ts": at("12:00")}],
    [{"order_id": "o2", "customer": "bob", "ts": at("12:00")}],
    [{"order_id": "o3", "customer": "eve", "ts": at("15:00")}],
]
PAYMENTS = [
    [{"paid_id": "o1", "amount": 12, "paid_at": at("12:05")}],
    [{"paid_id": "o9", "amount": 1, "paid_at": at("15:00")}],
]


@pytest.fixture
def run(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[[str, str], list[Row]]]:
    """Run the block below a heading, and return the rows that its sink got."""
    settings = {
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.streaming.checkpointLocation": str(tmp_path / "checkpoints"),
    }
    for name, value in settings.items():
        spark.conf.set(name, value)
    (tmp_path / "shops").mkdir()
    (tmp_path / "shops" / "1.csv").write_text("shop,country\nnorth,NO\nsouth,ZA\n")

    def stream(name: str, schema: str, batches: list[Rows]) -> DataFrame:
        folder = tmp_path / name
        folder.mkdir()
        for number, rows in enumerate(batches):
            file = folder / f"{number}.json"
            file.write_text("\n".join(map(json.dumps, rows)))
            os.utime(file, (number + 1, number + 1))  # Spark reads the older file first
        return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(folder))

    def ran(heading: str, sink: str) -> list[Row]:
        section = PAGE.read_text().partition(f"\n## {heading}\n")[2]
        block = next(block for block in blocks_of(section) if block.language == "text").text
        got: list[Row] = []
        names = {
            **vars(functions),
            "spark": spark,
            "sales": stream("sales", "id string, shop string, amount long, ts timestamp", SALES),
            "orders": stream("orders", "order_id string, customer string, ts timestamp", ORDERS),
            "payments": stream(
                "payments", "paid_id string, amount long, paid_at timestamp", PAYMENTS
            ),
            sink: lambda frame, batch: got.extend(frame.collect()),
        }
        exec(block.replace('"shops"', repr(str(tmp_path / "shops"))), names)
        for query in spark.streams.active:
            query.processAllAvailable()
            query.stop()
        return got

    yield ran
    for name in settings:
        spark.conf.unset(name)


def clock(time: datetime) -> str:
    return f"{time.astimezone(UTC):%H:%M}"


@pytest.mark.slow
def test_windows_have_the_rows_of_both_tables_of_ours(
    run: Callable[[str, str], list[Row]],
) -> None:
    """That is with the late 7 of the page, which Structured Streaming drops a batch later."""
    rows = run("Watermark and window", "upsert_revenue")

    assert {(clock(row.window.start), row.shop): row.revenue for row in rows} == {
        ("12:00", "north"): 10,
        ("12:00", "south"): 20 + 7,
        ("12:05", "north"): 30,
        ("12:15", "north"): 5,
        ("12:15", "south"): 80,
        ("12:40", "north"): 1,
        ("15:00", "west"): 0,
    }


@pytest.mark.slow
def test_duplicates_are_dropped(run: Callable[[str, str], list[Row]]) -> None:
    rows = run("dropDuplicatesWithinWatermark", "upsert_sales")

    assert dict(rows) == {"north": 4, "south": 2 + 1, "west": 1}


@pytest.mark.slow
def test_an_order_without_a_payment_leaves_the_join_and_a_young_one_waits(
    run: Callable[[str, str], list[Row]],
) -> None:
    rows = run("Stream-stream join", "append_settled")

    assert {row.order_id: row.amount for row in rows} == {"o1": 12, "o2": None}


@pytest.mark.slow
def test_shops_are_joined(run: Callable[[str, str], list[Row]]) -> None:
    rows = run("Stream-static join", "upsert_countries")

    assert dict(rows) == {"NO": 46, "ZA": 107, None: 0}


@pytest.mark.slow
def test_sessions_are_those_of_the_page(run: Callable[[str, str], list[Row]]) -> None:
    rows = run("session_window", "append_sessions")

    assert sorted((row.shop, *map(clock, row.session_window), row["count"]) for row in rows) == [
        ("north", "12:01", "12:32", 3),
        ("north", "12:40", "12:55", 1),
        ("south", "12:02", "12:33", 4),
    ]
