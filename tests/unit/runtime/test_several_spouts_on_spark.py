"""Several spouts count the same on the carriers of Spark as in this process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, on, started
from txtopo import Fields, PersistentAggregate, TransactionalTopologyBuilder
from txtopo.config import Carrier
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.spouts import MemoryTransactionalSpout, OpaqueMemoryTransactionalSpout, Outage
from txtopo.state import Count, Sum, open_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELDS = Fields("key string, amount long")
ROWS = [[f"key {n % 5}", n] for n in range(60)]
ONCE = {f"key {key}": {"rows": 12, "sum": sum(range(key, 60, 5))} for key in range(5)}


@pytest.mark.parametrize("carrier", ["rdd", "resident"])
def test_mixed_spouts_are_counted_once(
    carrier: Carrier, spark: SparkSession, tmp_path: Path
) -> None:
    sure = MemoryTransactionalSpout({0: ROWS[:30], 1: ROWS[30:]}, FIELDS, 4)
    opaque = OpaqueMemoryTransactionalSpout({0: ROWS}, FIELDS, 7, (Outage(2, 0),))
    builder = TransactionalTopologyBuilder("mixed", "sure", sure, 2)
    builder.set_spout("opaque", opaque)
    aggregates = {"rows": Count(), "sum": Sum("amount")}
    state = open_state(f"sqlite:///{tmp_path}/mixed.db", table="counts")
    count = builder.set_bolt("count", PersistentAggregate(state, "key", aggregates), 2)
    count.fields_grouping("sure", "key").fields_grouping("opaque", "key")
    sums = open_state(f"sqlite:///{tmp_path}/sure.db", "transactional", table="sure")
    alone = PersistentAggregate(sums, "key", aggregates)
    builder.set_bolt("alone", alone).fields_grouping("sure", "key")

    ensemble = MemoryEnsemble()
    with started(builder.build_topology(), on(carrier, LOCAL), ensemble, spark=spark) as run:
        run.process_all_available(LIMIT_S)

    with sums.reader() as reader:
        assert {key: dict(row) for key, row in reader.items()} == ONCE
    twice = {key: {name: 2 * n for name, n in row.items()} for key, row in ONCE.items()}
    with state.reader() as reader:
        assert {key: dict(row) for key, row in reader.items()} == twice
