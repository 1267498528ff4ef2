"""``txtopo lag``, ``errors``, ``watch``: figures of a run, from its own page."""

from __future__ import annotations

import io
import select
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

import click

from txtopo.clock import wall_clock
from txtopo.command.choices import Choices, Duration, choices
from txtopo.command.output import (
    ago,
    print_json,
    print_json_line,
    print_line,
    print_note,
    print_table,
)
from txtopo.command.page_client import PageClient
from txtopo.command.topologies import (
    complete_topology,
    open_ensemble,
    page_of,
    page_token,
    print_shown,
    print_topologies,
    status_json,
    token_option,
    topology_argument,
)
from txtopo.errors import AuthError, InfrastructureError, escaped
from txtopo.operations.ensemble import Ensemble, TopologyStatus

_CLEAR, _TO_END_OF_LINE, _TO_END = "\x1b[H", "\x1b[K", "\x1b[J"
_OTHER_SCREEN, _OWN_SCREEN = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@click.command()
@topology_argument
@token_option
@choices
def lag(chosen: Choices, topology: str, token: str | None) -> None:
    """Show the lag of each partition.

    That is how many of its records were not read yet, the most first, or files, bytes, versions,
    keys, offsets or seconds, where records are not counted. Needs the page of the run (--set
    page.port=0 at its start); without one only the sum is known.

    \b
    Example:
      txtopo --zookeeper zk1:2181 lag payments
    """
    found = _topology(chosen, topology)
    figures = _of_page(found, lambda: PageClient(found, page_token(chosen, token)).figures())
    known: dict[str, Any] = figures if figures is not None else (found.summary or {})
    partitions = known.get("partitions") or []
    total, listed = known.get("lag_records"), known.get("partitions_total") or len(partitions)
    if chosen.json:
        print_json(
            {
                "topology": topology,
                "lag_records": total,
                "lag": known.get("lag") or {},
                "partitions": None if figures is None else partitions,
                "partitions_total": None if figures is None else listed,
            }
        )
        return
    if partitions:
        names = ("partition", "lag_records", "lost")
        rows = [[each.get(name) for name in names] for each in partitions]
        print_table(["partition", "lag", "lost"], rows, right=["lag"])
    if listed > len(partitions):
        shown = f"{len(partitions)} of {listed} partitions are shown"
        print_note(f"{shown}: those furthest behind")
    units = [f"{count:,} {name}" for name, count in (known.get("lag") or {}).items()]
    print_line(f"lag: {', '.join(units) or 'unknown'}")


@click.command()
@topology_argument
@click.option(
    "--since",
    "since_s",
    type=Duration(),
    metavar="TIME",
    help="Only those of this period, such as 1h.",
)
@token_option
@choices
def errors(chosen: Choices, topology: str, since_s: float | None, token: str | None) -> None:
    """Count failures by component and cause.

    Needs the page of the run (--set page.port=0 at its start), which keeps the last hundred;
    without one only the last failure is known.

    \b
    Example:
      txtopo --zookeeper zk1:2181 errors payments --since 1h
    """
    found = _topology(chosen, topology)
    failures = _of_page(found, lambda: PageClient(found, page_token(chosen, token)).failures())
    if failures is None:
        last = (found.summary or {}).get("last_failure")
        failures = [last] if isinstance(last, dict) else []
    now_s = wall_clock()
    counted = count_failures(failures, 0.0 if since_s is None else now_s - since_s)
    if chosen.json:
        print_json({"topology": topology, "errors": counted})
        return
    print_table(
        ["component", "kind", "count", "last", "txid", "cause"],
        [
            [
                each["component"],
                each["kind"],
                each["count"],
                ago(each["last_at_s"], now_s),
                each["last_txid"],
                each["cause"],
            ]
            for each in counted
        ],
        right=["count", "txid"],
        empty="no failures",
    )


def count_failures(failures: list[dict[str, Any]], since_s: float) -> list[dict[str, Any]]:
    """Return how many failures there were of each component, kind and class of cause, most first.

    Args:
        failures: The failures of a board, the newest last.
        since_s: The earliest time, in seconds since 1970.
    """
    counted: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in failures:
        at_s = each.get("at_s")
        if not isinstance(at_s, int | float) or at_s < since_s:
            continue
        cause = str(each.get("cause"))
        key = each.get("component"), each.get("kind"), cause.partition(":")[0]
        before = counted.get(key, {"count": 0})
        # Failures of trees, and reported errors, are one row for each second.
        number = each.get("failures") if each.get("txid") is None else 1
        counted[key] = {
            "component": each.get("component"),
            "kind": each.get("kind"),
            "count": before["count"] + (number if isinstance(number, int) else 1),
            "last_at_s": at_s,
            "last_txid": each.get("txid"),
            "cause": cause,
        }
    return sorted(counted.values(), key=lambda each: (-each["count"], -each["last_at_s"]))


