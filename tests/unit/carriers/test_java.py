"""Java is looked for before PySpark; what is wrong is told with the command that repairs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from txtopo.carriers.java import check_java, command_for, install_command
from txtopo.errors import ConfigError


@pytest.fixture(autouse=True)
def nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Take away the Java of this machine."""
    for name in ("JAVA_HOME", "SPARK_HOME", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))


def make_java(home: Path, release: str | None = None, says: str = "") -> None:
    """Make a Java home whose java prints *says*."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\nPATH=/bin:/usr/bin\ncat >&2 <<'END'\n{says}\nEND\n")
    java.chmod(0o755)
    if release is not None:
        (home / "release").write_text(release)


def fault() -> str:
    with pytest.raises(ConfigError, match="Spark needs Java 17 or later") as told:
        check_java()
    assert install_command() in str(told.value)
    return str(told.value).partition("but ")[2].partition(";")[0]


def test_no_java_at_all_is_told() -> None:
    assert fault() == "there is neither JAVA_HOME nor java in PATH"


def test_a_java_home_that_points_nowhere_is_told_even_if_path_has_a_java(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's scripts look no further than JAVA_HOME."""
    make_java(tmp_path, 'JAVA_VERSION="21.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    assert fault() == "JAVA_HOME=/nowhere has no bin/java"
    with pytest.raises(ConfigError, match="; unset JAVA_HOME to use the java in PATH; or inst"):
        check_java()


def test_nobody_is_told_to_unset_java_home_if_path_has_no_java_for_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_java(tmp_path, 'JAVA_VERSION="11.0.2"\n')
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    with pytest.raises(ConfigError, match="JAVA_HOME=/nowhere has no bin/java; install one"):
        check_java()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("release", "says", "version"),
    [
        ('JAVA_VERSION="11.0.2"\n', "", 11),
        ('JAVA_VERSION="1.8.0_402"\n', "", 8),
        (None, 'openjdk version "1.8.0_402"', 8),
        (None, 'openjdk version "16-ea" 2021-03-16', 16),
    ],
)
def test_a_java_that_is_too_old_is_told_with_its_version(
    tmp_path: Path, release: str | None, says: str, version: int
) -> None:
    make_java(tmp_path, release, says)

    assert fault() == f"java in PATH is Java {version} ({tmp_path}/bin/java)"


def test_a_java_without_the_module_that_spark_adds_is_told(tmp_path: Path) -> None:
    make_java(tmp_path, 'JAVA_VERSION="17.0.9"\nMODULES="java.base java.sql"\n')

    assert "lacks the module jdk.incubator.vector" in fault()


@pytest.mark.integration
def test_a_java_of_macos_that_only_offers_to_install_one_is_told(tmp_path: Path) -> None:
    make_java(
        tmp_path, None, "The operation couldn’t be completed. Unable to locate a Java Runtime."
    )

    assert "the version of " in fault()


@pytest.mark.integration
@pytest.mark.parametrize(
    ("release", "says"),
    [
        ('JAVA_VERSION="17.0.15"\nMODULES="java.base jdk.incubator.vector"\n', ""),
        ('JAVA_VERSION="21"\n', ""),
        (None, 'openjdk version "25" 2025-09-16'),
    ],
)
def test_a_java_that_spark_runs_on_is_fine(tmp_path: Path, release: str, says: str) -> None:
    make_java(tmp_path, release, says)

    check_java()


def test_a_java_home_that_sparks_own_scripts_may_set_is_left_to_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-env.sh").write_text("export JAVA_HOME=/opt/java\n")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))

    check_java()


@pytest.mark.parametrize(
    ("system", "command"),
    [
        ({"ID": "debian", "VERSION_ID": "12"}, "apt-get install -y openjdk-17-jre-headless"),
        ({"ID": "debian", "VERSION_ID": "13"}, "apt-get install -y openjdk-21-jre-headless"),
        ({"ID": "debian"}, "apt-get install -y openjdk-21-jre-headless"),
        ({"ID": "ubuntu", "VERSION_ID": "22.04"}, "apt-get install -y openjdk-17-jre-headless"),
        ({"ID": "linuxmint", "ID_LIKE": "ubuntu debian"}, "openjdk-17-jre-headless"),
        ({"ID": "rocky", "ID_LIKE": "rhel centos fedora"}, "dnf install -y java-21-openjdk"),
        ({"ID": "amzn", "ID_LIKE": "fedora"}, "java-21-amazon-corretto-headless"),
        ({"ID": "alpine"}, "apk add bash openjdk17-jre-headless"),
        ({"ID": "opensuse-leap", "ID_LIKE": "suse opensuse"}, "zypper install"),
        ({}, "OpenJDK 17 or 21 from the packages of this system"),
    ],
)
def test_the_command_is_that_of_the_system(system: dict[str, str], command: str) -> None:
    assert command in command_for(system, sudo=False)
    assert "sudo" not in command_for(system, sudo=False)
    assert command_for(system, sudo=True).startswith("sudo ") == bool(system)


@pytest.mark.integration
def test_a_session_without_java_is_one_line_and_not_a_page_of_pyspark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from txtopo import open_session; open_session()"],
        env={"PATH": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )

    assert "JAVA_GATEWAY_EXITED" not in done.stderr
    assert "\ntxtopo.errors.ConfigError: Spark needs Java 17" in done.stderr
    assert "java_gateway" not in done.stderr
