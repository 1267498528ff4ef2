"""What other engines make of the log of a table: the cases in ``cases``, run here."""

from __future__ import annotations

import pytest

from tests.unit.streams.captured import Captured
from tests.unit.streams.cases.captured_tables import CASES, CapturedCase


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.source.replace(" ", "-"))
def test_a_case_of_another_engine(case: CapturedCase) -> None:
    table = Captured(position=case.position, on_truncate="clear")

    emitted = [table.run(*events) for events in case.txids]

    if case.emitted is not None:
        assert emitted == case.emitted
    assert (table.rows, len(table.refused)) == (case.rows, case.refused)


def test_no_case_is_left_out() -> None:
    assert len(CASES) == 18
