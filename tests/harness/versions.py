"""Run tests with other versions: ``make versions``; writes ``docs/reference/versions.md``.

Each setup is a fresh environment with the versions of ``constraints.txt`` but for one thing:
Python, Java or a package. A lowest version is the lower bound in ``setup.cfg``, so the page and the
bounds agree. Packages are installed without their own requirements: ``constraints.txt`` has all of
them, and a version that some range excludes can be tried as well. Each Python is installed for
once; the environment of a setup is a copy, in which pip changes one package. The exit status is 1
if a test fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from configparser import ConfigParser
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic

import pytest

from tests.harness.processes import ROOT
from tests.harness.report_page import DOCS, table, write_page

PAGE = DOCS / "reference" / "versions.md"
COLUMNS = ("setup", "versions", "tests", "passed", "failed", "skipped", "minutes", "day")
NOT_RUN = "not run"
MINUTES = 60
PYTHON_LOWEST = "3.11"
JVMS = Path("/usr/lib/jvm")
GRACE_S = 60.0
"""What a suite gets at least, once its setup has begun in time."""
INTERRUPT_AGAIN_S = 60.0
"""How long pytest may take to stop its servers before it is interrupted again."""

PYTEST = """
import signal, sys, pytest
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(pytest.main(sys.argv[1:]))
"""
"""Runs pytest so that it can be interrupted, also if this process runs in the background of a
shell, which lets what it starts ignore the signal."""

_QUICK = "not integration and not spark and not service and not kills and not slow"
_CORE = "reliable coordinator topology builders bolts state test_tuples.py test_config.py"
_COLUMNS = (
    "sources/test_bad_values.py sources/test_data_source.py sources/test_delta.py"
    " sources/test_delta_changes.py sources/test_delta_frames.py sources/test_files.py"
    " sources/test_files_reading.py sources/test_odd_readers.py sources/test_query.py"
    " stages/test_columns.py stages/test_envelopes.py stages/test_folded_groups.py"
    " frames/test_chunks.py stages/test_partials.py stages/test_replays.py"
    " stages/test_routing.py stages/test_spout_tasks.py state/test_reader.py state_backends/delta"
    " streams/test_interval_join.py streams/test_lookups.py streams/test_operators.py"
    " streams/test_sessions.py streams/test_windows.py test_tuples.py"
)
_SQL = "mariadb mariadb_log postgresql postgresql_log sql_meanings sqlite sqlite_decimals"
_DATABASES = (
    *(f"state_backends/test_{each}.py" for each in _SQL.split()),
    *["sources/test_query.py", "sources/test_query_servers.py", "streams/test_lookups_servers.py"],
)
_ON_SPARK = "builders explanation runtime stages state streams test_pages.py"
_SMOKE = (
    "carriers/test_carriers.py runtime/test_stamps.py runtime/test_foreach_batch.py"
    " runtime/test_frames.py runtime/test_log_on_spark.py state/test_reader_spark.py"
    " streams/test_frame_sources.py streams/test_lookups.py"
)


@dataclass(frozen=True, slots=True)
class Suite:
    """Some of the tests: a marker expression, and parts of ``tests/unit`` (all tests if none)."""

    marks: str
    parts: tuple[str, ...] = ()

    def arguments(self) -> list[str]:
        """Return the arguments for pytest."""
        return ["-m", self.marks, *(f"tests/unit/{part}" for part in self.parts)]


SUITES = {
    "core": Suite(_QUICK, tuple(_CORE.split())),
    "columns": Suite(_QUICK, tuple(_COLUMNS.split())),
    "databases": Suite("not spark and not kills and not slow", _DATABASES),
    "smoke": Suite("spark and not kills and not slow", tuple(_SMOKE.split())),
    "spark": Suite("spark and not kills and not slow", tuple(_ON_SPARK.split())),
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What differs from ``constraints.txt``, and the suites that may notice it.

    Attributes:
        name: What the page calls it.
        suites: Names of suites.
        packages: Versions of packages; None leaves a package out.
        python: The version of Python.
        java: The version of Java; 0 is the newest of this machine, None what is on PATH.
    """

    name: str
    suites: tuple[str, ...]
    packages: Mapping[str, str | None] = field(default_factory=dict)
    python: str = PYTHON_LOWEST
    java: int | None = None

    def versions(self) -> str:
        """Return what differs, for the page."""
        changed = [f"{name} {version or '(none)'}" for name, version in self.packages.items()]
        java = find_java(self.java) if self.java is not None else None
        if java is not None:
            changed.append(f"Java {java[0]}")
        return ", ".join(changed) or f"Python {self.python}"


