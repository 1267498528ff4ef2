"""Databases of SQLite with decimals, as versions of txtopo left them: text before schema 3.

``python -m tests.services.upgrade.decimals`` writes the one of today's schema, if it is missing;
that of an earlier schema is never written again.
"""

from __future__ import annotations

import sqlite3
import tempfile
from decimal import Decimal
from pathlib import Path

from state_backends.sql.dialect import SCALED_SCHEMA
from txtopo import Fields
from txtopo.state import Max, Mean, State, StateTransaction, open_state
from txtopo.testing.conformance.driver import StateDriver

FOLDER = Path(__file__).parent
SCHEMAS = (2, SCALED_SCHEMA)


def file_of(schema: int) -> Path:
    """Return the file with the statements that make the database of a schema again."""
    return FOLDER / f"decimals_{schema}.sql"


def bring_back(schema: int, database: Path) -> None:
    """Make the database of a schema again."""
    connection = sqlite3.connect(database)
    connection.executescript(file_of(schema).read_text())
    connection.close()


def prices(url: str) -> State:
    """Return an opaque state with decimals in its key and its values."""
    key = Fields("day decimal(10,1), shop string")
    return open_state(url, "opaque", "prices", key, Fields("price decimal(18,4), n decimal(18,0)"))


def kept(url: str) -> State:
    """Return a transactional state."""
    return open_state(url, "transactional", "kept", value=Fields("value decimal(9,2)"))


def means(url: str) -> State:
    """Return a state of aggregates, one of them a mean."""
    fields = Fields("cost_sum decimal(38,2), cost_count long, most decimal(10,2)")
    aggregates = (*Mean("cost").columns("cost").values(), Max("cost"))
    return open_state(url, table="means").with_columns(Fields("k string"), fields, aggregates)


def first(state: StateTransaction) -> None:
    """Write txid 1 of :func:`prices`."""
    for at, day in enumerate(("9.1", "10.2", "-3.5", "91", "0")):
        state.put((Decimal(day), "a"), (Decimal(day), Decimal(at)))


def second(state: StateTransaction) -> None:
    """Write txid 2 of :func:`prices`: a change, a removal and a new row."""
    state.put((Decimal("9.1"), "a"), (Decimal("-0.0001"), None))
    state.delete((Decimal("10.2"), "a"))
    state.put((Decimal(7), "b"), (None, Decimal(-5)))


def write(url: str) -> None:
    """Write two txids to each state."""
    store = StateDriver(prices(url))
    store.run(1, first)
    store.run(2, second)
    store.close()
    store = StateDriver(kept(url))
    store.puts(1, {"a": Decimal("10.00"), "b": Decimal("-9.10")})
    store.puts(2, {"a": Decimal("9.00")})
    store.close()
    store = StateDriver(means(url))
    store.merge(1, [("a", Decimal("10.00"), 3, Decimal("9.10")), ("b", None, 0, None)])
    store.merge(2, [("a", Decimal("-0.03"), 1, Decimal("10.10"))])
    store.close()


def main() -> None:
    """Write the database of today's schema."""
    file = file_of(SCALED_SCHEMA)
    if file.exists():
        raise SystemExit(f"{file.name} is there: what a version wrote is never written again")
    with tempfile.TemporaryDirectory() as folder:
        write(f"sqlite:///{folder}/states.db")
        connection = sqlite3.connect(f"{folder}/states.db")
        file.write_text("\n".join(connection.iterdump()) + "\n")
        connection.close()


if __name__ == "__main__":
    main()
