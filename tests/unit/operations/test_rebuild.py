"""ZooKeeper is made to fit the stores."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import ALL, BATCHES, Deployment, apply_with_deaths, both
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import (
    ForeignStateError,
    StateUsageError,
    StoreAheadOfCoordinator,
    StoreBehindCoordinator,
)
from txtopo.metadata import Json
from txtopo.operations import forget, rebuild, show, verify
from txtopo.state import Ledger, open_state

BEGINNING: Json = {"spouts": {"spout": {"absent": None, "cut": {}}}}
"""The start of the source."""


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.row(51)
def test_a_wiped_zookeeper_is_rebuilt_from_ledgers_and_a_position(
    memory: Make, started: bool
) -> None:
    deployment = memory()
    deployment.run(batches=3)
    kept = show(deployment.topology(), deployment.config, access=deployment.access()).batches
    deployment.ensemble = MemoryEnsemble()
    if started:  # which leaves an epoch and current = 1 behind
        with pytest.raises(StoreAheadOfCoordinator, match=r"operations\.rebuild"):
            deployment.run()
    with pytest.raises(StateUsageError, match="position of the source after txid 3"):
        rebuild(deployment.topology(), deployment.config, access=deployment.access())

    given = {3: kept[3]}
    deaths = apply_with_deaths(
        lambda access: rebuild(
            deployment.topology(), deployment.config, metadata=given, access=access
        ),
        deployment,
    )

    assert deaths >= 5
    assert not rebuild(deployment.topology(), deployment.config, access=deployment.access()).steps
    assert verify(deployment.topology(), deployment.config, access=deployment.access()) == []
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


@pytest.mark.row(8)
def test_zookeeper_goes_back_to_a_store_that_was_restored(tmp_path: Path) -> None:
    first, second = (open_state(f"sqlite:///{tmp_path}/{at}.db") for at in range(2))
    deployment = Deployment((first, second))
    deployment.run(batches=2)
    for at in range(2):
        shutil.copy(tmp_path / f"{at}.db", tmp_path / f"{at}.backup")
    kept = show(deployment.topology(), deployment.config, access=deployment.access()).batches
    deployment.run()
    for at in range(2):
        shutil.copy(tmp_path / f"{at}.backup", tmp_path / f"{at}.db")
    with pytest.raises(StoreBehindCoordinator, match="back to txid 2"):
        deployment.run()
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert [each.where for each in findings] == ["a.totals", "b.totals"]
    assert all("call rebuild" in each.remedy for each in findings)

    rebuild(
        deployment.topology(), deployment.config, metadata={2: kept[2]}, access=deployment.access()
    ).apply()

    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


@pytest.mark.parametrize(
    "metadata",
    [
        {"spout": {"planned": 1}},
        {"spouts": {"spout": {"planned": 1, "cut": None}}},
        "x",
        {"spouts": {"spout": {"planned": 1, "cut": [1]}}},
    ],
)
def test_a_position_of_another_shape_is_refused(memory: Make, metadata: object) -> None:
    deployment = memory()
    deployment.run(batches=3)
    deployment.ensemble = MemoryEnsemble()

    with pytest.raises(StateUsageError, match="metadata of txid 3 cannot be used"):
        rebuild(
            deployment.topology(),
            deployment.config,
            metadata={3: metadata},  # type: ignore[dict-item]
            access=deployment.access(),
        )


def test_another_topology_takes_over_what_was_forgotten(make: Make) -> None:
    deployment = make()
    deployment.run()
    heir = make()
    heir.states = deployment.states
    with pytest.raises(ForeignStateError, match=r"operations\.forget"):
        heir.run()

    deaths = apply_with_deaths(
        lambda access: forget(deployment.topology(), deployment.config, access=access), deployment
    )

    assert deaths >= 9
    seen = show(deployment.topology(), deployment.config, access=deployment.access())
    assert (seen.epoch, seen.current, seen.batches) == (None, None, {})
    assert deployment.held() == both(BATCHES, ALL)
    with pytest.raises(StoreAheadOfCoordinator, match=r"operations\.rebuild"):
        heir.run()
    beginning: dict[int, Json] = {BATCHES: BEGINNING}
    deaths = apply_with_deaths(
        lambda access: rebuild(heir.topology(), heir.config, metadata=beginning, access=access),
        heir,
    )
    assert deaths >= 5
    heir.run()
    assert heir.held() == both(2 * BATCHES, 2 * ALL)


def test_one_state_of_a_topology_is_given_up_alone(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=3)
    with pytest.raises(
        StateUsageError, match=r"no state 'a'; expected one of a\.totals, b\.totals"
    ):
        forget(deployment.topology(), deployment.config, state="a", access=deployment.access())

    deaths = apply_with_deaths(
        lambda access: forget(
            deployment.topology(), deployment.config, state="a.totals", access=access
        ),
        deployment,
    )
    assert deaths >= 3
    seen = show(deployment.topology(), deployment.config, access=deployment.access())
    given_up, kept = seen.states["a.totals"], seen.states["b.totals"]
    assert isinstance(given_up, Ledger)
    assert isinstance(kept, Ledger)
    assert (given_up.topology, given_up.component, given_up.ensemble) == ("", "", "")
    assert (given_up.txid, kept.topology, kept.component) == (3, deployment.id, "b")
    assert seen.current == 4

    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


def test_what_takes_its_epochs_from_another_zookeeper_is_told_and_taken_over_on_purpose(
    memory: Make,
) -> None:
    deployment = memory()
    deployment.run(batches=3)
    kept = show(deployment.topology(), deployment.config, access=deployment.access())
    deployment.ensemble = MemoryEnsemble()
    with pytest.raises(StoreAheadOfCoordinator, match=f"ensemble .*{kept.ensemble}"):
        deployment.run()
    findings = verify(deployment.topology(), deployment.config, access=deployment.access())
    assert [f"{kept.ensemble!r}; this ZooKeeper is" in str(each) for each in findings].count(
        True
    ) == 2

    plan = rebuild(
        deployment.topology(),
        deployment.config,
        metadata={3: kept.batches[3]},
        access=deployment.access(),
    )
    assert (
        f"taken over from state 'totals' of component 'a' of topology {deployment.id!r}, with "
        f"epochs of ensemble {kept.ensemble!r}" in str(plan)
    )
    plan.apply()
    deployment.run()
    assert deployment.held() == both(BATCHES, ALL)


def test_what_is_released_although_another_zookeeper_has_it_is_told(memory: Make) -> None:
    deployment = memory()
    deployment.run(batches=3)
    token = show(deployment.topology(), deployment.config, access=deployment.access()).ensemble
    deployment.ensemble = MemoryEnsemble()
    with pytest.raises(StoreAheadOfCoordinator):
        deployment.run()

    plan = forget(deployment.topology(), deployment.config, access=deployment.access())
    assert str(plan).count("it is taken from state 'totals' of component") == 2
    assert str(plan).count(f"with epochs of ensemble {token!r}") == 2
    plan.apply()
    plan = forget(deployment.topology(), deployment.config, access=deployment.access())
    assert plan.steps == ()


@pytest.mark.integration
def test_a_delta_table_changes_hands(tmp_path: Path) -> None:
    first, second = (open_state(f"delta:///{tmp_path}/{at}") for at in range(2))
    deployment, heir = Deployment((first, second)), Deployment((first, second), id="heir")
    deployment.run(batches=2)

    forget(deployment.topology(), deployment.config, access=deployment.access()).apply()
    beginning: dict[int, Json] = {2: BEGINNING}
    rebuild(heir.topology(), heir.config, metadata=beginning, access=heir.access()).apply()

    heir.run()
    assert heir.held() == both(2 + BATCHES, ALL + sum(range(4)))
    with pytest.raises(ForeignStateError):
        deployment.run()
