"""Single nodes of ZooKeeper are put back, and none is guessed."""

from __future__ import annotations

import pytest

from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import (
    ALL,
    BATCHES,
    POISON,
    Deployment,
    apply_with_deaths,
    both,
)
from txtopo.ensemble.nodes import CURRENT, EPOCH, batch_path
from txtopo.errors import CorruptNodeError, PoisonBatchError, SchemaVersionError, StateUsageError
from txtopo.operations import Plan, repair_node, show, verify

LAST = batch_path(3)


def broken(deployment: Deployment, path: str, data: bytes | None) -> Deployment:
    """Run three batches, and break a node."""
    deployment.run(batches=3)
    full = f"/{deployment.id}{path}"
    if data is None:
        del deployment.ensemble.nodes[full]
    else:
        deployment.ensemble.nodes[full] = (data, deployment.ensemble.nodes[full][1])
    return deployment


def repair(deployment: Deployment, path: str, value: object = None) -> Plan:
    access = deployment.access()
    return repair_node(deployment.topology(), path, deployment.config, value=value, access=access)  # type: ignore[arg-type]


@pytest.mark.parametrize("data", [None, b"\x80pickle", b'{"schema":1,"write":"w","value":7}'])
@pytest.mark.parametrize("path", [EPOCH, CURRENT])
@pytest.mark.row(3)
def test_what_follows_from_the_ledgers_is_put_back(
    memory: Make, path: str, data: bytes | None
) -> None:
    deployment = broken(memory(), path, data)
    before = show(deployment.topology(), deployment.config, access=deployment.access())
    with pytest.raises(CorruptNodeError, match=r"call txtopo\.operations\.repair_node"):
        deployment.run()
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert any(f"repair_node({path!r})" in each.remedy for each in findings)

    apply_with_deaths(
        lambda access: repair_node(deployment.topology(), path, deployment.config, access=access),
        deployment,
    )

    assert not repair(deployment, path).steps
    after = show(deployment.topology(), deployment.config, access=deployment.access())
    assert after.current == 4
    assert (after.epoch or 0) > (before.epoch or 0 if path == CURRENT else 1)
    assert verify(deployment.topology(), deployment.config, access=deployment.access()) == []
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("data", [None, b"{"])
def test_metadata_in_use_is_put_back_only_as_it_was(memory: Make, data: bytes | None) -> None:
    deployment = memory()
    deployment.run(batches=3)
    value = show(deployment.topology(), deployment.config, access=deployment.access()).batches[3]
    broken(deployment, LAST, data)
    with pytest.raises(StateUsageError, match="only ZooKeeper had the metadata of txid 3"):
        repair(deployment, LAST)
    with pytest.raises(CorruptNodeError):
        repair(deployment, LAST, {"planned": 1})

    apply_with_deaths(
        lambda access: repair_node(
            deployment.topology(), LAST, deployment.config, value=value, access=access
        ),
        deployment,
    )

    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


@pytest.mark.parametrize("opaque", [False, True])
def test_a_batch_that_no_state_holds_is_planned_again(memory: Make, opaque: bool) -> None:
    deployment = memory(opaque)
    with pytest.raises(PoisonBatchError):
        deployment.run(POISON)
    deployment.ensemble.nodes[f"/{deployment.id}{LAST}"] = (b"{", 3)
    with pytest.raises(CorruptNodeError):
        deployment.run()

    repair(deployment, LAST).apply()

    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


def test_a_node_that_can_be_read_is_not_written_over(memory: Make) -> None:
    deployment = memory()
    deployment.run()

    assert not repair(deployment, CURRENT).steps
    with pytest.raises(StateUsageError, match="is not overwritten"):
        repair(deployment, CURRENT, {"current": 2})


def test_a_value_that_no_state_agrees_with_is_refused(memory: Make) -> None:
    deployment = broken(memory(), CURRENT, b"{")

    with pytest.raises(StateUsageError, match="states hold txid 3"):
        repair(deployment, CURRENT, {"current": 6})


def test_a_node_of_a_newer_version_is_left_alone(memory: Make) -> None:
    deployment = broken(memory(), CURRENT, b'{"schema":2}')

    with pytest.raises(SchemaVersionError, match="upgrade"):
        repair(deployment, CURRENT)


def test_only_nodes_of_the_coordinator_are_known(memory: Make) -> None:
    with pytest.raises(StateUsageError, match="there is no node"):
        repair(memory(), "/leader")
