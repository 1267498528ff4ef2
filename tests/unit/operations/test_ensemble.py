"""The view of a whole ensemble, without modules and stores of topologies."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.private import free_port
from tests.harness.servers.zookeeper import LONG_SESSION_S, ZooKeeperProcess
from tests.unit.operations.conftest import Make
from tests.unit.operations.deployment import Deployment
from txtopo import Config, ZooKeeper, open_state
from txtopo.ensemble import Journal, MemoryEnsemble, MemoryTransactionalState
from txtopo.ensemble.commands import Desired, who
from txtopo.ensemble.nodes import DESIRED
from txtopo.ensemble.zookeeper.state import ZooKeeperTransactionalState
from txtopo.errors import AuthError, ConfigError, CoordinatorUnavailable, StateUsageError
from txtopo.metadata import Json
from txtopo.operations import forget, repair_node, show, verify
from txtopo.operations.ensemble import Ensemble
from txtopo.plugins.ensembles import register_ensemble

MEMORY = Config(zookeeper="memory")
ODD = ["a b", "ü日本", "%2F", 'it\'s "x" <script>alert(1)</script>'.replace("/", "|"), "-", "a.b"]
MANY = 200


def config_of(zookeeper: ZooKeeperProcess, chroot: str = "", **more: str) -> Config:
    return Config(
        zookeeper=ZooKeeper(
            zookeeper.hosts + chroot,
            session_timeout_s=LONG_SESSION_S,
            connect_timeout_s=LIMIT_S,
            auth=more.get("digest"),
        )
    )


def claim(config: Config, *ids: str) -> None:
    """Make topologies that have run once."""
    for id in ids:
        state = ZooKeeperTransactionalState(
            config.zookeeper.hosts, id, auth=config.zookeeper.auth, connect_timeout_s=LIMIT_S
        )
        Journal(state).claim_epoch({"host": "h", "pid": 1}, token="t")
        state.close()


@pytest.mark.service("zookeeper")
def test_topologies_are_listed_whatever_their_ids(zookeeper: ZooKeeperProcess) -> None:
    config = config_of(zookeeper, "/odd")
    claim(config, *ODD)

    with Ensemble.open(config) as ensemble:
        found = ensemble.topologies()
        for id in ODD:
            assert ensemble.ask(id, "deactivate").status == "deactivated"
            assert (
                ensemble.topology(id).desired
                == ensemble.topologies()[sorted(ODD).index(id)].desired
            )

    assert [(each.id, each.status, each.epoch, each.current) for each in found] == [
        (id, "stopped", 1, 1) for id in sorted(ODD)
    ]


@pytest.mark.service("zookeeper")
def test_many_topologies_are_listed_with_their_summaries(zookeeper: ZooKeeperProcess) -> None:
    config = config_of(zookeeper, "/many")
    state = ZooKeeperTransactionalState(config.zookeeper.hosts, "0", connect_timeout_s=LIMIT_S)
    for number in range(MANY):
        state._root = f"/many/{number:03}"
        state._known.clear()
        Journal(state).claim_epoch({"host": "h"}, token="t")

    with Ensemble.open(config) as ensemble:
        found = ensemble.topologies()

    state.close()
    assert [each.id for each in found] == [f"{number:03}" for number in range(MANY)]
    assert {each.epoch for each in found} == {1}


@pytest.mark.service("zookeeper")
def test_leader_standbys_and_summary_are_shown_and_operators_are_not(
    zookeeper: ZooKeeperProcess, tmp_path: Path
) -> None:
    states = open_state(f"sqlite:///{tmp_path}/a.db"), open_state(f"sqlite:///{tmp_path}/b.db")
    topology = Deployment(states, hosts=zookeeper.hosts + "/led", id="led")
    with (
        topology.topology().start(config=topology.config) as run,
        topology.topology().start(config=topology.config) as standby,
        Ensemble.open(topology.config) as ensemble,
    ):
        run.process_all_available(LIMIT_S)
        wait_until(lambda: standby.status == "standby", "the second one stands by")
        wait_until(lambda: (ensemble.topology("led").summary or {}).get("txid") == 5, "it says so")
        assert ensemble.ask("led", "deactivate").epoch == 1
        found = ensemble.topology("led")
        wait_until(lambda: ensemble.topology("led").status == "deactivated", "it is told")

    assert isinstance(found.leader, dict)
    assert "operator" not in found.leader
    assert len(found.standbys) == 1
    assert (found.epoch, found.current, found.operation, found.unreadable) == (1, 6, None, {})
    with Ensemble.open(topology.config) as ensemble:
        assert ensemble.topology("led").status == "stopped"
        assert ensemble.topology("led").summary is None


@pytest.mark.service("zookeeper")
def test_a_topology_of_another_user_is_named_with_the_refusal(zookeeper: ZooKeeperProcess) -> None:
    claim(config_of(zookeeper, "/users"), "open")
    private = Config(zookeeper=ZooKeeper(zookeeper.hosts + "/users", auth="anne:secret"))
    claim(private, "private")

    with Ensemble.open(config_of(zookeeper, "/users")) as ensemble:
        refused, free = sorted(ensemble.topologies(), key=lambda each: not each.unreadable)
        with pytest.raises(AuthError):
            ensemble.ask("private", "kill")
    with Ensemble.open(private) as ensemble:
        assert ensemble.ask("private", "kill").status == "killed"

    assert (refused.id, free.id) == ("private", "open")
    assert "refuses access" in refused.unreadable["/epoch"]


@pytest.mark.service("zookeeper")
def test_looking_creates_nothing(zookeeper: ZooKeeperProcess) -> None:
    config = config_of(zookeeper, "/nothing")
    with Ensemble.open(config) as ensemble:
        assert ensemble.topologies() == []
        for id in ("nobody", "zookeeper"):
            with pytest.raises(StateUsageError, match="no topology"):
                ensemble.ask(id, "kill")
    with Ensemble.open(config_of(zookeeper, "/")) as ensemble:
        assert "nothing" not in ensemble._directory.ids()


def test_an_ensemble_that_is_away_is_told_within_its_limit() -> None:
    config = Config(zookeeper=ZooKeeper(f"127.0.0.1:{free_port()}", connect_timeout_s=0.5))

    with pytest.raises(CoordinatorUnavailable, match=r"tried .* for 0.5 s"):
        Ensemble.open(config)


def test_a_name_that_is_almost_right_is_asked_for() -> None:
    memory = MemoryEnsemble()
    Journal(MemoryTransactionalState("payments", memory)).claim_epoch({}, token="t")

    with (
        Ensemble.open(MEMORY, ensemble=memory) as ensemble,
        pytest.raises(StateUsageError, match="did you mean 'payments'"),
    ):
        ensemble.ask("payment", "kill")


def test_memory_of_another_process_cannot_be_reached() -> None:
    with pytest.raises(ConfigError, match="no other process"):
        Ensemble.open(MEMORY)


def test_a_plug_in_is_asked_about_one_topology_and_cannot_list() -> None:
    memory = MemoryEnsemble()
    register_ensemble("mine", lambda url, id, zookeeper: MemoryTransactionalState(id, memory))
    Journal(MemoryTransactionalState("t", memory)).claim_epoch({}, token="t")

    with Ensemble.open(Config(zookeeper="mine://there")) as ensemble:
        assert ensemble.ask("t", "kill").status == "killed"
        assert ensemble.topology("t").status == "killed"
        with pytest.raises(ConfigError, match="cannot list"):
            ensemble.topologies()
        with pytest.raises(StateUsageError, match="no topology 'u'"):
            ensemble.topology("u")


def test_a_node_that_cannot_be_read_is_named_and_the_rest_is_shown() -> None:
    memory = MemoryEnsemble()
    Journal(MemoryTransactionalState("t", memory)).claim_epoch({}, token="t")
    memory.nodes["/t/desired"] = (b"\x00", 0)

    with Ensemble.open(MEMORY, ensemble=memory) as ensemble:
        (found,) = ensemble.topologies()

    assert (found.epoch, found.desired) == (1, None)
    assert "cannot be read" in found.unreadable["/desired"]


def test_all_that_is_stored_is_shown_and_what_cannot_be_read_is_named(memory: Make) -> None:
    deployment = memory()
    deployment.run()
    with Ensemble.open(deployment.config, ensemble=deployment.ensemble) as ensemble:
        ensemble.ask(deployment.id, "deactivate")
        deployment.ensemble.nodes[f"/{deployment.id}/commands/{7:020}"] = (b"?", 0)
        stored = ensemble.stored(deployment.id)
        with pytest.raises(StateUsageError, match="no topology 'other'"):
            ensemble.stored("other")

    names = dict.fromkeys(path.split("/")[1] for path in stored)
    assert [*names] == ["epoch", "current", "desired", "batches", "commands"]
    assert stored[DESIRED]["status"] == "deactivated"  # type: ignore[call-overload, index]
    assert stored[f"/commands/{1:020}"]["verb"] == "deactivate"  # type: ignore[call-overload, index]
    assert "cannot be read" in str(stored[f"/commands/{7:020}"])


def test_show_prints_what_operators_want_and_who_asked(memory: Make) -> None:
    deployment = memory()
    topology, config, access = deployment.topology(), deployment.config, deployment.access()
    deployment.run()
    assert "\n  desired      running\n" in str(show(topology, config, access=access))

    with Ensemble.open(config, ensemble=deployment.ensemble) as ensemble:
        ensemble.ask(deployment.id, "kill")

    seen = show(topology, config, access=access)
    assert seen.desired is not None
    assert seen.desired.status == "killed"
    assert f"\n  desired      killed, as {who(seen.desired.by)} asked\n" in str(seen)
    deployment.ensemble.nodes[f"/{deployment.id}/desired"] = (b"?", 0)
    seen = show(topology, config, access=access)
    assert "\n  desired      unknown\n" in str(seen)
    assert DESIRED in seen.unreadable


def test_a_desired_status_that_is_damaged_is_found_and_put_back(memory: Make) -> None:
    deployment = memory()
    topology, config, access = deployment.topology(), deployment.config, deployment.access()
    deployment.run()
    with Ensemble.open(config, ensemble=deployment.ensemble) as ensemble:
        ensemble.ask(deployment.id, "kill")
    deployment.ensemble.nodes[f"/{deployment.id}/desired"] = (b"?", 0)
    assert [each.where for each in verify(topology, config, access=access)] == [DESIRED]
    with pytest.raises(StateUsageError, match="no other node records"):
        repair_node(topology, DESIRED, config, access=access)

    value: dict[str, Json] = {"status": "killed", "command": 0}
    repair_node(topology, DESIRED, config, value=value, access=access).apply()

    assert verify(topology, config, access=access) == []
    with Ensemble.open(config, ensemble=deployment.ensemble) as ensemble:
        assert ensemble.topology(deployment.id).desired == Desired("killed", 1)
        assert ensemble.ask(deployment.id, "activate").number == 2


def test_a_topology_that_is_forgotten_leaves_no_desired_status(memory: Make) -> None:
    deployment = memory()
    deployment.run()
    with Ensemble.open(deployment.config, ensemble=deployment.ensemble) as ensemble:
        ensemble.ask(deployment.id, "kill")

    forget(deployment.topology(), deployment.config, access=deployment.access()).apply()

    assert deployment.ensemble.nodes == {}
