"""``txtopo list``, ``show``, ``kill``, ``activate``, ``deactivate``: verbs for an ensemble."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from txtopo.clock import wall_clock
from txtopo.command.choices import Choices, Duration, choices
from txtopo.command.output import (
    ago,
    cell,
    duration,
    print_json,
    print_line,
    print_note,
    print_pairs,
    print_table,
)
from txtopo.command.page_client import PageClient
from txtopo.config import PROGRESS_FILE, Config
from txtopo.ensemble.commands import Answer, Desired
from txtopo.ensemble.embedded import HOST
from txtopo.ensemble.progress_file import path_in
from txtopo.errors import ConfigError, PromiseError, TxtopoError, escaped
from txtopo.operations.ensemble import WAIT_S, Ensemble, TopologyStatus

FAILURES_SHOWN = 10

# A completion that takes longer is worse than none.
COMPLETION_S = 1.0


@contextmanager
def open_ensemble(chosen: Choices) -> Iterator[Ensemble]:
    """Open the ensemble that a command line names."""
    config = chosen.load_config()
    try:
        ensemble = Ensemble.open(config)
    except ConfigError as error:
        if error.facts.get("setting") != "zookeeper.dir" or chosen.folder is not None:
            raise
        here = "another ensemble"
        if path_in(PROGRESS_FILE).exists():
            here = f"{PROGRESS_FILE}, which is here,"
        raise ConfigError(
            f"{error}; name its folder with --dir, or {here} with --zookeeper", **error.facts
        ) from error
    with ensemble:
        yield ensemble


def token_option(verb: Any) -> Any:
    """Add ``--token`` to a verb."""
    return click.option(
        "--token", metavar="TOKEN", help="The page.token of the run; TXTOPO_PAGE_TOKEN is safer."
    )(verb)


def complete_topology(
    context: click.Context, option: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return the ensemble's ids with this prefix; none if it does not answer at once."""
    with suppress(Exception):
        given = context.ensure_object(Choices).load_config().zookeeper
        zookeeper = replace(given, connect_timeout_s=COMPLETION_S)
        if zookeeper.hosts == "embedded":  # hosting it would take seconds
            port = int((Path(zookeeper.dir) / "port").read_text())
            socket.create_connection((HOST, port), COMPLETION_S).close()
        with Ensemble.open(Config(zookeeper=zookeeper)) as ensemble:
            ids = [each.id for each in ensemble.topologies()]
        return [CompletionItem(id) for id in ids if id.startswith(incomplete) and id == escaped(id)]
    return []


def topology_argument(verb: Any) -> Any:
    """Add the argument ``TOPOLOGY``, an id, to a command."""
    return click.argument("topology", metavar="TOPOLOGY", shell_complete=complete_topology)(verb)


@click.command("list")
@choices
def list_topologies(chosen: Choices) -> None:
    """List the topologies of an ensemble.

    Each with its status, leader, last txid, rate, lag and last failure. Needs the ensemble alone.
    At-least-once topologies are listed if they name a zookeeper.

    \b
    Example:
      txtopo --zookeeper zk1:2181 list
    """
    with open_ensemble(chosen) as ensemble:
        found = ensemble.topologies()
    if chosen.json:
        print_json({"topologies": [status_json(each) for each in found]})
    else:
        print_topologies(found)


def print_topologies(found: list[TopologyStatus]) -> None:
    """Print a table of topologies."""
    now_s = wall_clock()
    print_table(
        ["topology", "status", "leader", "standbys", "txid", "rows/s", "lag", "last failure"],
        [_row(each, now_s) for each in found],
        right=["standbys", "txid", "rows/s", "lag"],
        empty="no topologies",
    )


def _row(topology: TopologyStatus, now_s: float) -> list[object]:
    summary = topology.summary or {}
    return [
        topology.id,
        topology.status,
        process(topology.leader),
        len(topology.standbys),
        topology.txid,
        summary.get("rows_per_second"),
        lag_text(summary),
        _failure(summary.get("last_failure"), now_s),
    ]


def lag_text(summary: Mapping[str, Any]) -> object:
    """Return how far a run is behind: the number of records, or else text with other units."""
    records, units = summary.get("lag_records"), summary.get("lag") or {}
    if records is not None or not units:
        return records
    return ", ".join(f"{count:,} {name}" for name, count in units.items())


