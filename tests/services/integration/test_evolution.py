"""Changes of a topology that has run, in databases and Redis, wherever the driver dies."""

from __future__ import annotations

import datetime
import decimal
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from tests.harness.dying import Died, dies_at, raise_died
from tests.unit.runtime.evolving import BOTH, Evolving, of_batches, since
from txtopo import Fields
from txtopo.errors import FencedError, SchemaDrift
from txtopo.plugins.stores import Puts
from txtopo.state import open_state
from txtopo.testing.conformance.driver import StateDriver, claim_of, putting

_numbers = itertools.count()

STORES = [
    "sqlite",
    pytest.param("postgresql", marks=pytest.mark.service("postgresql")),
    pytest.param("mariadb", marks=pytest.mark.service("mariadb")),
    pytest.param("redis", marks=pytest.mark.service("redis")),
]
DATABASES = STORES[:3]


def url_of(request: pytest.FixtureRequest, folder: Any) -> str:
    match request.param:
        case "sqlite":
            return f"sqlite:///{folder}/states.db"
        case "redis":
            server = request.getfixturevalue("redis_server")
            server.empty()
            return str(server.url())
        case "postgresql":
            server = request.getfixturevalue("postgresql")
            return str(server.create_schema(f"evolving{next(_numbers)}"))
        case name:
            server = request.getfixturevalue(name)
            return str(server.create_database(f"evolving{next(_numbers)}"))


DIED = ("write.after:old.old", "begin.before:old.old")
"""Where the driver of the old program dies."""


def deaths(steps: Sequence[str], stores: Sequence[str], of_store: Sequence[str]) -> list[Any]:
    """Return every store, each death of the old program and each of the new one.

    ``make test`` has all of them but half of the old program's in SQLite, and in servers those of
    the new program at *of_store*: all in MariaDB, which has no transaction for a table that
    changes, and the first one elsewhere. The rest is one more death beside the same writes.
    """

    def is_quick(store: str, died: str, step: str) -> bool:
        quick = {"sqlite": steps, "mariadb": of_store}.get(store, of_store[:1])
        return died == DIED[0] and step in quick

    services = {"sqlite": [], **{name: [pytest.mark.service(name)] for name in SERVERS}}
    return [
        pytest.param(
            *(store, died, step),
            marks=[
                *services[store],
                *([] if is_quick(store, died, step) else SLOW),
            ],
            id=f"{died}-{step}-{store}",
        )
        for store in stores
        for died in DIED
        for step in steps
    ]


SERVERS = ("postgresql", "mariadb", "redis")
SLOW = [pytest.mark.slow]


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return url_of(request, tmp_path)


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Any) -> str:
    return url_of(request, tmp_path)


STATE = (
    *("claim.before-epoch", "claim.after-epoch", "claim.claimed:old.old"),
    *("claim.claimed:new.new", "store-metadata.after", "begin.before:new.new"),
    *("write.before:new.new", "write.after:old.old", "write.after:new.new", "advance.before"),
)
OF_NEW = ("claim.claimed:new.new", "write.after:new.new")


@pytest.mark.parametrize(
    ("url", "died", "step"), deaths(STATE, ["sqlite", *SERVERS], OF_NEW), indirect=["url"]
)
def test_a_state_is_added_wherever_the_driver_dies(url: str, died: str, step: str) -> None:
    world = Evolving(url)
    world.die(world.topology("old"), died, 5)
    world.die(world.topology("old", "new"), step, allow_change=True)

    world.run(world.topology("old", "new"), allow_change=step == "claim.before-epoch")

    assert world.held("old") == of_batches(1, 6)
    assert world.held("new") == of_batches(5, 6)


CLAIM = ["claim.before-epoch", "claim.after-epoch", "claim.claimed:old.old", "write.after:old.old"]
CHANGE = [f"change.{step}:old.old" for step in ("claimed", "columns", "rows", "declared")]


OF_REDIS = deaths(CLAIM, ["redis"], ["claim.claimed:old.old"])
"""Redis changes ledger and rows in one step."""


@pytest.mark.parametrize(
    ("url", "died", "step"),
    [*deaths([*CLAIM, *CHANGE], ["sqlite", *SERVERS[:2]], CHANGE), *OF_REDIS],
    indirect=["url"],
)
def test_a_column_is_added_wherever_the_driver_dies(url: str, died: str, step: str) -> None:
    world = Evolving(url, elsewhere=("other",))
    world.die(world.topology("old", "other"), died, 5)
    world.die(world.topology("old", "other", old=BOTH), step, allow_change=True)

    topology = world.topology("old", "other", old=BOTH)
    world.run(topology, allow_change=step == "claim.before-epoch")

    assert world.held("old") == since(5, 6)
    assert world.held("other") == of_batches(1, 6)


@pytest.mark.parametrize(
    ("database", "died", "step"),
    deaths([*CLAIM, *CHANGE], ["sqlite", *SERVERS[:2]], CHANGE),
    indirect=["database"],
)
def test_a_column_is_taken_away_wherever_the_driver_dies(
    database: str, died: str, step: str
) -> None:
    world = Evolving(database)
    world.die(world.topology("old", "other", old=BOTH), died, 5)
    world.die(world.topology("old", "other"), step, allow_change=True)

    world.run(world.topology("old", "other"), allow_change=step == "claim.before-epoch")

    assert world.held("old") == of_batches(1, 6)


