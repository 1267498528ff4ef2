"""Single nodes of ZooKeeper are put back, and none is guessed."""

from __future__ import annotations

import pytest

from tests.unit.operations.conftest import Make
from tests.unit.operations.places import ALL, BATCHES, POISON, Place, apply_with_deaths, both
from txtopo.errors import CorruptNodeError, PoisonBatchError, SchemaVersionError, StateUsageError
from txtopo.operations import Plan, repair_node, show, verify
from txtopo.transactional_state.nodes import CURRENT, EPOCH, batch_path

LAST = batch_path(3)


def broken(place: Place, path: str, data: bytes | None) -> Place:
    """Run three batches, and break a node."""
    place.run(batches=3)
    full = f"/{place.id}{path}"
    if data is None:
        del place.ensemble.nodes[full]
    else:
        place.ensemble.nodes[full] = (data, place.ensemble.nodes[full][1])
    return place


def repair(place: Place, path: str, value: object = None) -> Plan:
    access = place.access()
    return repair_node(place.topology(), path, place.config, value=value, access=access)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [None, b"\x80pickle", b'{"schema":1,"write":"w","value":7}'])
@pytest.mark.parametrize("path", [EPOCH, CURRENT])
@pytest.mark.row(3)
def test_what_follows_from_the_ledgers_is_put_back(
    memory: Make, path: str, data: bytes | None
) -> None:
    place = broken(memory(), path, data)
    before = show(place.topology(), place.config, access=place.access())
    with pytest.raises(CorruptNodeError, match=r"call txtopo\.operations\.repair_node"):
        place.run()
    findings = verify(place.topology(), place.config, access=place.access())
    assert any(f"repair_node({path!r})" in each.remedy for each in findings)

    apply_with_deaths(
        lambda access: repair_node(place.topology(), path, place.config, access=access), place
    )

    assert not repair(place, path).steps
    after = show(place.topology(), place.config, access=place.access())
    assert after.current == 4
    assert (after.epoch or 0) > (before.epoch or 0 if path == CURRENT else 1)
    assert verify(place.topology(), place.config, access=place.access()) == []
    place.run()
    assert place.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("data", [None, b"{"])
def test_metadata_in_use_is_put_back_only_as_it_was(memory: Make, data: bytes | None) -> None:
    place = memory()
    place.run(batches=3)
    value = show(place.topology(), place.config, access=place.access()).batches[3]
    broken(place, LAST, data)
    with pytest.raises(StateUsageError, match="only ZooKeeper had the metadata of txid 3"):
        repair(place, LAST)
    with pytest.raises(CorruptNodeError):
        repair(place, LAST, {"planned": 1})

    apply_with_deaths(
        lambda access: repair_node(
            place.topology(), LAST, place.config, value=value, access=access
        ),
        place,
    )

    place.run()
    assert place.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("opaque", [False, True])
def test_a_batch_that_no_state_holds_is_planned_anew(memory: Make, opaque: bool) -> None:
    place = memory(opaque)
    with pytest.raises(PoisonBatchError):
        place.run(POISON)
    place.ensemble.nodes[f"/{place.id}{LAST}"] = (b"{", 3)
    with pytest.raises(CorruptNodeError):
        place.run()

    repair(place, LAST).apply()

    place.run()
    assert place.held() == both(BATCHES, ALL)


def test_a_node_that_can_be_read_is_not_written_over(memory: Make) -> None:
    place = memory()
    place.run()

    assert not repair(place, CURRENT).steps
    with pytest.raises(StateUsageError, match="is not written over"):
        repair(place, CURRENT, {"current": 2})


def test_a_value_that_no_state_agrees_with_is_refused(memory: Make) -> None:
    place = broken(memory(), CURRENT, b"{")

    with pytest.raises(StateUsageError, match="states hold txid 3"):
        repair(place, CURRENT, {"current": 6})


def test_a_node_of_a_newer_version_is_left_alone(memory: Make) -> None:
    place = broken(memory(), CURRENT, b'{"schema":3}')

    with pytest.raises(SchemaVersionError, match="upgrade"):
        repair(place, CURRENT)


def test_only_nodes_of_the_coordinator_are_known(memory: Make) -> None:
    with pytest.raises(StateUsageError, match="there is no node"):
        repair(memory(), "/leader")