def setups() -> list[Setup]:
    """Return all setups, in the order in which they run."""
    lowest = lower_bounds()
    pythons = [
        Setup(f"Python {version}", ("core", "columns", "smoke"), python=version)
        for version in ("3.12", "3.13", "3.14")
    ]
    sparks = [
        Setup("PySpark 4.0", ("spark",), {"pyspark": "4.0.5"}),
        Setup("PySpark 4.1", ("spark",), {"pyspark": "4.1.4"}),
        Setup("PySpark 4.3", ("spark",), {"pyspark": "4.3.0", "delta-spark": None}),
    ]
    packages = [
        Setup("SQLAlchemy, lowest", ("databases",), {"sqlalchemy": lowest["sqlalchemy"]}),
        Setup("SQLAlchemy 2.0, newest", ("databases",), {"sqlalchemy": "2.0.58"}),
        Setup("pyarrow, lowest", ("columns", "smoke"), {"pyarrow": lowest["pyarrow"]}),
        Setup("pandas, lowest", ("columns", "smoke"), {"pandas": lowest["pandas"]}),
        Setup("pandas 3", ("columns", "smoke"), {"pandas": "3.1.1"}),
        Setup("NumPy, lowest", ("columns", "smoke"), {"numpy": lowest["numpy"]}),
    ]
    return [*pythons, *packages, *sparks, Setup("Java, newest", ("smoke",), java=0)]


def lower_bounds() -> dict[str, str]:
    """Return the lower bound of each package that the core needs, as ``setup.cfg`` has it."""
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg")
    needed = setup["options"]["install_requires"]
    return {name: full(low) for name, low in re.findall(r"([\w-]+)>=([\d.]+)", needed)}


def full(version: str) -> str:
    """Return a version with three numbers, as package indexes have it."""
    return ".".join([*version.split("."), "0", "0"][:3])


def pins(constraints: str, changed: Mapping[str, str | None]) -> str:
    """Return the lines of ``constraints.txt`` with some versions changed, and some left out."""
    wanted = {spelled(name): version for name, version in changed.items()}
    lines = []
    for line in constraints.splitlines():
        name, pinned, _ = line.partition("==")
        if not pinned or spelled(name) not in wanted:
            lines.append(line)
        elif (version := wanted.pop(spelled(name))) is not None:
            lines.append(f"{name}=={version}")
        else:
            continue
    if wanted:
        raise ValueError(f"constraints.txt pins no {', '.join(wanted)}; add a line for it")
    return "\n".join(lines) + "\n"


def spelled(name: str) -> str:
    """Return the name of a package as all its spellings have it."""
    return name.strip().lower().replace("_", "-")


def find_python(version: str) -> str | None:
    """Return an interpreter of this version: of PATH, or one that pyenv has built."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}"), *map(str, pyenv.glob(f"{version}*/bin/python"))]
    for python in filter(None, found):
        asked = "import sys; print('%d.%d' % sys.version_info[:2])"
        told = subprocess.run([python, "-c", asked], capture_output=True, text=True, check=False)
        if told.stdout.strip() == version:
            return python
    return None


def find_java(version: int) -> tuple[int, Path] | None:
    """Return a Java of this version below ``/usr/lib/jvm``, or the newest for 0."""
    homes = {}
    for release in sorted(JVMS.glob("*/release")):
        if found := re.search(r'^JAVA_VERSION="(\d+)', release.read_text(), re.MULTILINE):
            homes[int(found[1])] = release.parent
    version = version or max(homes, default=0)
    return (version, homes[version]) if version in homes else None


@dataclass(slots=True)
class Outcome:
    """How the suites of a setup ended: counts, or why they did not run."""

    setup: Setup
    counts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    minutes: float = 0.0
    reason: str = ""
    ended: bool = True
    """Whether each suite came to its end, so that the counts are of all its tests."""

    @property
    def failed(self) -> bool:
        """Whether a test failed, or a suite did not come to its end."""
        return bool(self.failures)

    def row(self) -> tuple[str, ...]:
        """Return the row of the page."""
        head = (self.setup.name, self.setup.versions())
        if self.reason:
            return (*head, f"{NOT_RUN}: {self.reason}", *[""] * 5)
        numbers = (str(self.counts.get(name, 0)) for name in ("passed", "failed", "skipped"))
        day = datetime.now(UTC).date().isoformat()
        return (*head, ", ".join(self.setup.suites), *numbers, f"{self.minutes:.0f}", day)


class Environments:
    """Fresh environments: one for each Python that is built once, and copies of it.

    Args:
        folder: Where they are made.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def make(self, setup: Setup, python: str) -> Path:
        """Return the environment of a setup, with all packages.

        Raises:
            subprocess.CalledProcessError: A version cannot be installed.
        """
        first = self._folder / f"python-{setup.python}"
        if not first.exists():
            subprocess.run([python, "-m", "venv", str(first)], check=True)
            wanted = first / "pins.txt"
            wanted.write_text(pins((ROOT / "constraints.txt").read_text(), {}))
            pip(first, "install", "--no-deps", "--no-compile", "-r", str(wanted))
            pip(first, "install", "--no-deps", "--no-build-isolation", "-e", str(ROOT))
        fresh = self._folder / "fresh"
        shutil.rmtree(fresh, ignore_errors=True)
        # pip and Python replace files and never write into one, so the copy may share them.
        shutil.copytree(first, fresh, symlinks=True, copy_function=os.link)
        pinned = pins((ROOT / "constraints.txt").read_text(), setup.packages).splitlines()
        changed = [line for line in pinned if spelled(line.partition("==")[0]) in setup.packages]
        for name, version in setup.packages.items():
            if version is None:
                pip(fresh, "uninstall", "--yes", name)
        if changed:
            pip(fresh, "install", "--no-deps", "--no-compile", *changed)
        return fresh


