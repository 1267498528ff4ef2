"""Checks the Java that PySpark would start, before PySpark starts it.

Without a suitable Java, PySpark prints dozens of lines that do not help. So
:func:`~txtopo.carriers.session.open_session` checks Java first. It reads the file ``release`` of
the Java installation. Only if that file is missing does it run ``java -version``, which takes a
tenth of a second.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from txtopo.errors import ConfigError

JAVA_MIN = 17
"""The oldest Java that Spark 4 runs on."""

# Spark's scripts start the JVM with this module, which some small Java runtimes lack.
VECTOR_MODULE = "jdk.incubator.vector"


def check_java() -> None:
    """Check that PySpark will find a Java that can run Spark.

    Raises:
        ConfigError: It will not; the message has the command that installs Java on this system.
    """
    if _spark_env_file():
        return  # The file may set JAVA_HOME, and only Spark's shell scripts can read it.
    home = os.environ.get("JAVA_HOME")
    fault = _fault(home)
    if fault is not None:
        # Usually JAVA_HOME is left over from a Java that was removed.
        other = "unset JAVA_HOME to use the java in PATH; or " if home and not _fault() else ""
        raise ConfigError(
            f"Spark needs Java {JAVA_MIN} or later, but {fault}; {other}install one: "
            f"{install_command()}",
            setting="JAVA_HOME",
        )


def _spark_env_file() -> bool:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    return bool(folder) and Path(str(folder), "spark-env.sh").exists()


def _fault(home: str | None = None) -> str | None:
    """Return what is wrong with the Java that Spark's scripts would start, if anything.

    Args:
        home: The value of JAVA_HOME.
    """
    if home:
        # If JAVA_HOME is set, the scripts look nowhere else, even if that folder has no Java.
        java = shutil.which(str(Path(home, "bin", "java")))
        where = f"JAVA_HOME={home}"
    else:
        java = shutil.which("java")
        where = "java in PATH"
    if java is None:
        return f"{where} has no bin/java" if home else "there is neither JAVA_HOME nor java in PATH"
    found = _java_at(java)
    if found.version is None:
        return f"the version of {where} is unknown ({java})"
    if found.version < JAVA_MIN:
        return f"{where} is Java {found.version} ({java})"
    if found.modules and VECTOR_MODULE not in found.modules:
        return f"{where} lacks the module {VECTOR_MODULE} ({java})"
    return None


class _Java(NamedTuple):
    version: int | None
    modules: tuple[str, ...]


def _java_at(java: str) -> _Java:
    release = Path(os.path.realpath(java)).parents[1] / "release"
    try:
        text = release.read_text(errors="replace")
    except OSError:
        return _Java(_version(_says(java), r'version "(\d+)(?:\.(\d+))?'), ())
    modules = re.search(r'^MODULES="([^"]*)"', text, re.M)
    return _Java(
        _version(text, r'^JAVA_VERSION="(\d+)(?:\.(\d+))?'),
        tuple(modules[1].split()) if modules else (),
    )


def _says(java: str) -> str:
    """Return the output of ``java -version``. macOS has a command ``java`` even without a Java."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, errors="replace")
    except OSError:
        return ""
    return done.stderr + done.stdout


def _version(text: str, pattern: str) -> int | None:
    """Return 17 for ``17.0.9``, and 8 for ``1.8.0_402``, the numbering before Java 9."""
    found = re.search(pattern, text, re.M)
    if found is None:
        return None
    return int(found[2]) if found[1] == "1" and found[2] else int(found[1])


_DNF = "dnf install -y java-21-openjdk-headless"
_APT = "apt-get update && {sudo}apt-get install -y openjdk-{version}-jre-headless"

# The command by the ID in /etc/os-release; a derived system names its parent in ID_LIKE.
_COMMANDS = {
    "debian": _APT,
    "ubuntu": _APT,
    "amzn": "dnf install -y java-21-amazon-corretto-headless",
    "fedora": _DNF,
    "rhel": _DNF,
    "suse": "zypper install -y java-21-openjdk-headless",
    "alpine": "apk add bash openjdk17-jre-headless",
    "arch": "pacman -S jre21-openjdk-headless",
}

_BREW = (
    "brew install openjdk@17 && "
    'export JAVA_HOME="$(brew --prefix openjdk@17)/libexec/openjdk.jdk/Contents/Home"'
)


def install_command() -> str:
    """Return the command that installs a Java for Spark on this system."""
    if sys.platform == "darwin":
        return _BREW
    try:
        system = platform.freedesktop_os_release()
    except OSError:
        system = {}
    return command_for(system, sudo=os.geteuid() != 0)


def command_for(system: Mapping[str, str], *, sudo: bool) -> str:
    """Return the command of a Linux system.

    Args:
        system: The entries of ``/etc/os-release``.
        sudo: Whether the user must become root first.
    """
    like = [system.get("ID", ""), *system.get("ID_LIKE", "").split()]
    command = next((_COMMANDS[name] for name in like if name in _COMMANDS), None)
    if command is None:
        return "OpenJDK 17 or 21 from the packages of this system; a headless JRE is enough"
    number = system.get("VERSION_ID", "")
    # Ubuntu and Debian up to 12 have 17; Debian has 21 from 13 on.
    old = "ubuntu" in like or (number.isdigit() and int(number) < 13)
    become = "sudo " if sudo else ""
    return become + command.format(sudo=become, version=17 if old else 21)
