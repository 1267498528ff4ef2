"""Aggregates that combine in Python, through the whole system under every simulated fault."""

from __future__ import annotations

from typing import Any

import pytest

from txtopo import Fields, PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.spouts import OpaqueMemoryTransactionalSpout
from txtopo.state import Count, TopN, open_state
from txtopo.state.columns import json_text
from txtopo.testing import simulate
from txtopo.testing.conformance.combining_suites import Remainder

pytestmark = pytest.mark.integration
RECORDS = [(f"customer-{at % 3}", at) for at in range(1, 40)]


def topology() -> Topology:
    spout = OpaqueMemoryTransactionalSpout(
        {0: [list(one) for one in RECORDS[::2]], 1: [list(one) for one in RECORDS[1::2]]},
        Fields("customer string, amount long"),
        3,
    )
    aggregates = {"n": Count(), "product": Remainder("amount"), "top": TopN("amount", 4)}
    kept = PersistentAggregate(open_state("memory:"), "customer", aggregates)
    builder = TransactionalTopologyBuilder("aggregates", "spout", spout, 2)
    builder.set_bolt("kept", kept, 2).shuffle_grouping("spout")
    return builder.build_topology()


def fold(records: Any) -> dict[str, tuple[int, int, str]]:
    """Say what each customer should have: a product shows what is counted twice or not at all."""
    folded: dict[str, tuple[int, int, str]] = {}
    for customer in {customer for customer, _ in records}:
        amounts = [int(amount) for name, amount in records if name == customer]
        product = 1
        for amount in amounts:
            product = product * amount % 1_000_003
        folded[customer] = (len(amounts), product, json_text(sorted(amounts)[:-5:-1]))
    return folded


def test_they_are_right_whatever_crashes() -> None:
    report = simulate(topology(), {"kept": fold}, seeds=40, records=RECORDS)

    assert report.seeds == 40
