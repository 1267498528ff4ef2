"""``txtopo doctor``: checks everything that a run needs; prints a line each, with a remedy."""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import click

from txtopo.carriers.java import check_java
from txtopo.carriers.spark_home import check_spark_home
from txtopo.clock import wall_clock
from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_topology
from txtopo.command.output import print_json, print_table
from txtopo.config import Config, Page
from txtopo.ensemble.progress_file import is_file, path_in
from txtopo.errors import TxtopoError
from txtopo.extras import EXTRAS, remedy
from txtopo.log_records import one_line
from txtopo.operations.ensemble import Ensemble
from txtopo.runtime.needs import missing_packages, needed_servers, shown_name, silent
from txtopo.state import open_state
from txtopo.state.registry import redacted_url

SKEW_S_MAX = 1.0
"""A summary that is further in the future than this was written with another clock."""


@dataclass(frozen=True, slots=True)
class Examined:
    """The result of a check.

    Attributes:
        name: What was checked.
        status: ``ok``, ``failed``, or ``none`` for something optional that is missing.
        found: What was found; for a failure also what to do.
    """

    name: str
    status: str
    found: str


@click.command()
@click.argument("urls", nargs=-1, metavar="[URL]...")
@click.option(
    "--topology",
    "place",
    metavar="MODULE:ATTRIBUTE",
    help="A topology: also check the packages and the servers that it needs.",
)
@modules_option
@choices
def doctor(chosen: Choices, urls: tuple[str, ...], place: str | None) -> int:
    """Check whether everything that a run needs is there.

    Python, Java, Spark, extras, settings, ensemble, clocks and stores, and with --topology the
    packages and servers of a topology. Each URL is that of a state's store. The exit code is 1 if
    something failed.

    \b
    Example:
      txtopo --zookeeper zk1:2181 doctor postgresql://user@host/database
      txtopo doctor --topology payments.py:topology
    """
    checks = [*_machine(), *_ensemble(chosen), *(_store(url) for url in urls)]
    if place is not None:
        checks += _topology(chosen, place)
    if chosen.json:
        print_json({"checks": [asdict(each) for each in checks]})
    else:
        print_table(["check", "status", "found"], [(c.name, c.status, c.found) for c in checks])
    return 1 if any(each.status == "failed" for each in checks) else 0


def _tried(name: str, look: Callable[[], str]) -> Examined:
    """Return what a check found, or the error that it raised."""
    try:
        return Examined(name, "ok", look())
    except TxtopoError as error:
        return Examined(name, "failed", str(error))
    except Exception as error:  # noqa: BLE001 - of a driver or a plug-in
        return Examined(name, "failed", one_line(error))


def _machine() -> Iterator[Examined]:
    yield Examined("python", "ok", f"{platform.python_version()} ({sys.executable})")
    yield _tried("python of workers", _python_of_workers)
    yield _tried("java", _java)
    yield _tried("spark", _spark)
    for module, extra in sorted(EXTRAS.items(), key=lambda each: each[1]):
        name, package = f"extra {extra.name}", extra.package
        if not _is_there(module):
            yield Examined(name, "none", f"{package} is not installed: {extra.command}")
        else:
            yield Examined(name, "ok", f"{package} {_version(package)}")


def _is_there(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # of the containing package, which lacks a package itself
        return False


def _python_of_workers() -> str:
    named = os.environ.get("PYSPARK_PYTHON")
    if named is None:
        return f"{sys.executable} with a local master; set PYSPARK_PYTHON to use another"
    if shutil.which(named) is None:
        raise TxtopoError(
            f"PYSPARK_PYTHON={named} is not a program on this machine; unset it, or set it to a "
            "Python interpreter",
            setting="PYSPARK_PYTHON",
            got=named,
        )
    return f"{named} (PYSPARK_PYTHON)"


def _java() -> str:
    check_java()
    home = os.environ.get("JAVA_HOME")
    return f"{home} (JAVA_HOME)" if home else str(shutil.which("java"))


def _spark() -> str:
    check_spark_home()
    return f"pyspark {_version('pyspark')}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "there"


def _ensemble(chosen: Choices) -> Iterator[Examined]:
    try:
        config = chosen.load_config()
    except TxtopoError as error:
        yield Examined("settings", "failed", str(error))
        return
    yield Examined("settings", "ok", "txtopo config shows each setting and where it came from")
    page, zookeeper = config.page, config.zookeeper
    if page is not None and page.port:
        yield _tried("page", lambda: _port(page))
    if zookeeper.hosts == "memory":
        yield Examined("ensemble", "none", "zookeeper='memory': progress is lost when a run ends")
        return
    made = path_in(zookeeper.hosts) if is_file(zookeeper.hosts) else Path(zookeeper.dir).resolve()
    own = is_file(zookeeper.hosts) or (zookeeper.hosts == "embedded" and chosen.folder is None)
    if own and not made.exists():
        yield Examined("ensemble", "none", f"{made} will be created by the first run")
        return
    skews: list[tuple[float, str]] = []
    yield _tried("ensemble", lambda: _topologies(config, skews))
    ahead = [f"that of {id!r} by {skew_s:.1f} s" for skew_s, id in skews if skew_s > SKEW_S_MAX]
    if ahead:
        yield Examined("clocks", "failed", f"ahead of this machine: {', '.join(ahead)}; use NTP")
    elif skews:
        yield Examined(
            "clocks", "ok", f"no leader's clock is {SKEW_S_MAX:g} s ahead of this machine's"
        )


def _topologies(config: Config, skews: list[tuple[float, str]]) -> str:
    with Ensemble.open(config) as ensemble:
        found = ensemble.topologies()
    for each in found:
        at_s = (each.summary or {}).get("updated_at_s")
        if isinstance(at_s, int | float):
            skews.append((at_s - wall_clock(), each.id))
    return f"{config.zookeeper.place}; topologies: {len(found)}"


def _topology(chosen: Choices, place: str) -> Iterator[Examined]:
    """Check what a start of a topology would check before Spark starts."""
    try:
        topology = load_topology(place, chosen.modules)
        graph, config = topology.graph, chosen.config_of(topology)
        needed = needed_servers(graph, config)
    except TxtopoError as error:
        yield Examined(place, "failed", str(error))
        return
    lacks = missing_packages(graph, config)
    yield from (Examined(f"package {x.package}", "failed", f"{x}; {remedy([x])}") for x in lacks)
    if not lacks:
        yield Examined(f"packages of {topology.id}", "ok", "each that it needs can be imported")
    silences = silent(needed)
    yield from (
        Examined(each.name, "failed", f"no address answers: {each.found}") for each in silences
    )
    named = {each.name for each in silences}
    for server, needing in needed.items():
        if (name := shown_name(server, needing)) not in named:
            yield Examined(name, "ok", "a connection was opened")


def _port(page: Page) -> str:
    from txtopo.ui.pages.server import listen  # it needs the extra ui

    listen(page).close()
    return f"port {page.port} of {page.host} is free"


def _store(url: str) -> Examined:
    def look() -> str:
        state = open_state(url, table="state")
        written = "; Spark writes it" if state.session_conf() else ""
        with closing(state.open("state")) as backend:
            stored = backend.stored()
        states = "" if stored is None else f"; states: {len(stored)}"
        return f"it answers{states}{written}"

    return _tried(redacted_url(url), look)
