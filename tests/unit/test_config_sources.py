"""Settings come from code, the environment, a file or the default; errors say from where."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Config,
    Fields,
    Pace,
    Page,
    TopologyBuilder,
    ZooKeeper,
)
from txtopo.config import known_settings
from txtopo.config_sources import Setting, find_settings, of_text
from txtopo.errors import ConfigError
from txtopo.spouts import MemorySpout

PASSWORD = "user:s3cret-word"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def said(path: Path | None = None, /, *, environment: dict[str, str], **settings: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        Config.load(path, environment=environment, **settings)
    return str(raised.value)


def test_the_first_source_that_gives_a_setting_holds(folder: Path) -> None:
    (folder / "txtopo.toml").write_text("slots = 1\nmax_spout_pending = 1\nattempts_max = 1\n")
    variables = {"TXTOPO_SLOTS": "2", "TXTOPO_MAX_SPOUT_PENDING": "2"}

    config = Config.load(environment=variables, slots=3)

    assert (config.slots, config.max_spout_pending, config.attempts_max) == (3, 2, 1)
    assert config.group_txids_max == Config().group_txids_max
    found = find_settings(known_settings(), None, variables, {"slots": 3})
    assert {name: each.source for name, each in found.items()} == {
        "slots": "code",
        "max_spout_pending": "TXTOPO_MAX_SPOUT_PENDING",
        "attempts_max": "txtopo.toml, line 3",
    }


def test_a_file_is_named_by_a_path_or_a_variable(folder: Path) -> None:
    (folder / "txtopo.toml").write_text("slots = 1")
    (folder / "mine.toml").write_text("slots = 2")

    assert Config.load("mine.toml", environment={"TXTOPO_CONFIG": "nothing.toml"}).slots == 2
    assert Config.load(environment={"TXTOPO_CONFIG": "mine.toml"}).slots == 2
    assert Config.load(environment={}).slots == 1


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("slots", "4", 4),
        ("slots", "none", None),
        ("attempts_max", "None", None),
        ("batch_timeout_s", "1.5", 1.5),
        ("batch_timeout_s", "90", 90.0),
        ("allow_change", "true", True),
        ("allow_change", "Off", False),
        ("allow_change", "states, columns", ("states", "columns")),
        ("zookeeper.hosts", "none", "none"),
        ("zookeeper.auth", PASSWORD, PASSWORD),
        ("zookeeper.auth", '{mechanism = "GSSAPI"}', {"mechanism": "GSSAPI"}),
        ("page.port", "8080", 8080),
        ("zookeeper.tls", '{use_ssl = true, ca = "ca.pem"}', {"use_ssl": True, "ca": "ca.pem"}),
        ("zookeeper.tls", "none", None),
    ],
)
def test_a_text_becomes_the_type_of_its_setting(name: str, text: str, value: object) -> None:
    config = Config.load(environment={f"TXTOPO_{name.upper().replace('.', '_')}": text})

    assert attrgetter(name)(config) == value
    assert of_text(known_settings(), name, text, "here") == Setting(value, "here")


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("slots = 4", "slots", 4),
        ('slots = "none"', "slots", None),
        ("batch_timeout_s = 90", "batch_timeout_s", 90.0),
        ("allow_change = true", "allow_change", True),
        ('allow_change = ["source", "states"]', "allow_change", ("states", "source")),
        ('[zookeeper.tls]\nca = "ca.pem"', "zookeeper.tls", {"ca": "ca.pem"}),
        ('zookeeper.tls.ca = "ca.pem"', "zookeeper.tls", {"ca": "ca.pem"}),
    ],
)
def test_a_file_has_toml(folder: Path, line: str, name: str, value: object) -> None:
    (folder / "txtopo.toml").write_text(line)

    found = attrgetter(name)(Config.load(environment={}))
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("variable", "text", "words"),
    [
        ("TXTOPO_SLOT", "4", "unknown variable 'TXTOPO_SLOT'; did you mean 'TXTOPO_SLOTS'?"),
        ("TXTOPO_slots", "4", "did you mean 'TXTOPO_SLOTS'?"),
        ("TXTOPO_SLOTS", "four", "got 'four'; expected a whole number or 'none'; it comes from"),
        ("TXTOPO_SLOTS", "0", "at least 1; got 0; it comes from TXTOPO_SLOTS"),
        ("TXTOPO_ALLOW_CHANGE", "maybe", "such as {'states', 'columns'}; it comes from"),
        ("TXTOPO_CARRIER", "air", "it comes from TXTOPO_CARRIER"),
        ("TXTOPO_BATCH_TIMEOUT_S", "inf", "it comes from TXTOPO_BATCH_TIMEOUT_S"),
        ("TXTOPO_ZOOKEEPER_TLS", "a\nslots = 3", "it comes from TXTOPO_ZOOKEEPER_TLS"),
        ("TXTOPO_CONFIG", "nothing.toml", "which TXTOPO_CONFIG names, cannot be read"),
    ],
)
def test_a_wrong_variable_is_named(variable: str, text: str, words: str) -> None:
    assert words in said(environment={variable: text})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("\nslot = 4", "unknown setting 'slot' in txtopo.toml, line 2; did you mean 'slots'?"),
        ('slots = "4"', "got '4'; expected a whole number or 'none'; it comes from txtopo.toml"),
        ("slots = true", "got True; expected a whole number"),
        ("# mine\n\nslots = 0", "at least 1; got 0; it comes from txtopo.toml, line 3"),
        ("attempts_max = 1.5", "it comes from txtopo.toml, line 1"),
        ("slots = [4]", "got 'list'; expected a whole number"),
        ("slots == 4", "txtopo.toml is not valid TOML:"),
        ("[txtopo]\nslots = 4", "settings belong at the top level"),
        (
            'zookeeper = "zk1:2181"',
            "zookeeper is a table; got str in txtopo.toml, line 1; expected [zo",
        ),
        (
            "[zookeeper]\nhost = 1",
            "'zookeeper.host' in txtopo.toml, line 2; did you mean 'zookeeper.ho",
        ),
        ("slots = 4\n[page]\nport = 70000", "it comes from txtopo.toml, line 3"),
        ("[pace]\nmin_batch_rows = 4", "pace.min_batch_rows is given without max_batch_delay_s"),
        ("slots = 4\nslots = 5", "is not valid TOML"),
    ],
)
def test_a_wrong_file_is_named_with_its_line(folder: Path, text: str, words: str) -> None:
    (folder / "txtopo.toml").write_text(text)

    assert words in said(environment={})


def test_a_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "latin.toml").write_bytes(b"# \xff")

    assert "No such file" in said(folder / "nothing.toml", environment={})
    assert "Is a directory" in said(folder, environment={})
    assert "can't decode" in said(folder / "latin.toml", environment={})


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("zookeeper.tls", f'zookeeper.tls = "{PASSWORD}"'),
        ("zookeeper.auth", f'zookeeper.auth = ["{PASSWORD}"]'),
        ("zookeeper.auth", f'zookeeper = "{PASSWORD}"'),
    ],
)
def test_a_secret_is_never_shown(folder: Path, name: str, line: str) -> None:
    (folder / "txtopo.toml").write_text(line)

    assert PASSWORD not in said(environment={})
    if name != "zookeeper.auth":
        assert PASSWORD not in said(environment={"TXTOPO_ZOOKEEPER_TLS": PASSWORD})
    assert PASSWORD not in repr(Setting(PASSWORD, "code"))


def test_an_empty_variable_is_not_set() -> None:
    assert Config.load(environment={"TXTOPO_SLOTS": "", "TXTOPO_CONFIG": ""}) == Config()


def test_variables_of_kubernetes_and_our_tools_are_no_settings() -> None:
    variables = {
        "TXTOPO_SERVICE_HOST": "10.0.0.1",
        "TXTOPO_SERVICE_PORT_HTTP": "80",
        "TXTOPO_PORT": "tcp://10.0.0.1:80",
        "TXTOPO_PAGE_PORT_80_TCP_ADDR": "10.0.0.1",
        "TXTOPO_JARS": "/jars",
        "TXTOPO_LONG": "1",
    }
    assert Config.load(environment=variables) == Config()


def test_the_port_of_the_page_is_a_setting_though_kubernetes_makes_such_variables() -> None:
    assert Config.load(environment={"TXTOPO_PAGE_PORT": "8080"}).page == Page(8080)
    assert Config.load(environment={"TXTOPO_PAGE_PORT": "tcp://10.0.0.1:80"}).page is None


@pytest.mark.parametrize("digits", [400, 5000])
def test_a_number_that_is_too_large_is_refused_with_its_line(folder: Path, digits: int) -> None:
    (folder / "txtopo.toml").write_text(f"zookeeper.session_timeout_s = {'9' * digits}")

    assert "txtopo.toml" in said(environment={})
    with pytest.raises(ConfigError, match="finite number above 0"):
        Config(pace=Pace(max_rows_per_second=10**400))


def test_a_record_is_given_by_its_settings() -> None:
    with pytest.raises(ConfigError, match=r"'zookeeper' in --set; expected one of zookeeper\."):
        of_text(known_settings(), "zookeeper", "zk1:2181", "--set")


def test_an_unknown_setting_of_code_has_a_hint() -> None:
    assert said(environment={}, slot=4) == "unknown setting 'slot'; did you mean 'slots'?"


def test_a_topology_takes_a_shared_file_with_settings_that_it_does_not_use(folder: Path) -> None:
    (folder / "txtopo.toml").write_text('attempts_max = 3\ncarrier = "local"\nackers = 2')
    builder = TopologyBuilder("shouting")
    builder.set_spout("words", MemorySpout([["a"]], Fields("word string")))

    class Nothing(BasicBolt):
        def execute(self, tuple: Any, collector: Any) -> None:
            pass

    builder.set_bolt("nothing", Nothing()).shuffle_grouping("words")
    topology = builder.build_topology()

    config = AtLeastOnceConfig.load(environment={})
    assert (config.ackers, Config.load(environment={}).attempts_max) == (2, 3)
    with topology.start(config=config) as run:
        run.process_all_available()
    with pytest.raises(ConfigError, match="'attempts_max'; it is a setting of Config"):
        AtLeastOnceConfig.load(environment={}, attempts_max=1)


def test_code_gives_a_record_as_a_whole_and_hosts_alone(folder: Path) -> None:
    (folder / "txtopo.toml").write_text(f'[zookeeper]\nauth = "{PASSWORD}"\n[page]\nport = 8080')

    whole = Config.load(environment={}, zookeeper=ZooKeeper("zk1:2181"), page=None)
    hosts = Config.load(environment={}, zookeeper="zk1:2181")

    assert (whole.zookeeper, whole.page) == (ZooKeeper("zk1:2181"), None)
    assert (hosts.zookeeper, hosts.page) == (ZooKeeper("zk1:2181", auth=PASSWORD), Page(8080))
    assert "page is of the wrong type; got Pace" in said(environment={}, page=Pace())