def _topology(chosen: Choices, topology: str) -> TopologyStatus:
    with open_ensemble(chosen) as ensemble:
        return ensemble.topology(topology)


def _of_page(found: TopologyStatus, ask: Callable[[], Any]) -> Any:
    """Return the answer of a page; None if it cannot be reached, after printing why."""
    try:
        return ask()
    except InfrastructureError as error:
        print_note(f"only what the ensemble stores is shown: {error}")
        return None


@click.command()
@click.argument("topology", required=False, metavar="[TOPOLOGY]", shell_complete=complete_topology)
@click.option(
    "--every",
    "every_s",
    type=Duration(),
    default=1.0,
    metavar="TIME",
    help="How often to refresh; 1s by default.",
)
@token_option
@choices
def watch(chosen: Choices, topology: str | None, every_s: float, token: str | None) -> None:
    """Show one topology, or all, until q or ^C.

    As show does, or list, again and again. Without a terminal each look is printed after the other;
    with --json it is a line of JSON.

    \b
    Example:
      txtopo --zookeeper zk1:2181 watch payments
    """
    if every_s <= 0:
        raise click.BadParameter("expected more than 0", param_hint="--every")
    token = page_token(chosen, token)
    with open_ensemble(chosen) as ensemble:
        if topology is not None:
            ensemble.topology(topology)  # a name that does not exist ends it at once
        if chosen.json:
            _follow(lambda: print_json_line(_look(ensemble, topology, token)), every_s)
        elif sys.stdout.isatty():
            with _screen() as draw:
                _follow(lambda: draw(_text(ensemble, topology, token)), every_s)
        else:
            _follow(lambda: print_line(_text(ensemble, topology, token)), every_s)


def _look(ensemble: Ensemble, topology: str | None, token: str | None) -> dict[str, Any]:
    """Return the figures of a topology or the status of all, or why nothing can be reached."""
    try:
        if topology is None:
            return {"topologies": [status_json(each) for each in ensemble.topologies()]}
        return page_of(ensemble.topology(topology), token)
    except AuthError:
        raise
    except InfrastructureError as error:
        return {"unreachable": str(error)}


def _text(ensemble: Ensemble, topology: str | None, token: str | None) -> str:
    text = io.StringIO()
    with redirect_stdout(text):
        try:
            if topology is None:
                print_topologies(ensemble.topologies())
            else:
                page = page_of(ensemble.topology(topology), token)
                print_shown(page)
                if page["missing"]:
                    print_line(f"\nphases, states and failures are unknown: {page['missing']}")
        except AuthError:
            raise
        except InfrastructureError as error:
            print_line(f"not reachable; trying again: {error}")
    return text.getvalue()


def _follow(look: Callable[[], None], every_s: float) -> None:
    """Show the figures again and again, until the key q is pressed."""
    keys = sys.stdin.isatty() and sys.stdout.isatty()
    while True:
        look()
        sys.stdout.flush()
        ready, _, _ = select.select([sys.stdin] if keys else [], [], [], every_s)
        if ready and sys.stdin.read(1) in ("q", "Q", ""):
            return


@contextmanager
def _screen() -> Iterator[Callable[[str], None]]:
    """Switch to the terminal's other screen and to single keys; restore both at the end."""
    import termios
    import tty

    keys = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if keys else None
    out = sys.stdout
    try:
        if keys:
            tty.setcbreak(sys.stdin)
        out.write(_OTHER_SCREEN)
        yield lambda text: _draw(out, text)
    finally:
        out.write(_OWN_SCREEN)
        out.flush()
        if before is not None:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _draw(out: Any, text: str) -> None:
    size = shutil.get_terminal_size()
    lines = [*text.rstrip("\n").split("\n")[: size.lines - 2], "", "q ends it"]
    shown = (escaped(line)[: size.columns] + _TO_END_OF_LINE for line in lines)
    out.write(_CLEAR + "\n".join(shown) + _TO_END)
