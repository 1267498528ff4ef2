"""A state plug-in of a user's in a few lines keeps every promise."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.state_backends.history_suite import HistorySuite
from tests.state_backends.opaque_suite import OpaqueSuite
from tests.state_backends.transactional_suite import TransactionalSuite
from txtopo.attempt import TransactionAttempt
from txtopo.errors import StoreUnavailable
from txtopo.state import (
    Contents,
    Fields,
    Key,
    Ledger,
    Puts,
    Row,
    RowBackend,
    StateTable,
    register_backend,
)


class JsonFile(RowBackend):
    """A state in a JSON file, replaced by renaming; for one driver at a time."""

    def __init__(self, url: str, table: StateTable) -> None:
        super().__init__(table)
        self.path = Path(f"{url.partition(':')[2]}.{table.name}.json")

    def load(self) -> Contents:
        if not self.path.exists():
            return Contents()
        stored = json.loads(self.path.read_text())
        rows = {tuple(key): Row(**_tuples(row)) for key, row in stored["rows"]}
        return Contents(Ledger(**stored["ledger"]), rows)

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        held = self.load()
        if held.ledger != expected:
            return False
        rows = {k: row for k, row in {**held.rows, **changes}.items() if row is not None}
        stored = {"ledger": asdict(ledger), "rows": [[k, asdict(row)] for k, row in rows.items()]}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(stored))
        os.replace(new, self.path)
        return True


def _tuples(row: Mapping[str, object]) -> dict[str, Any]:
    return {name: tuple(part) if isinstance(part, list) else part for name, part in row.items()}


@pytest.fixture
def url(tmp_path: Path) -> str:
    register_backend("json", JsonFile)
    return f"json:{tmp_path}/states"


class TestOpaque(OpaqueSuite):
    pass


class TestTransactional(TransactionalSuite):
    pass


class TestHistories(HistorySuite):
    pass


class LosesEachRace(RowBackend):
    def load(self) -> Contents:
        return Contents(Ledger("topology", 1))

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        return False


def test_a_race_that_is_lost_again_and_again_writes_nothing() -> None:
    table = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))

    with pytest.raises(StoreUnavailable, match="3 times in a row"):
        LosesEachRace(table).commit(TransactionAttempt(1, 0, 1), Puts({}))
