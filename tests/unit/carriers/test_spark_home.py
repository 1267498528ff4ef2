"""PySpark would start the Spark of SPARK_HOME, whatever that is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark import __version__

from txtopo.carriers.session import open_session
from txtopo.carriers.spark_home import check_spark_home
from txtopo.errors import ConfigError

WANTED = re.match(r"\d+\.\d+", __version__)


def make_spark(home: Path, version: str) -> None:
    for file in ("bin/spark-submit", f"jars/spark-core_2.13-{version}.jar"):
        (home / file).parent.mkdir(parents=True)
        (home / file).touch()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("home")
def test_a_folder_without_spark_is_told() -> None:
    """Popen would say only that it misses a file."""
    with pytest.raises(ConfigError, match=r"no bin/spark-submit; .*; unset SPARK_HOME"):
        check_spark_home()


@pytest.mark.parametrize("version", ["3.5.1", "3.5.0-amzn-1", "4.0.0"])
def test_a_spark_of_another_version_is_told(home: Path, version: str) -> None:
    make_spark(home, version)

    with pytest.raises(ConfigError, match=f"which is Spark {version[:3]}; expected Spark"):
        check_spark_home()


@pytest.mark.parametrize("patch", ["9", "0-vendor-1"])
def test_a_spark_of_the_same_minor_version_is_fine(home: Path, patch: str) -> None:
    assert WANTED is not None
    make_spark(home, f"{WANTED[0]}.{patch}")

    check_spark_home()


def test_without_spark_home_there_is_nothing_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)

    check_spark_home()


@pytest.mark.usefixtures("home")
def test_a_session_looks_at_spark_home_before_it_starts_a_jvm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_gateway", None)
    monkeypatch.setattr("txtopo.carriers.session.active_session", lambda: None)
    for name in ("PYSPARK_GATEWAY_PORT", "SPARK_REMOTE"):
        monkeypatch.delenv(name, raising=False)

    with pytest.raises(ConfigError, match="unset SPARK_HOME"):
        open_session()