@pytest.mark.service("redis")
def test_redis_loses_no_column(redis_server: Any) -> None:
    redis_server.empty()
    world = Evolving(redis_server.url())
    world.run(world.topology("old", old=BOTH))

    with pytest.raises(SchemaDrift, match="cannot remove a column"):
        world.run(world.topology("old"), allow_change=True)
    assert world.held("old") == since(1, 6)


EVERY_TYPE = (
    "price decimal(18,2), at timestamp, local timestamp_ntz, day date, raw binary, note json, "
    "ratio double, share float, name string, ok boolean, small byte, n long"
)
DEFAULTS: dict[str, Any] = {
    "price": decimal.Decimal("-3.25"),
    "at": datetime.datetime(2026, 1, 1, 1, 2, 3, 4, tzinfo=datetime.UTC),
    "local": datetime.datetime(1999, 12, 31, 23, 59, 59, 999_999),
    "day": datetime.date(2026, 1, 31),
    "raw": b"\0\xff",
    "note": {"a": [1, None, "é"]},
    "ratio": 0.1,
    "share": 0.5,
    "name": "it's é\n\\",
    "ok": True,
    "small": -5,
    "n": 2**63 - 1,
}


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_old_rows_get_defaults_of_every_type_also_in_an_undo(url: str, kind: Any) -> None:
    before = StateDriver(open_state(url, kind, "t", value=Fields("count long")))
    before.puts(1, {"a": 1, "gone": 2})
    before.puts(2, {"a": 2, "gone": None, "b": 1})
    before.close()
    value = Fields(f"{EVERY_TYPE}, count long")  # also in another order
    state = open_state(url, kind, "t", value=value, defaults=DEFAULTS)

    after = StateDriver(state, 2, changes_table=True)
    rows = {key: {**DEFAULTS, "count": count} for key, count in (("a", 2), ("b", 1))}
    assert after.contents() == rows
    if kind == "opaque":  # the redo of 2 is empty
        after.commit(2, Puts({}), attempt=1)
        old = {"a": {**DEFAULTS, "count": 1}, "gone": {**DEFAULTS, "count": 2}}
        assert after.contents() == old
    after.run(3, putting({"a": {**DEFAULTS, "count": 7, "n": 1}}))
    assert after.contents()["a"] == {**DEFAULTS, "count": 7, "n": 1}
    after.close()


@pytest.mark.service("mariadb")
@pytest.mark.rule("state_backends.sql.evolution", "Order", 3)
def test_a_coordinator_that_is_deposed_while_it_changes_a_table_overwrites_nothing(
    mariadb: Any,
) -> None:
    """MariaDB lets the ledger go when a column is added, so a successor may come in between."""
    url = str(mariadb.create_database(f"evolving{next(_numbers)}"))
    before = StateDriver(open_state(url, table="t", value=Fields("paid long")))
    before.puts(1, {"a": 1, "b": 1})
    before.close()
    value = Fields("paid long, refunds long")
    state = open_state(url, table="t", value=value, defaults={"refunds": 0})
    slow = state.open()
    slow.create()

    def overtaken(step: str) -> None:
        if step == "change.columns":
            successor = StateDriver(state, 3, changes_table=True)
            successor.run(2, putting({"a": {"paid": 2, "refunds": 5}}))
            successor.close()

    slow.point = overtaken
    with pytest.raises(FencedError):
        slow.claim(replace(claim_of(epoch=2), changes_table=True))
    slow.close()

    with state.reader() as reader:
        rows = dict(reader.items())
    assert rows == {"a": {"paid": 2, "refunds": 5}, "b": {"paid": 1, "refunds": 0}}


@pytest.mark.parametrize("step", ["claimed", "columns", "rows", "declared"])
@pytest.mark.rule("txtopo.state.evolution", "Rules", 5)
@pytest.mark.rule("state_backends.sql.evolution", "Order", 4)
def test_a_change_that_was_begun_is_done_again_whole(database: str, step: str) -> None:
    """In MariaDB a column that was added stays, without its defaults."""
    before = StateDriver(open_state(database, table="t", value=Fields("paid long")))
    before.puts(1, {"a": 1})
    before.puts(2, {"a": 2})
    before.close()
    value = Fields("paid long, refunds long")
    state = open_state(database, table="t", value=value, defaults={"refunds": 7})
    dying = state.open()
    dying.create()
    dying.point = dies_at(f"change.{step}", die=raise_died)
    with pytest.raises(Died):
        dying.claim(replace(claim_of(epoch=2), changes_table=True))
    dying.close()

    after = StateDriver(state, 3, changes_table=True)
    assert after.contents() == {"a": {"paid": 2, "refunds": 7}}
    after.commit(2, Puts({}))
    assert after.contents() == {"a": {"paid": 1, "refunds": 7}}
    after.close()
