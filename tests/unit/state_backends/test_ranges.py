"""Databases find ranges and prefixes by an index, which is made for tables from before, too."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from tests.harness.servers.mariadb import MariaServer
from txtopo import Fields
from txtopo.errors import SchemaDrift
from txtopo.state import State, open_state
from txtopo.testing.conformance.driver import StateDriver

KEY, VALUE = Fields("shop string, side int, start long"), Fields("ends long")
DATABASES = ("sqlite", "postgresql", "mariadb")


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/states.db"
    if request.param == "postgresql":
        return str(request.getfixturevalue("postgresql_schema"))
    server: MariaServer = request.getfixturevalue("mariadb")
    return server.create_schema(f"ranges_{abs(hash(request.node.name))}")


def windows(url: str) -> State:
    return open_state(url, table="windows").with_columns(KEY, VALUE)


def indexes(store: StateDriver) -> dict[str, list[Any]]:
    engine = store.backend._engine  # type: ignore[attr-defined]
    found = sa.inspect(engine).get_indexes("windows")
    return {str(each["name"]): each["column_names"] for each in found}


def on_ends(store: StateDriver) -> list[str]:
    return [name for name, columns in indexes(store).items() if columns == ["ends"]]


def test_a_table_is_made_with_the_index_of_its_range_column(url: str) -> None:
    store = StateDriver(windows(url).ranged("ends"))

    assert len(on_ends(store)) == 1
    assert max(map(len, indexes(store))) < 63
    store.backend.create()
    assert len(on_ends(store)) == 1
    store.close()


def test_a_table_from_before_is_given_the_index(url: str) -> None:
    before = StateDriver(windows(url))
    before.puts(1, {("a", 0, at): at for at in range(3)})
    assert on_ends(before) == []
    before.close()

    store = StateDriver(windows(url).ranged("ends"), epoch=2)
    assert len(on_ends(store)) == 1
    assert len(store.contents()) == 3
    store.close()


def test_an_index_that_serves_is_enough(url: str) -> None:
    before = StateDriver(windows(url))
    with before.backend._engine.begin() as connection:  # type: ignore[attr-defined]
        connection.exec_driver_sql("CREATE INDEX of_mine ON windows (ends)")
    before.close()

    store = StateDriver(windows(url).ranged("ends"), epoch=2)
    assert on_ends(store) == ["of_mine"]
    store.close()


def test_the_first_column_of_the_key_needs_no_index(url: str) -> None:
    state = open_state(url, table="windows").with_columns(Fields("ends long, k long"), VALUE_OF_N)
    store = StateDriver(state.ranged("ends"))

    assert on_ends(store) == []
    store.close()


VALUE_OF_N = Fields("n long")


def plan_of(store: StateDriver, statement: sa.Select[Any]) -> str:
    """Return how the database would read."""
    engine: sa.Engine = store.backend._engine  # type: ignore[attr-defined]
    explain = "EXPLAIN QUERY PLAN" if engine.name == "sqlite" else "EXPLAIN"
    text = statement.compile(engine, compile_kwargs={"literal_binds": True})
    with engine.connect() as connection:
        rows = connection.execute(sa.text(f"{explain} {str(text).replace(':', chr(92) + ':')}"))
        return "\n".join(" ".join(map(str, row)) for row in rows)


SCANS = ("SCAN windows", "Seq Scan on windows", " ALL ")


@pytest.mark.parametrize("width", [1, 2, 3])
def test_prefixes_are_found_by_the_key_of_a_table_that_nobody_has_analysed(
    url: str, width: int
) -> None:
    store = StateDriver(windows(url))
    keys = {(f"shop {at}", at % 2, at): at for at in range(5_000)}
    store.puts(1, keys)
    prefixes = [key[:width] for key in list(keys)[:100]]

    plan = plan_of(store, store.backend._dialect.starting(prefixes))  # type: ignore[attr-defined]
    assert not any(scan in plan for scan in SCANS), plan
    store.close()


def test_a_range_is_found_by_its_index(url: str) -> None:
    store = StateDriver(windows(url).ranged("ends"))
    store.puts(1, {(f"shop {at}", at % 2, at): at for at in range(5_000)})
    dialect = store.backend._dialect  # type: ignore[attr-defined]

    plan = plan_of(store, dialect.selected().where(dialect.in_range(100, 110)))
    assert not any(scan in plan for scan in SCANS), plan
    store.close()


def test_a_name_that_the_index_needs_is_refused_if_another_has_it(
    postgresql_schema: str,
) -> None:
    taken = StateDriver(open_state(postgresql_schema, table="windows_range"))
    taken.close()

    with pytest.raises(SchemaDrift, match=r"windows_range.*the index of ranges"):
        StateDriver(windows(postgresql_schema).ranged("ends"))


def test_rows_that_a_users_table_brought_along_do_not_expire(postgresql_schema: str) -> None:
    """They have no txid: nobody of this topology has written them."""
    engine = sa.create_engine(postgresql_schema)
    with engine.begin() as connection:
        connection.exec_driver_sql('CREATE TABLE mine (k TEXT COLLATE "C" PRIMARY KEY, n BIGINT)')
        connection.exec_driver_sql("INSERT INTO mine VALUES ('a', 1), ('b', 2)")
    engine.dispose()
    state = open_state(postgresql_schema, table="mine", add_columns=True)
    store = StateDriver(state.with_columns(Fields("k string"), Fields("n long")).ranged("n"))
    store.puts(1, {"b": 3, "c": 4})
    store.puts(2, {})

    assert store.backend.expire(10, 2) == 2
    assert store.contents() == {"a": 1}
    assert store.run(3, lambda rows: list(rows.between("n", None, 10))) == [("a", 1)]
    store.close()
