"""A topology refuses settings that its kind does not use, if they are given."""

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
from txtopo import Config, Fields, TopologyBuilder, TransactionalTopologyBuilder
from txtopo.bolts import BasicBolt
from txtopo.config import USED_BY, Kind
from txtopo.errors import ConfigError
from txtopo.spouts import MemorySpout, MemoryTransactionalSpout, StreamSpout

WORD = Fields("word string")

OTHER: dict[str, Any] = {
    "carrier": "local",
    "zookeeper": "memory",
    "zookeeper_dir": "elsewhere",
    "zookeeper_digest": "user:password",
    "zookeeper_sasl": {"mechanism": "DIGEST-MD5"},
    "zookeeper_tls": {"ca": "ca.pem"},
    "ackers": 0,
    "allow_change": True,
    "check_replays": False,
    "ui_host": "localhost",
    "ui_token": "a token has 16 characters".replace(" ", "-"),
}
"""A value of each setting that is not its default; the other settings are numbers."""

SETTINGS = [each for each in fields(Config) if each.init]


class Nothing(BasicBolt):
    def execute(self, tuple: Any, collector: Any) -> None:
        pass


def transactional(config: Config) -> None:
    spout = MemoryTransactionalSpout({0: [["a"]]}, WORD, 1)
    builder = TransactionalTopologyBuilder("words", "spout", spout)
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("spout")
    with builder.build_topology().start(config=config) as run:
        run.process_all_available()


def by_query(config: Config) -> None:
    builder = TransactionalTopologyBuilder("words", "spout", StreamSpout(WORD))
    builder.set_bolt("nothing", Nothing()).shuffle_grouping("spout")
    builder.build_topology().foreach_batch(config)


def at_least_once(config: Config) -> None:
    builder = TopologyBuilder("words")
    builder.set_spout("spout", MemorySpout([["a"]], WORD))
    builder.build_topology().start(config=config).stop()


@pytest.mark.parametrize(
    ("run", "setting", "value", "kind", "users"),
    [
        (transactional, "ackers", 0, "a transactional topology", "an at-least-once topology"),
        (transactional, "ackers", None, "a transactional topology", "an at-least-once topology"),
        (transactional, "message_timeout_s", 9, "a transactional topology", "an at-least-once"),
        (by_query, "zookeeper", "memory", "foreach_batch", "a transactional topology"),
        (by_query, "max_spout_pending", 3, "foreach_batch", "a transactional topology"),
        (at_least_once, "session_timeout_s", 9, "an at-least-once topology", "with zookeeper"),
        (at_least_once, "attempts_max", 9, "an at-least-once topology", "a transactional"),
        (at_least_once, "batch_timeout_s", 9, "an at-least-once topology", "carrier 'resident'"),
    ],
)
def test_a_setting_that_the_kind_of_a_topology_ignores_is_refused(
    run: Any, setting: str, value: Any, kind: str, users: str
) -> None:
    settings = {setting: value} if run is by_query else {"carrier": "local", setting: value}
    config = Config(**settings)

    with pytest.raises(ConfigError, match=rf"topology 'words' is {kind}, .* got {setting} \(only"):
        run(config)
    with pytest.raises(ConfigError, match=users) as told:
        run(config)
    assert told.value.setting == setting


def test_settings_that_are_not_given_are_never_refused() -> None:
    transactional(Config(carrier="local", zookeeper="memory"))
    by_query(Config())
    at_least_once(Config(carrier="local"))


def test_what_is_given_is_told_from_the_defaults() -> None:
    assert Config().given == frozenset()
    assert Config("local", ackers=None).given == {"carrier", "ackers"}


TOGETHER = {"min_batch_rows": "max_batch_delay_s", "max_batch_delay_s": "min_batch_rows"}
"""Settings that are only given with another one."""


@pytest.mark.parametrize("setting", [each.name for each in SETTINGS])
def test_a_copy_of_a_config_has_the_same_settings_given(setting: str) -> None:
    default = getattr(Config(), setting)
    other = {TOGETHER[setting]: 3} if setting in TOGETHER else {}
    config = Config(**{setting: OTHER.get(setting, 3 if default != 3 else 4), **other})

    others = [pickle.loads(pickle.dumps(config)), copy.copy(config), copy.deepcopy(config)]
    others.append(replace(config))
    others.append(replace(replace(config, slots=7), slots=config.slots))

    assert [each.given for each in others] == [{setting, *other}] * 5
    assert others == [config] * 5
    assert replace(config, attempts_max=9).given == {setting, *other, "attempts_max"}
    assert "given" not in repr(config)


def test_which_setting_is_given_does_not_count_in_a_comparison() -> None:
    assert Config(slots=None) == Config()
    assert hash(Config(slots=None)) == hash(Config())


def test_a_config_that_is_printed_shows_no_credentials() -> None:
    config = Config(
        zookeeper="etcd://ann:s3cr@t@host/chroot",
        zookeeper_digest="ann:secret",
        ui_token="secret-of-the-page",
    )

    assert "zookeeper='etcd://***@host/chroot'" in repr(config)
    assert "s3cr" not in repr(config)
    assert "secret" not in repr(config)


def rows() -> Iterator[str]:
    """Yield the lines of the table in docs/reference/settings.md."""
    columns = {
        "transactional": (Kind.TRANSACTIONAL, {Kind.RESIDENT: "`resident`"}),
        "`foreach_batch`": (Kind.FOREACH_BATCH, {}),
        "at-least-once": (
            Kind.AT_LEAST_ONCE,
            {
                Kind.AT_LEAST_ONCE_RESIDENT: "`resident`",
                Kind.AT_LEAST_ONCE_STANDBY: "with `zookeeper`",
            },
        ),
    }
    cells = [
        [
            f"`{each.name}`",
            f"`{each.default!r}`",
            *(
                "yes"
                if kind in users
                else ", ".join(cell for some, cell in parts.items() if some in users) or "–"
                for kind, parts in columns.values()
            ),
        ]
        for each in SETTINGS
        for users in [USED_BY[each.name]]
    ]
    return table(["setting", "default", *columns], cells)


def test_the_page_of_settings_says_which_kinds_use_each() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()

    assert set(USED_BY) == {each.name for each in SETTINGS}
    assert "\n".join(rows()) in page, "\n".join(rows())


def test_the_page_of_settings_says_what_each_means() -> None:
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    meanings, _ = page.split("## Which topologies use them")

    assert set(re.findall(r"^\| `(\w+)` \| ", meanings, re.MULTILINE)) == set(USED_BY)
