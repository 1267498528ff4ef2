"""Values expire as in the tests of other engines: :mod:`tests.unit.streams.cases.ttl`."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.unit.streams.cases.ttl import CASES, TtlCase
from tests.unit.streams.living import Lives, program
from txtopo import Sum


@pytest.mark.parametrize("event", [True, False])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source)
def test_a_value_is_found_as_long_as_elsewhere(case: TtlCase, event: bool) -> None:
    after = datetime.timedelta(seconds=case.after)

    def make(rows: Any, asked: Any, state: Any) -> None:
        if case.sums:
            groups = rows.group_by("key")
            table = groups.persistent_aggregate(state("t"), expire_after=after, n=Sum("n"))
        else:
            table = rows.as_table(state("t"), key="key", value="n", expire_after=after)
        asked.query(table, on="who").map(lambda row: [1], "one long")

    lives = Lives(program(make, event=event))
    for time, step, key, value in case.steps:
        if step == "put":
            lives.run([(key, value, time)], time)
        else:
            lives.run([], time, key)
            ((row,),) = lives.told.values()
            assert row["n"] == value, f"at {time}"
