"""The examples of deduplication and of orders with payments, against pandas and under kills."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest

from examples import streams_deduplication, streams_orders_payments
from txtopo import Config, open_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.integration
LOCAL = Config(carrier="local", zookeeper="memory", slots=2)

EXAMPLES: list[tuple[Any, str]] = [
    (
        streams_deduplication,
        "north: 4 sales, 45 in all\nsouth: 2 sales, 12 in all\n"
        "too late: s2 of 12:06\ntoo late: s4 of 14:00\n",
    ),
    (
        streams_orders_payments,
        "o1: p1 pays 30 of 50\no1: p2 pays 20 of 50\no3: p4 pays 70 of 70\n"
        "o2: bob has not paid 20\no4: cid has not paid 10\n",
    ),
]
each_example = pytest.mark.parametrize(
    ("example", "printed"),
    [pytest.param(example, text, id=example.__name__) for example, text in EXAMPLES],
)


@each_example
def test_an_example_prints_what_it_says(
    example: Any, printed: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example.main(None, LOCAL, f"sqlite:///{tmp_path / 'example.db'}")

    assert capsys.readouterr().out == printed


@pytest.mark.spark
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


def test_orders_and_payments_are_what_pandas_joins(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'example.db'}"
    streams_orders_payments.main(None, LOCAL, url)

    example = streams_orders_payments
    orders = pd.DataFrame(example.ORDERS, columns=list(example.ORDER.names))
    payments = pd.DataFrame(example.PAYMENTS, columns=list(example.PAYMENT.names))
    both = orders.merge(payments, on="order_id")
    apart = both.paid_at - both.ts
    both = both[(apart >= pd.Timedelta(0)) & (apart <= pd.Timedelta("1h"))]
    # The watermark has closed all orders but the last.
    unpaid = set(orders.order_id[:-1]) - set(both.order_id)
    with open_state(url, table="settled").reader() as reader:
        assert {key for key, _ in reader.items()} == set(
            zip(both.order_id, both.payment_id, strict=True)
        )
    with open_state(url, table="unpaid").reader() as reader:
        assert {key for key, _ in reader.items()} == unpaid


def test_each_sale_counts_once_as_pandas_counts(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'example.db'}"
    streams_deduplication.main(None, LOCAL, url)

    sales = pd.DataFrame(streams_deduplication.SALES, columns=["id", "shop", "amount", "ts"])
    totals = sales.drop_duplicates("id").groupby("shop").amount.agg(["count", "sum"])
    with open_state(url, table="per_shop").reader() as reader:
        found = {shop: (row["sales"], row["revenue"]) for shop, row in reader.items()}
    assert found == {
        shop: tuple(row) for shop, row in zip(totals.index, totals.values.tolist(), strict=True)
    }