def process(candidate: object) -> str | None:
    """Return host and process of a candidate, as ``host:pid``."""
    if isinstance(candidate, dict):
        return f"{candidate.get('host')}:{candidate.get('pid')}"
    return None


def _failure(failure: object, now_s: float) -> str | None:
    if not isinstance(failure, dict):
        return None
    at_s = failure.get("at_s")
    when = ago(at_s, now_s) if isinstance(at_s, int | float) else ""
    return f"{when}: {str(failure.get('cause'))[:80]}"


def status_json(topology: TopologyStatus) -> dict[str, Any]:
    """Return the ensemble's status of a topology, as JSON."""
    desired = topology.desired
    return {
        "topology": topology.id,
        "status": topology.status,
        "leader": topology.leader,
        "standbys": list(topology.standbys),
        "epoch": topology.epoch,
        "txid": topology.txid,
        "desired": None if desired is None else asdict(desired),
        "operation": topology.operation,
        "unreadable": topology.unreadable,
        "summary": topology.summary,
    }


@click.command()
@topology_argument
@click.option("--full", is_flag=True, help="Also show everything that the ensemble stores.")
@token_option
@choices
def show(chosen: Choices, topology: str, token: str | None, *, full: bool) -> None:
    """Show one topology and its run.

    Status, leader, standbys; and of the run phases, states and failures. Needs the ensemble;
    phases, states and failures come from the page of the run, if it has one. --full adds the nodes
    of the ensemble: epoch, desired status, commands, and the metadata of each batch.

    \b
    Example:
      txtopo --zookeeper zk1:2181 show payments
    """
    with open_ensemble(chosen) as ensemble:
        found = ensemble.topology(topology)
        stored = ensemble.stored(topology) if full else None
    page = page_of(found, page_token(chosen, token))
    if chosen.json:
        print_json({**page, "stored": stored})
        return
    print_shown(page)
    for path, value in (stored or {}).items():
        print_line(f"\n{path}\n{json.dumps(value, indent=2)}")
    if page["missing"]:
        print_note(f"phases, states and failures are unknown: {page['missing']}")


def page_token(chosen: Choices, token: str | None) -> str | None:
    """Return the token for the pages of runs: the option, or the setting ``page.token``."""
    page = chosen.load_config().page
    return token if token is not None or page is None else page.token


def page_of(found: TopologyStatus, token: str | None) -> dict[str, Any]:
    """Return a topology's data from ensemble and page; ``missing`` explains a missing page.

    Raises:
        AuthError: The page refuses the token.
    """
    known = {"topology": status_json(found), "figures": None, "failures": None, "missing": None}
    try:
        page = PageClient(found, token)
        return {**known, "figures": page.figures(), "failures": page.failures()[-FAILURES_SHOWN:]}
    except PromiseError:
        raise
    except TxtopoError as error:
        return {**known, "missing": str(error)}


def print_shown(page: dict[str, Any]) -> None:
    """Print the result of :func:`page_of`."""
    status, figures = page["topology"], page["figures"] or {}
    summary = figures or status["summary"] or {}
    now_s = wall_clock()
    started_at_s, desired = summary.get("started_at_s"), status["desired"]
    lines: dict[str, object] = {
        "topology": status["topology"],
        "status": status["status"],
        "epoch": status["epoch"],
        "leader": process(status["leader"]),
        "standbys": ", ".join(str(process(each)) for each in status["standbys"]) or None,
        "since": None if started_at_s is None else duration(now_s - started_at_s),
        "desired": None if desired is None else str(Desired(**desired)),
        "committed": status["txid"],
        "rows/s": summary.get("rows_per_second"),
        "rows": summary.get("rows_total"),
        "lag": lag_text(summary),
        "last failure": _failure(summary.get("last_failure"), now_s),
        "page": summary.get("page"),
    }
    if status["operation"]:
        lines["under way"] = f"{status['operation'].get('verb')}; call it again to end it"
    for path, error in status["unreadable"].items():
        lines[path] = error
    if phases := figures.get("phases"):
        lines["in flight"] = ", ".join(f"{count} {name.lower()}" for name, count in phases.items())
    if (pace := figures.get("pace")) and figures.get("status") == "running":
        lines |= _limits(pace, now_s)
    for name, times in (figures.get("latency") or {}).items():
        if times and times.get("p50_s") is not None:
            p50, p99 = duration(times["p50_s"]), duration(times["p99_s"])
            lines[name] = f"{p50} (half of the batches), {p99} (99 of 100)"
    print_pairs(lines)
    _print_lists(figures, page["failures"] or [], now_s)


