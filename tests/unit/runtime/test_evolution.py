"""A topology that has run takes and loses bolts, states and columns, wherever the driver dies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from state_backends.memory import MemoryBackend, MemoryStore
from tests.unit.runtime.evolving import BOTH, COUNT, SETTINGS, Evolving, of_batches, since
from txtopo import Config, Count, Max, Mean, Sum
from txtopo.errors import (
    ForeignStateError,
    PromiseError,
    SchemaDrift,
    StateUsageError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
    TopologyChanged,
)
from txtopo.operations import forget, quarantine, rebuild, verify
from txtopo.operations.session import Access
from txtopo.plugins.stores import Puts, StateTable, TransactionAttempt
from txtopo.state import Aggregate, CountDistinct, First, Last, TopN, open_state, register_backend
from txtopo.state.backend import StateKind

STORES = ["memory", "sqlite"]

TAKEOVER = ["claim.after-epoch", "claim.claimed:old.old", "claim.claimed:new.new"]
"""Steps of a takeover that adds the state new."""

FIRST_BATCH = [
    *("plan.after", "store-metadata.before", "store-metadata.after"),
    *(f"{step}:{state}" for step in ("begin.before", "begin.after", "rows.after", "write.before")
      for state in ("old.old", "new.new")),
    *("write.after:old.old", "write.after:new.new", "advance.before", "advance.after"),
]  # fmt: skip


@pytest.fixture(params=STORES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/states.db"


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/states.db"


# ------------------------------------------------------------ a state more


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_a_state_that_is_added_begins_with_the_next_txid(url: str, kind: StateKind) -> None:
    world = Evolving(url, kind)
    world.run(world.topology("old"))
    before = dict(world.ensemble.nodes)
    world.batches = 8

    with pytest.raises(TopologyChanged, match="state 'new' of 'new' is new"):
        world.run(world.topology("old", "new"))
    assert world.ensemble.nodes == before
    world.run(world.topology("old", "new"), allow_change=True)
    world.batches = 9
    world.run(world.topology("old", "new"))

    assert world.held("old") == of_batches(1, 9)
    assert world.held("new") == of_batches(7, 9)
    assert world.current == {"current": 10}


def dies_while_it_adds(world: Evolving, step: str) -> None:
    """Batches 1 to 4 are committed by a program that dies with 5 in flight; then new is added."""
    world.die(world.topology("old"), "begin.before:old.old", 5)
    world.die(world.topology("old", "new"), step, allow_change=True)


@pytest.mark.integration
@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("step", [*TAKEOVER, *FIRST_BATCH])
def test_a_state_that_is_added_misses_and_doubles_nothing_wherever_the_driver_dies(
    step: str, opaque: bool
) -> None:
    """What was begun continues without another allowance. For stores on disk see tests/services."""
    world = Evolving("memory:", opaque=opaque)
    dies_while_it_adds(world, step)

    world.run(world.topology("old", "new"))

    assert world.held("old") == of_batches(1, 6)
    assert world.held("new") == of_batches(5, 6)
    assert world.current == {"current": 7}


def test_before_the_epoch_is_claimed_nothing_of_the_change_is_stored(url: str) -> None:
    world = Evolving(url)
    dies_while_it_adds(world, "claim.before-epoch")

    world.run(world.topology("old"))

    assert world.held("old") == of_batches(1, 6)


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
@pytest.mark.parametrize("step", [*TAKEOVER, "write.after:old.old", "write.after:new.new"])
def test_a_state_that_is_added_takes_part_in_the_batch_that_others_hold_already(
    kind: StateKind, step: str
) -> None:
    """Batch 5 is in the store, but ZooKeeper does not know it as committed."""
    world = Evolving("memory:", kind)
    world.die(world.topology("old"), "write.after:old.old", 5)
    world.die(world.topology("old", "new"), step, allow_change=True)

    world.run(world.topology("old", "new"))

    assert world.held("old") == of_batches(1, 6)
    assert world.held("new") == of_batches(5, 6)


@pytest.mark.parametrize("step", [*TAKEOVER, "write.after:old.old"])
def test_a_state_that_is_added_takes_a_group_that_others_hold_with_the_same_bounds(
    step: str,
) -> None:
    world = Evolving("memory:")
    groups = {"group_txids_max": 3, "max_spout_pending": 9}
    # A spout that is asked again at once would end a run early, and with it a group.
    groups["poll_interval_s"] = 20
    world.die(world.topology("old"), "write.after:old.old", 2, **groups)
    held = world.ledger("old")
    assert (held.first_txid, held.txid) == (4, 6)
    world.die(world.topology("old", "new"), step, allow_change=True, **groups)

    world.run(world.topology("old", "new"))

    assert world.held("old") == of_batches(1, 6)
    assert world.held("new") == of_batches(4, 6)


@pytest.mark.parametrize("table", ["new", "old"])
def test_an_empty_ledger_of_a_state_that_is_known_is_a_lost_table(sqlite: str, table: str) -> None:
    """Also with allow_change, and also of a state that was added once it has taken a txid."""
    world = Evolving(sqlite)
    world.run(world.topology("old"))
    world.batches = 7
    world.run(world.topology("old", "new"), allow_change=True)
    drop(sqlite, table)

    for settings in ({}, {"allow_change": True}):
        with pytest.raises(StoreBehindCoordinator, match="contains nothing of this topology"):
            world.run(world.topology("old", "new"), **settings)


def test_a_state_whose_component_is_renamed_is_known(sqlite: str) -> None:
    world = Evolving(sqlite)
    world.run(world.topology("old"))
    drop(sqlite, "old")
    topology = world.topology("other", other=COUNT, table="old")

    with pytest.raises(StoreBehindCoordinator, match=r"state 'other.other' holds txid 0"):
        world.run(topology, allow_change=True)


def test_a_state_that_gets_another_table_begins_there(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    world.batches = 8

    world.run(world.topology("old", table="elsewhere"), allow_change=True)

    assert world.held("old") == of_batches(1, 6)
    assert world.held("elsewhere") == of_batches(7, 8)


def test_a_table_that_another_topology_has_released_is_not_taken_for_a_new_one(url: str) -> None:
    """Its txids are those of another source, though the numbers may fit."""
    world = Evolving(url)
    world.run(world.topology("old"))
    other = Evolving(world.url)
    other.run(other.topology("new"))
    forget(
        other.topology("new"), Config(**SETTINGS), access=Access(ensemble=other.ensemble)
    ).apply()

    with pytest.raises(ForeignStateError, match=r"it holds txid 6 of the state's former owner"):
        world.run(world.topology("old", "new"), allow_change=True)
    assert world.held("new") == of_batches(1, 6)


# ------------------------------------------------------------ a state less, and back


def test_a_state_that_is_taken_out_keeps_what_it_has(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old", "new"))
    world.batches = 8

    with pytest.raises(TopologyChanged, match="state 'new' of 'new' is gone"):
        world.run(world.topology("old"))
    world.run(world.topology("old"), allow_change=True)

    assert world.held("old") == of_batches(1, 8)
    assert world.held("new") == of_batches(1, 6)


@pytest.mark.parametrize("step", ["claim.after-epoch", "claim.claimed:old.old", "advance.before"])
@pytest.mark.parametrize("died", ["write.after:new.new", "write.after:old.old"])
def test_a_state_is_taken_out_wherever_the_driver_dies(died: str, step: str) -> None:
    world = Evolving("memory:")
    world.die(world.topology("new", "old"), died, 5)
    world.die(world.topology("old"), step, allow_change=True)

    world.run(world.topology("old"))

    assert world.held("old") == of_batches(1, 6)


def test_a_state_that_comes_back_with_a_gap_is_refused_until_its_table_is_gone(
    sqlite: str,
) -> None:
    world = Evolving(sqlite)
    world.run(world.topology("old", "new"))
    world.batches = 8
    world.run(world.topology("old"), allow_change=True)

    for settings in ({"allow_change": True}, {}):
        with pytest.raises(StoreBehindCoordinator, match="drop its table and its ledger") as told:
            world.run(world.topology("old", "new"), **settings)
        assert (told.value.ledger_txid, told.value.committed_txid) == (6, 8)
    assert world.held("new") == of_batches(1, 6)
    drop(sqlite, "new")
    world.batches = 9
    world.run(world.topology("old", "new"))

    assert world.held("new") == of_batches(9, 9)


def test_a_state_that_comes_back_before_anything_was_committed_goes_on(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old", "new"))
    world.run(world.topology("old"), allow_change=True)
    world.batches = 8

    world.run(world.topology("old", "new"), allow_change=True)

    assert world.held("old") == world.held("new") == of_batches(1, 8)


def test_a_state_that_holds_another_attempt_of_the_last_txid_does_not_come_back(url: str) -> None:
    """It took batch 5, and was taken out before the others had it; they got it from a replay."""
    world = Evolving(url, opaque=True, batches=5, elsewhere=("old",))
    world.die(world.topology("new", "old"), "write.after:new.new", 5)
    world.run(world.topology("old"), allow_change=True)
    assert world.ledger("new").txid == world.ledger("old").txid == 5

    with pytest.raises(StoreBehindCoordinator, match="comes back with what it held then: txid 5"):
        world.run(world.topology("new", "old"), allow_change=True)


# ------------------------------------------------------------ a column more


CHANGE = ["claim.after-epoch", "change.rows:old.old", "change.declared:old.old", "advance.before"]
"""Some steps of a takeover that changes a table; tests/services has all of them."""


@pytest.mark.rule("state_backends.sql.evolution", "Order", 1)
def test_a_column_that_is_added_begins_with_the_value_of_no_rows(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    world.batches = 8

    with pytest.raises(TopologyChanged, match=r"was opaque table 'old' .*count long\) Count and"):
        world.run(world.topology("old", old=BOTH))
    assert world.held("old") == of_batches(1, 6)
    world.run(world.topology("old", old=BOTH), allow_change=True)

    assert world.held("old") == since(7, 8)


def adds_a_column(world: Evolving, died: str, step: str) -> None:
    """Batch 5 is in flight, perhaps in the first state already, when a column is added to that."""
    world.die(world.topology("old", "other"), died, 5)
    world.die(world.topology("old", "other", old=BOTH), step, allow_change=True)

    world.run(world.topology("old", "other", old=BOTH))

    assert world.held("old") == since(5, 6)
    assert world.held("other") == of_batches(1, 6)


EVERY: dict[str, Aggregate] = {
    "count": Count(),
    "mean": Mean("amount"),
    "most": Max("amount"),
    "kinds": CountDistinct("amount"),
    "top": TopN("amount", 2),
    "first": First("amount", order="amount"),
    "last": Last("amount", order="amount"),
}


def test_each_aggregate_can_be_added_and_is_read_before_its_first_row(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    world.run(world.topology("old", old=EVERY), allow_change=True)
    assert list(world.held("old")["k0"]) == [6, *[None] * 6]
    world.batches = 8

    world.run(world.topology("old", old=EVERY))

    assert list(world.held("old")["k0"]) == [8, 19.5, 21, 2, [21, 18], 18, 21]


@pytest.mark.integration
@pytest.mark.parametrize("step", CHANGE)
@pytest.mark.parametrize("died", ["begin.before:old.old", "write.after:old.old"])
def test_a_column_is_added_wherever_the_driver_dies(sqlite: str, died: str, step: str) -> None:
    """Also with a batch that the state holds from the old program: it is undone to the default."""
    adds_a_column(Evolving(sqlite, elsewhere=("other",)), died, step)


@pytest.mark.parametrize("step", ["claim.after-epoch", "claim.claimed:old.old", "advance.before"])
@pytest.mark.parametrize("died", ["begin.before:old.old", "write.after:old.old"])
def test_a_column_is_added_in_memory_wherever_the_driver_dies(died: str, step: str) -> None:
    adds_a_column(Evolving("memory:", elsewhere=("other",)), died, step)


def test_a_batch_that_every_state_holds_is_adopted_and_the_column_begins_after_it(url: str) -> None:
    world = Evolving(url)
    world.die(world.topology("old"), "write.after:old.old", 5)

    world.run(world.topology("old", old=BOTH), allow_change=True)

    assert world.held("old") == since(6, 6)


def test_a_transactional_state_that_holds_the_batch_begins_the_column_after_it(url: str) -> None:
    """It keeps what the old program wrote of the batch."""
    world = Evolving(url, "transactional")
    world.die(world.topology("old"), "write.after:old.old", 5)

    world.run(world.topology("old", "new", old=BOTH), allow_change=True)

    assert world.held("old") == since(6, 6)
    assert world.held("new") == of_batches(5, 6)


def test_the_old_program_is_told_of_a_column_and_changes_nothing(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    world.batches = 8
    world.run(world.topology("old", old=BOTH), allow_change=True)

    with pytest.raises(TopologyChanged, match=r"sum long\) Count Sum and is"):
        world.run(world.topology("old"))
    assert world.held("old") == since(7, 8)


def test_a_deposed_coordinator_of_the_old_program_writes_no_row(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    zombie = world.topology("old").graph.components["old"].states["old"].open()
    zombie.create()
    held = world.ledger("old")
    world.batches = 8
    world.run(world.topology("old", old=BOTH), allow_change=True)

    with pytest.raises(PromiseError):
        zombie.commit(TransactionAttempt(7, 0, held.epoch), Puts({("k0",): (99,)}))
    zombie.close()
    assert world.held("old") == since(7, 8)


def test_a_reader_of_the_old_columns_reads_the_new_table(sqlite: str) -> None:
    world = Evolving(sqlite)
    world.run(world.topology("old"))
    with open_state(sqlite, table="old").reader() as earlier:
        world.batches = 8
        world.run(world.topology("old", old=BOTH), allow_change=True)

        assert earlier.get("k0") == 6
    assert world.held("old") == since(7, 8)


# ------------------------------------------------------------ a column less


@pytest.mark.integration
@pytest.mark.parametrize("step", CHANGE)
@pytest.mark.parametrize("died", ["begin.before:old.old", "write.after:old.old"])
def test_a_column_is_taken_away_wherever_the_driver_dies(sqlite: str, died: str, step: str) -> None:
    world = Evolving(sqlite)
    world.die(world.topology("old", old=BOTH), died, 5)
    world.die(world.topology("old"), step, allow_change=True)

    world.run(world.topology("old"))

    assert world.held("old") == of_batches(1, 6)


@pytest.mark.rule("state_backends.sql.evolution", "Order", 2)
def test_a_column_that_was_taken_away_stays_in_the_table_and_does_not_come_back(
    sqlite: str,
) -> None:
    world = Evolving(sqlite)
    world.run(world.topology("old", old=BOTH))
    world.batches = 8
    world.run(world.topology("old"), allow_change=True)
    assert world.held("old") == of_batches(1, 8)

    for settings in ({}, {"allow_change": True}):
        with pytest.raises((SchemaDrift, TopologyChanged)) as told:
            world.run(world.topology("old", old=BOTH), **settings)
        if settings:
            assert "was removed and therefore lacks all later values" in str(told.value)
    assert sql(sqlite, "SELECT key, sum FROM old ORDER BY key")[0] == ("k0", 45)
    for column in ("sum", "prev_sum"):
        sql(sqlite, f"ALTER TABLE old DROP COLUMN {column}")
    world.batches = 9
    world.run(world.topology("old", old=BOTH), allow_change=True)

    assert world.held("old") == since(9, 9)
    assert sql(sqlite, "SELECT * FROM old_view ORDER BY key")[0] == ("k0", 9, 24)


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param([COUNT, {"COUNT": Count()}], id="of a column that is there"),
        pytest.param([BOTH, COUNT, {**COUNT, "Sum": Sum("amount")}], id="of one taken away"),
    ],
)
def test_a_column_whose_name_differs_in_case_alone_is_refused_before_anything_is_written(
    sqlite: str, steps: list[Mapping[str, Aggregate]]
) -> None:
    world = Evolving(sqlite)
    *accepted, refused = steps
    for columns in accepted:
        world.run(world.topology("old", old=columns), allow_change=True)
    before = dict(world.ensemble.nodes)

    with pytest.raises(SchemaDrift, match="databases cannot tell them apart; nothing was written"):
        world.run(world.topology("old", old=refused), allow_change=True)

    assert world.ensemble.nodes == before


def test_a_store_that_keeps_a_row_as_one_value_loses_no_column() -> None:
    world = Evolving("memory:")
    world.run(world.topology("old", old=BOTH))
    before = dict(world.ensemble.nodes)

    with pytest.raises(SchemaDrift, match=r"cannot remove a column from its rows \('sum'\)"):
        world.run(world.topology("old"), allow_change=True)
    assert world.ensemble.nodes == before


# ------------------------------------------------------------ what cannot change


SMALLEST: dict[str, Aggregate] = {"count": Max("amount")}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"kind": "transactional"}, "its kind cannot change"),
        ({"key": "amount"}, "its key cannot change"),
        ({"old": SMALLEST}, " its column 'count' cannot change"),
    ],
)
def test_what_a_row_means_does_not_change(url: str, change: dict[str, Any], why: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    before, change = dict(world.ensemble.nodes), dict(change)
    changed = replace(world, kind=change.pop("kind", "opaque"))
    topology = changed.topology("old", **change)

    with pytest.raises(SchemaDrift, match=f"{why}.*txtopo.operations.rebuild"):
        changed.run(topology, allow_change=True)
    with pytest.raises(TopologyChanged, match="was opaque table"):
        changed.run(topology)
    assert world.ensemble.nodes == before
    assert world.held("old") == of_batches(1, 6)


def test_the_remedy_that_is_named_computes_all_batches_again(url: str) -> None:
    world = Evolving(url)
    world.run(world.topology("old"))
    topology = world.topology("old", old=SMALLEST, table="again")

    access = Access(ensemble=world.ensemble)
    rebuild(topology, Config(**SETTINGS), access=access).apply()
    world.run(topology, allow_change=True)

    assert world.held("again") == {"k0": (15,), "k1": (16,), "k2": (17,)}


# ------------------------------------------------------------ bolts


@pytest.mark.parametrize("opaque", [False, True])
@pytest.mark.parametrize("died", ["begin.before:old.old", "write.after:old.old"])
@pytest.mark.parametrize("relay", [False, True])
def test_a_bolt_comes_and_goes_with_batches_in_flight(relay: bool, died: str, opaque: bool) -> None:
    """The content of a batch is that of its spout, so no replay is taken for another batch."""
    world = Evolving("memory:", opaque=opaque)
    world.die(world.topology("old", relay=relay), died, 5)
    world.die(world.topology("old", relay=not relay), "claim.claimed:old.old", allow_change=True)

    world.run(world.topology("old", relay=not relay))

    assert world.held("old") == of_batches(1, 6)


# ------------------------------------------------------------ operators meanwhile


@pytest.mark.parametrize("step", ["claim.after-epoch", "claim.claimed:new.new"])
def test_an_operator_sees_a_change_that_was_begun_as_it_is(step: str) -> None:
    world = Evolving("memory:")
    dies_while_it_adds(world, step)
    topology, config = world.topology("old", "new"), Config(**SETTINGS)
    access = Access(ensemble=world.ensemble)

    assert verify(topology, config, access=access) == []
    if step == "claim.after-epoch":
        with pytest.raises(StateUsageError, match=r"state 'new\.new' holds none"):
            quarantine(topology, 5, config, reason="it is bad", access=access)
    else:
        quarantine(topology, 5, config, reason="it is bad", access=access).apply()
    world.run(topology)
    assert world.ledger("new").txid == 6


def drop(url: str, table: str) -> None:
    """Drop the table of a state, with its view and its ledger."""
    sql(url, f"DROP VIEW {table}_view")
    sql(url, f"DROP TABLE {table}")
    sql(url, f"DELETE FROM txtopo_ledger WHERE state = '{table}'")


def sql(url: str, statement: str) -> Sequence[Any]:
    with sa.create_engine(url).begin() as connection:
        found = connection.exec_driver_sql(statement)
        return [tuple(row) for row in found] if found.returns_rows else []


# ------------------------------------------------------------ plug-ins


class PlugIn(MemoryBackend):
    """A plug-in that knows neither groups nor the columns of its tables."""

    groups = evolves = False

    def stored(self) -> None:  # type: ignore[override]
        return None


@pytest.fixture
def plug_in() -> str:
    store = MemoryStore()

    def opened(url: str, table: StateTable) -> PlugIn:
        return PlugIn(store, table)

    register_backend("plain", opened)
    return "plain:"


def test_a_store_that_does_not_know_its_columns_gets_no_others(plug_in: str) -> None:
    """Rows would be read with columns that they do not have."""
    world = Evolving(plug_in)
    world.run(world.topology("old"))
    before = dict(world.ensemble.nodes)

    with pytest.raises(TopologyChanged, match=r"PlugIn cannot alter a table.*rebuild"):
        world.run(world.topology("old", old=BOTH), allow_change=True)
    assert world.ensemble.nodes == before
    world.batches = 8
    world.run(world.topology("old", "new", new=BOTH), allow_change=True)

    with open_state(plug_in, table="old").reader() as reader:
        assert reader.get("k0") == 8


def test_a_group_in_flight_waits_for_the_old_program_if_the_new_state_takes_none(
    plug_in: str,
) -> None:
    world = Evolving("memory:")
    groups = {"group_txids_max": 3, "max_spout_pending": 9, "poll_interval_s": 20}
    world.die(world.topology("other", "old"), "write.after:other.other", 2, **groups)
    new = world.topology("other", "old", "new", urls={"new": plug_in})

    with pytest.raises(StoreAheadOfCoordinator, match="start the topology that wrote them until"):
        world.run(new, allow_change=True)
    world.run(world.topology("other", "old"), allow_change=True)
    world.batches = 8
    world.run(world.topology("other", "old", "new", urls={"new": plug_in}), allow_change=True)

    assert world.held("old") == of_batches(1, 8)
    with open_state(plug_in, table="new").reader() as reader:
        assert {key: (value,) for key, value in reader.items()} == of_batches(7, 8)