def pip(environment: Path, *arguments: str) -> None:
    """Run pip in an environment."""
    command = [str(environment / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
    subprocess.run(
        [*command, *arguments, "--quiet"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
    )


def try_setup(setup: Setup, environments: Environments, deadline: float) -> Outcome:
    """Run the suites of a setup in a fresh environment."""
    python = find_python(setup.python)
    java = find_java(setup.java) if setup.java is not None else None
    if python is None:
        return Outcome(setup, reason=f"no Python {setup.python} was there")
    if setup.java is not None and java is None:
        return Outcome(setup, reason=f"no Java {setup.java or ''} in {JVMS}")
    if monotonic() > deadline:
        return Outcome(setup, reason="the time was up")
    outcome, begun = Outcome(setup), monotonic()
    environ = {**os.environ, **({"JAVA_HOME": str(java[1])} if java else {})}
    try:
        fresh = environments.make(setup, python)
    except subprocess.CalledProcessError as error:
        said = (error.stderr or "no word of pip").strip().splitlines()[-1]
        return Outcome(setup, reason=f"could not be installed ({said})")
    for suite in setup.suites:
        run_suite(outcome, SUITES[suite], f"{fresh}/bin/python", environ, deadline)
    outcome.minutes = (monotonic() - begun) / 60
    return outcome


def run_suite(
    outcome: Outcome, suite: Suite, python: str, environ: Mapping[str, str], deadline: float
) -> None:
    """Run a suite and add how it ended, or how far it came."""
    options = ["-q", "-rfE", "-p", "no:cacheprovider", "--tb=no"]
    child = subprocess.Popen(
        [python, "-c", PYTEST, *options, *suite.arguments()],
        cwd=ROOT,
        env={**environ, "COLUMNS": "300"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        printed, told = child.communicate(timeout=max(GRACE_S, deadline - monotonic()))
    except subprocess.TimeoutExpired:
        printed, told = interrupt(child)
        outcome.failures.append("the time was up before all tests had run")
        outcome.ended = False
    counts, failures = summary(printed)
    for name, number in counts.items():
        outcome.counts[name] = outcome.counts.get(name, 0) + number
    outcome.failures += failures
    outcome.ended &= child.returncode in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
    if not outcome.failures and (child.returncode or not counts):
        outcome.failures.append(f"pytest ended with {child.returncode}: {told[-300:]}")


def interrupt(child: subprocess.Popen[str]) -> tuple[str, str]:
    """Interrupt pytest, so that it stops the servers that it has started; return what it printed.

    A library that is at work may swallow the interrupt, so it is sent until pytest has ended.
    """
    while True:
        child.send_signal(signal.SIGINT)
        try:
            return child.communicate(timeout=INTERRUPT_AGAIN_S)
        except subprocess.TimeoutExpired:
            continue


def summary(printed: str) -> tuple[dict[str, int], list[str]]:
    """Return the counts in the last line of pytest, errors as failures, and what failed."""
    lines = printed.rstrip().splitlines()
    counts: dict[str, int] = {}
    for line in reversed(lines):
        if re.search(r" in [\d.]+s\b", line):
            for number, name in re.findall(r"(\d+) (passed|failed|skipped|error)", line):
                kind = "failed" if name == "error" else name
                counts[kind] = counts.get(kind, 0) + int(number)
            break
    return counts, [line for line in lines if line.startswith(("FAILED ", "ERROR "))]


HEAD = """# Versions

The versions of Python, Java and packages that txtopo needs, and which others have been tested. It
needs:

* Python 3.11, 3.12 or 3.13
* PySpark 4.2
* Java 17 or later, for Spark

The full test suite runs with Python 3.11, Java 17 and the versions of `constraints.txt`. This page
lists the others, each tested with part of the suite. `make versions` writes it: each row has a
fresh environment with the versions of `constraints.txt`, except the one that the row names, and
runs tests that may be affected. A lowest version is the lower bound in `setup.cfg`. The parts are
lists of files in `tests/harness/versions.py`:

* `core`: the graph, the coordinator, builders, bolts and states, without Java or servers
* `columns`: code that moves rows in Arrow, pandas and NumPy, without Java or servers: files,
  queries, Delta tables, stages, operators of streams, readers
* `databases`: states, queries and lookups in SQLite, and in PostgreSQL and MariaDB if installed
* `smoke`: on Spark, each carrier, topologies of DataFrames, `foreachBatch`, streams and states as
  DataFrames
* `spark`: the programs on the pages, and all tests of builders, runtime, stages, states and streams
  that need Spark, except those that take minutes

Tests in which Spark writes Delta tables are skipped, because jars belong to one Spark version.
"""

EXCLUDED = (
    ("SQLAlchemy before 2.0.39", "it cannot create strict tables without rowid in SQLite"),
    ("pandas 3", "PySpark 4.2 advises against it, and warns at each use; the tests pass"),
    ("pandas 2.2.0 and 2.2.1", "they are built for NumPy 1, and cannot be imported with NumPy 2"),
    (
        "pyarrow 18 and 19",
        "18 has no concat_batches, 19.0.0 cannot read the Parquet files of deltalake, and 19.0.1"
        " aborts the process at its end if it has read a Delta table",
    ),
    ("PySpark 4.0 and 4.1", "they have no rows above, so nothing is known about them"),
    ("PySpark 4.3", "delta-spark 4.4.0, which the core needs, supports PySpark only up to 4.2.0"),
)
"""What ``setup.cfg`` leaves out, and why."""


def rows_of(page: str) -> dict[str, tuple[str, ...]]:
    """Return the rows of a page, by setup."""
    rows = (line.strip("|").split("|") for line in page.splitlines() if line.startswith("| "))
    cells = [tuple(cell.strip() for cell in row) for row in rows]
    return {row[0]: row for row in cells if len(row) == len(COLUMNS) and row != COLUMNS}


def page_lines(known: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Yield the page, with a row for each setup that ran, and the names of the others."""
    rows = [known[setup.name] for setup in setups() if setup.name in known]
    ran = [row for row in rows if not row[2].startswith(NOT_RUN)]
    yield HEAD
    yield from table(COLUMNS, ran)
    left = {setup.name for setup in setups()} - {row[0] for row in ran}
    names = [setup.name for setup in setups() if setup.name in left]
    yield f"\nWithout a row, because `make versions` has not run them yet: {'; '.join(names)}."
    yield "\n## What is excluded\n\nThe ranges in `setup.cfg` leave out:\n"
    yield from (f"* {what}: {why}" for what, why in EXCLUDED)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.harness.versions", description=__doc__)
    names = ", ".join(setup.name for setup in setups())
    parser.add_argument("--only", metavar="NAME", action="append", help=f"run this one: {names}")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for all of it (60)")
    options = parser.parse_args(arguments)
    chosen = [setup for setup in setups() if options.only is None or setup.name in options.only]
    if len(chosen) < len(options.only or ()):
        parser.error(f"no setup is named so; got {', '.join(options.only)}; known are {names}")
    with tempfile.TemporaryDirectory(prefix="txtopo-versions-") as folder:
        deadline = monotonic() + options.minutes * 60
        return run_all(chosen, Environments(Path(folder)), deadline)


def run_all(chosen: Sequence[Setup], environments: Environments, deadline: float) -> int:
    """Run setups, write the page after each that came to its end, and return the exit status."""
    failed = False
    for setup in chosen:
        outcome = try_setup(setup, environments, deadline)
        failed |= outcome.failed
        print(*outcome.row(), sep="  ", flush=True)
        for failure in outcome.failures:
            print(f"    {failure}", flush=True)
        known = rows_of(PAGE.read_text()) if PAGE.exists() else {}
        if outcome.ended and not (outcome.reason and setup.name in known):
            known[setup.name] = outcome.row()
            write_page(PAGE, page_lines(known))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
