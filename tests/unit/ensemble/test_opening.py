"""From a Config to the transactional state that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from txtopo import (
    Count,
    Fields,
    PersistentAggregate,
    TransactionalTopologyBuilder,
    ZooKeeper,
    open_state,
)
from txtopo.config import Config
from txtopo.ensemble import (
    MemoryEnsemble,
    MemoryTransactionalState,
    Put,
    TransactionalState,
    open_transactional_state,
)
from txtopo.ensemble.nodes import check_topology_id, split_chroot
from txtopo.errors import ConfigError
from txtopo.plugins.ensembles import register_ensemble
from txtopo.spouts import MemoryTransactionalSpout

MEMORY = Config(zookeeper="memory")


def test_memory_of_its_own_is_opened_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    assert isinstance(open_transactional_state(MEMORY.zookeeper, "t"), MemoryTransactionalState)
    assert "is lost when this process ends" in caplog.text


def test_a_shared_ensemble_is_used_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    ensemble = MemoryEnsemble()
    open_transactional_state(MEMORY.zookeeper, "t", ensemble=ensemble).apply([Put("/a", 1)])

    assert open_transactional_state(MEMORY.zookeeper, "t", ensemble=ensemble).get("/a")
    assert caplog.text == ""


def test_embedded_without_a_jvm_names_the_ways_out() -> None:
    with pytest.raises(ConfigError, match=r"needs the JVM .* 'host:port' .* 'memory'"):
        open_transactional_state(Config().zookeeper, "t")


@pytest.mark.parametrize("topology_id", ["", ".", "..", "a/b", "a..b", "a\0b", "a\nb", "x" * 256])
def test_a_topology_id_that_is_no_path_is_refused(topology_id: str) -> None:
    with pytest.raises(ConfigError, match="topology id cannot be used as a path"):
        open_transactional_state(MEMORY.zookeeper, topology_id)


@pytest.mark.parametrize("topology_id", ["a", "global-count", "Zählung 1.0", "x" * 255])
def test_other_topology_ids_are_taken_as_they_are(topology_id: str) -> None:
    assert check_topology_id(topology_id) == topology_id


@pytest.mark.parametrize(
    ("hosts", "servers", "chroot"),
    [
        ("a:1,b:2", "a:1,b:2", "/txtopo"),
        ("a:1/", "a:1", "/txtopo"),
        ("a:1/x/y/", "a:1", "/x/y"),
    ],
)
def test_the_chroot_follows_the_servers(hosts: str, servers: str, chroot: str) -> None:
    assert split_chroot(hosts) == (servers, chroot)


@pytest.mark.parametrize("hosts", ["/x", "a:1,,b:1", "a:1/x/../y", "a:1/x//y", "a:b"])
def test_hosts_that_cannot_be_read_are_refused(hosts: str) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper (hosts|chroot) cannot be read; got"):
        open_transactional_state(Config(zookeeper=hosts).zookeeper, "t")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"auth": "nobody"}, "expected 'user:password'"),
        ({"auth": {"username": "a"}}, "names no mechanism"),
        ({"tls": {"cafile": "x"}}, "unknown setting 'cafile'"),
    ],
)
def test_wrong_credentials_are_found_before_anything_connects(
    setting: dict[str, object], message: str
) -> None:
    zookeeper = ZooKeeper("a:1", **setting)  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=message) as error:
        open_transactional_state(zookeeper, "t")
    assert "nobody" not in str(error.value)


def test_a_scheme_names_an_ensemble_of_a_plug_in() -> None:
    """With the whole URL, and with the settings that it may want."""
    ensemble, asked = MemoryEnsemble(), list[object]()

    def factory(url: str, topology_id: str, zookeeper: ZooKeeper) -> TransactionalState:
        asked.extend((url, topology_id, zookeeper.session_timeout_s))
        return MemoryTransactionalState(topology_id, ensemble)

    register_ensemble("Mine", factory)
    config = Config(zookeeper=ZooKeeper("mine://a:1,b:2/root", session_timeout_s=3))
    open_transactional_state(config.zookeeper, "t").apply([Put("/a", 1)])
    assert list(ensemble.nodes) == ["/t/a"]
    assert asked == ["mine://a:1,b:2/root", "t", 3]


def test_a_topology_runs_on_the_ensemble_of_a_plug_in() -> None:
    ensemble = MemoryEnsemble()
    register_ensemble("shared", lambda url, id, zookeeper: MemoryTransactionalState(id, ensemble))
    spout = MemoryTransactionalSpout({0: [["a"], ["b"], ["a"]]}, Fields("word string"), 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    counts = open_state("memory:", table="counts")
    count = PersistentAggregate(counts, "word", Count())
    builder.set_bolt("count", count).fields_grouping("spout", "word")

    config = Config(zookeeper="shared://", carrier="local")
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()
    with counts.reader() as reader:
        assert dict(reader.items()) == {"a": 2, "b": 1}
    assert "/words/epoch" in ensemble.nodes


def test_an_unknown_scheme_is_refused_with_those_that_are_known() -> None:
    register_ensemble("known", lambda url, id, zookeeper: MemoryTransactionalState(id))

    with pytest.raises(
        ConfigError, match=r"no ensemble for zookeeper='etcd://…'; known are .*known"
    ):
        open_transactional_state(Config(zookeeper="etcd://host:2379").zookeeper, "t")


def test_a_plug_in_that_opens_something_else_is_refused() -> None:
    register_ensemble("wrong", lambda url, id, zookeeper: object())  # type: ignore[arg-type]

    with pytest.raises(ConfigError, match=r"the ensemble 'wrong' opens no .* got object; expected"):
        open_transactional_state(Config(zookeeper="wrong://").zookeeper, "t")


def test_an_installed_ensemble_that_cannot_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "broken-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text("[txtopo.ensembles]\nbroken = no_such_module:open\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(ConfigError, match=r"'broken' cannot be loaded .* ModuleNotFoundError"):
        open_transactional_state(Config(zookeeper="broken://host").zookeeper, "t")
