"""The settings of each kind of topology, and the records among them."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest

from tests.harness.processes import ROOT
from tests.harness.report_page import table
from txtopo import (
    AtLeastOnceConfig,
    Config,
    Fields,
    Pace,
    Page,
    TopologyBuilder,
    TransactionalTopologyBuilder,
    ZooKeeper,
)
from txtopo.config import RECORDS, AnyConfig, for_tasks, known_settings
from txtopo.errors import ConfigError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout

WORD = Fields("word string")
KINDS: tuple[type[AnyConfig], ...] = (Config, AtLeastOnceConfig)

SECRETIVE = Config(
    zookeeper=ZooKeeper("etcd://ann:s3cr@t@host/chroot", auth="ann:secret", tls={"ca": "secret"}),
    page=Page(token="secret-of-the-page"),
)


def test_a_topology_takes_the_settings_of_its_kind() -> None:
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    transactional = TransactionalTopologyBuilder("words", "spout", spout).build_topology()
    builder = TopologyBuilder("words")
    builder.set_spout("spout", MemorySpout([["a"]], WORD))
    at_least_once = builder.build_topology()

    with pytest.raises(ConfigError, match=r"got AtLeastOnceConfig; .* needs a Config\(…\)"):
        transactional.start(config=AtLeastOnceConfig())  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"got Config; .* needs an AtLeastOnceConfig\(…\)"):
        at_least_once.start(config=Config())  # type: ignore[arg-type]


@pytest.mark.parametrize("carrier", ["rdd", "dataframe"])
def test_an_at_least_once_topology_has_carriers_that_live(carrier: Any) -> None:
    with pytest.raises(ConfigError, match="cannot run an at-least-once topology") as told:
        AtLeastOnceConfig(carrier=carrier)
    assert told.value.setting == "carrier"


@pytest.mark.parametrize("kind", KINDS)
def test_hosts_are_short_for_the_record(kind: type[AnyConfig]) -> None:
    config = kind(zookeeper="zk1:2181")

    assert config.zookeeper == ZooKeeper(hosts="zk1:2181")
    assert replace(config, slots=2).zookeeper == config.zookeeper
    assert replace(config, zookeeper="memory").zookeeper == ZooKeeper("memory")


def test_a_driver_is_alone_unless_it_is_given_an_ensemble() -> None:
    assert AtLeastOnceConfig().zookeeper is None
    assert Config().zookeeper == ZooKeeper(hosts="embedded")


@pytest.mark.parametrize("kind", [Config, AtLeastOnceConfig])
def test_without_spark_the_progress_is_in_a_file_by_default(kind: type[AnyConfig]) -> None:
    """Whoever names a folder means the embedded server."""
    given = {"TXTOPO_CARRIER": "local", "TXTOPO_ZOOKEEPER_SESSION_TIMEOUT_S": "3"}
    own = Config.load(environment={**given, "TXTOPO_ZOOKEEPER_DIR": "/zookeeper"})

    assert kind.load(environment=given).shown()["zookeeper.hosts"] == "file:txtopo-progress.db"
    assert kind(carrier="local", zookeeper="zk1:2181").zookeeper == ZooKeeper("zk1:2181")
    assert own.zookeeper.hosts == "embedded"


@pytest.mark.parametrize(
    ("max_spout_pending", "run_txids"),
    [(1, 1), (2, 1), (3, 1), (4, 2), (29, 10), (30, 10), (31, 11)],
)
def test_a_run_has_a_third_of_the_window(max_spout_pending: int, run_txids: int) -> None:
    assert Config().max_spout_pending == 30
    assert Config(max_spout_pending=max_spout_pending).run_txids == run_txids


@pytest.mark.parametrize(
    ("kind", "name", "hint"),
    [
        (Config, "message_timeout_s", "it is a setting of AtLeastOnceConfig"),
        (AtLeastOnceConfig, "batch_timeout_s", "it is a setting of Config"),
        (AtLeastOnceConfig, "pace", "it is a setting of Config"),
        (Config, "run_txids_max", "did you mean "),
        (Config, "jobs_max", "known are "),
    ],
)
def test_an_unknown_setting_of_the_other_kind_is_told_where_it_belongs(
    kind: type[AnyConfig], name: str, hint: str
) -> None:
    settings: dict[str, Any] = {name: 3}

    with pytest.raises(ConfigError, match=f"unknown setting '{name}'; {hint}") as made:
        kind(**settings)
    with pytest.raises(ConfigError, match=f"unknown setting '{name}'; {hint}") as loaded:
        kind.load(environment={}, **settings)
    assert made.value.setting == loaded.value.setting == name


@pytest.mark.parametrize("config", [SECRETIVE, AtLeastOnceConfig(ackers=2, zookeeper="memory")])
def test_a_copy_of_a_config_is_equal(config: AnyConfig) -> None:
    others = [pickle.loads(pickle.dumps(config)), copy.copy(config), copy.deepcopy(config)]

    assert [*others, replace(config)] == [config] * 4


def test_settings_without_mappings_can_be_keys() -> None:
    assert hash(Config(slots=None)) == hash(Config())


def test_a_config_that_is_printed_shows_no_credentials() -> None:
    assert "hosts='etcd://***@host/chroot'" in repr(SECRETIVE)
    for text in (repr(SECRETIVE), str(SECRETIVE.shown())):
        assert "s3cr" not in text
        assert "secret" not in text


def test_tasks_get_no_credentials() -> None:
    given = for_tasks(SECRETIVE)

    assert given.page is None
    assert (given.zookeeper or ZooKeeper()).auth is None
    assert for_tasks(AtLeastOnceConfig()) == AtLeastOnceConfig()


@pytest.mark.parametrize(
    ("pace", "message"),
    [
        ({"min_batch_rows": 5}, "pace.min_batch_rows is given without max_batch_delay_s"),
        ({"max_batch_delay_s": 5}, "pace.max_batch_delay_s is given without min_batch_rows"),
        ({"target_commit_s": 0}, "pace.target_commit_s must be a finite number above 0; got 0"),
        ({"max_rows": 5}, "unknown setting 'pace.max_rows'; did you mean 'pace.m"),
    ],
)
def test_a_pace_that_cannot_be_kept_is_refused(pace: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as told:
        Pace(**pace)
    assert told.value.setting == f"pace.{next(iter(pace))}"


def rows(kind: type[AnyConfig]) -> Iterator[str]:
    """Yield the lines of a table in docs/reference/settings.md."""
    defaults = kind().shown()
    records = [RECORDS[each.name] for each in fields(kind) if each.name in RECORDS]
    for record in records:
        defaults |= {record.called(each.name): each.default for each in fields(record)}
    return table(
        ["setting", "default"],
        [[f"`{name}`", f"`{defaults[name]!r}`"] for name in known_settings(kind)],
    )


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_of_settings_has_the_settings_and_defaults_of_a_kind(
    kind: type[AnyConfig],
) -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()

    assert "\n".join(rows(kind)) in page, "\n".join(rows(kind))


def test_the_page_of_settings_says_what_each_means() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    meanings, _ = page.split("## Defaults")

    assert set(re.findall(r"^\| `([\w.]+)` \| ", meanings, re.MULTILINE)) == set(known_settings())
