"""Unknown settings, and settings of a wrong type, are refused before anything is opened."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import untouched
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import keeping
from tests.harness.runs import LOCAL, Storage
from txtopo import AtLeastOnceConfig, Config, ZooKeeper
from txtopo.errors import ConfigError
from txtopo.runtime.start import start_topology


@bad_input(77)
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max_spout_pendin", r"did you mean 'max_spout_pending'\?"),
        ("batch_timeout", r"did you mean 'batch_timeout_s'\?"),
        ("colour", "known are 'allow_change', 'attempts_max', "),
    ],
)
def test_an_unknown_setting_suggests_the_nearest(name: str, hint: str) -> None:
    settings: dict[str, Any] = {name: 1}

    makers: list[Callable[[], Config]] = [
        lambda: Config(**settings),
        lambda: replace(LOCAL, **settings),
    ]
    for make in makers:
        with pytest.raises(ConfigError, match=f"unknown setting '{name}'; {hint}") as caught:
            make()
        assert caught.value.setting == name


def test_known_settings_are_taken_as_they_were() -> None:
    assert Config("local", slots=3) == Config(slots=3, carrier="local")
    assert pickle.loads(pickle.dumps(Config(slots=3))) == Config(slots=3)


@bad_input(78)
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("zookeeper", 2181, r"zookeeper is of the wrong type; got int; expected a ZooKeeper\(…\)"),
        ("zookeeper", None, "zookeeper is of the wrong type; got NoneType; expected a ZooKeeper"),
        ("page", 8080, r"page is of the wrong type; got int; expected a Page\(…\) or None"),
        ("pace", None, r"pace is of the wrong type; got NoneType; expected a Pace\(…\)"),
        ("carrier", ["rdd"], r"unknown carrier; got \['rdd'\]; expected one of auto, local, rdd"),
        ("slots", "2", "slots must be a whole number of at least 1; got '2'"),
        (
            "max_spout_pending",
            1.5,
            "max_spout_pending must be a whole number of at least 1; got 1.5",
        ),
        (
            "attempts_max",
            0,
            "attempts_max .* at least 1; got 0; expected that, or None for no limit",
        ),
        (
            "attempts_max",
            float("inf"),
            "attempts_max must be a whole number of at least 1; got inf",
        ),
        ("batch_timeout_s", "10 s", "batch_timeout_s must be a finite number above 0; got '10 s'"),
        ("history_txids", True, "history_txids must be a whole number of at least 0; got True"),
        ("backoff_s", float("nan"), "backoff_s must be a finite number above 0; got nan"),
    ],
)
def test_a_setting_of_another_type_is_refused(setting: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        Config(**{setting: value})
    assert caught.value.setting == setting


@bad_input(78)
@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("hosts", 2181, "zookeeper.hosts is of the wrong type; got int; expected a string"),
        ("hosts", "", "zookeeper.hosts is empty; expected 'embedded', 'memory', 'file:"),
        ("dir", 7, "zookeeper.dir is of the wrong type; got int; expected a path"),
        ("tls", True, "zookeeper.tls .* got bool; expected a mapping or None"),
        ("session_timeout_s", 0, "zookeeper.session_timeout_s must be a finite number above 0"),
    ],
)
def test_a_setting_of_the_ensemble_of_another_type_is_refused(
    setting: str, value: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        ZooKeeper(**{setting: value})
    assert caught.value.setting == f"zookeeper.{setting}"


@bad_input(78)
def test_a_number_of_ackers_below_zero_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"ackers must be .* of at least 0; got -1; 0 tracks no t"
    ):
        AtLeastOnceConfig(ackers=-1)


@bad_input(78)
@pytest.mark.parametrize("value", [("user", "secret"), b"user:secret"])
def test_credentials_of_another_type_are_not_shown(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"zookeeper.auth .*expected 'user:password'") as caught:
        ZooKeeper(auth=value)
    assert "secret" not in str(caught.value)


@bad_input(78)
def test_something_else_than_a_config_is_refused_before_anything_is_opened() -> None:
    storage = Storage.in_memory()
    wrong: Any = {"carrier": "local", "zookeeper": "memory", "auth": "user:secret"}

    with (
        untouched(storage),
        pytest.raises(ConfigError, match=r"got dict; .* needs a Config\(…\)") as caught,
    ):
        start_topology(keeping(storage, [["a", 1]]).graph, None, wrong, ensemble=storage.ensemble)
    assert "secret" not in str(caught.value)