def _limits(pace: dict[str, Any], now_s: float) -> dict[str, object]:
    """Return the current limits of batches, in words."""
    settings, by, rows_max = pace["settings"], pace["limited_by"], pace["rows_max"]
    lines: dict[str, object] = {}
    if by is not None:
        most = "" if rows_max is None else f"; rows of the last batch: {cell(rows_max)} at most"
        effect = "; the next batch waits for it" if rows_max == 0 else most
        lines["limited by"] = f"{by} {cell(settings.get(by))}{effect}"
    full_at_s = pace["window_full_at_s"]
    if full_at_s is not None and now_s - full_at_s >= 1:
        window = f"max_spout_pending {cell(pace['window_txids'])}"
        lines["window"] = f"{window}, full for {duration(now_s - full_at_s)}"
    for name, told in (pace.get("held_back") or {}).items():
        lines[f"held back by {name}"] = told
    return lines


def _print_lists(figures: dict[str, Any], failures: list[dict[str, Any]], now_s: float) -> None:
    if states := figures.get("states"):
        print_line("")
        columns = ["state", "kind", "table", "url"]
        print_table(columns, [[each.get(name) for name in columns] for each in states])
    if trees := figures.get("trees"):
        print_line("")
        print_pairs({name: each for name, each in trees.items() if not isinstance(each, list)})
    if failures:
        print_line("")
        names = ["txid", "attempt", "component", "cause"]
        rows = [
            [ago(each.get("at_s"), now_s), *(each.get(name) for name in names)]
            for each in reversed(failures)
        ]
        print_table(["failed", *names], rows, right=["txid", "attempt"])


@click.command()
@topology_argument
@click.option(
    "--wait",
    "wait_s",
    type=Duration(),
    default=WAIT_S,
    metavar="TIME",
    help="How long batches in flight may take before the run stops anyway; 30s by default.",
)
@choices
def kill(chosen: Choices, topology: str, wait_s: float) -> None:
    """End a run, and let nobody start it again.

    It plans nothing new and ends, and no process runs it until it is activated. Its progress and
    its states stay. Needs the ensemble alone; the leader answers, or this command itself if nobody
    leads.

    \b
    Example:
      txtopo --zookeeper zk1:2181 kill payments --wait 10s
    """
    _command(chosen, topology, "kill", wait_s)


@click.command()
@topology_argument
@choices
def activate(chosen: Choices, topology: str) -> None:
    """Let a topology plan batches again.

    After deactivate it continues; after kill it must be started again. Needs the ensemble alone.

    \b
    Example:
      txtopo --zookeeper zk1:2181 activate payments
    """
    _command(chosen, topology, "activate")


@click.command()
@topology_argument
@choices
def deactivate(chosen: Choices, topology: str) -> None:
    """Let a topology plan nothing new.

    Batches in flight are committed, and the run stays. This status lasts: a run that is started
    later is deactivated, too. Needs the ensemble alone.

    \b
    Example:
      txtopo --zookeeper zk1:2181 deactivate payments
    """
    _command(chosen, topology, "deactivate")


def _command(chosen: Choices, topology: str, verb: str, wait_s: float = 0.0) -> None:
    with open_ensemble(chosen) as ensemble:
        before = ensemble.topology(topology)
        if not chosen.json:
            leader = process(before.leader)
            print_note(f"{topology} is {before.status}; {leader or 'nobody'} leads")
        answer = ensemble.ask(topology, verb, wait_s=wait_s)
    if chosen.json:
        print_json({"topology": topology, **asdict(answer)})
    if answer.refused is not None:
        raise PromiseError(
            f"{process(answer.by)} refused to {verb} {topology!r}: {answer.refused}",
            topology=topology,
            verb=verb,
        )
    if not chosen.json:
        print_line(_answered(topology, verb, answer, wait_s))


def _answered(topology: str, verb: str, answer: Answer, wait_s: float) -> str:
    more = {
        "kill": f"; batches in flight may take {duration(wait_s)}; to revive it: "
        f"txtopo activate {topology}",
        "activate": "; if no process is running it, start one",
    }
    by = f"{process(answer.by)} answered with epoch {answer.epoch}"
    return f"{topology} is {answer.status} now; {by}{more.get(verb, '')}"
