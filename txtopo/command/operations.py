"""The operator's verbs: they compare ZooKeeper and the stores of a topology, and repair them.

They call :mod:`txtopo.operations`, so they need the topology's module, and no coordinator may run.
A verb that changes something prints its plan and asks.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from txtopo.builders import Topology
from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_transactional
from txtopo.command.output import print_json, print_line, print_note
from txtopo.errors import StateUsageError
from txtopo.metadata import Json
from txtopo.operations import (
    Access,
    Plan,
    forget,
    fork,
    quarantine,
    rebuild,
    repair_node,
    rewind,
    verify,
)
from txtopo.operations.fork import WAIT_S
from txtopo.state.registry import redacted_url


def topology_argument(verb: Callable[..., int]) -> Callable[..., int]:
    """Add the argument and the option that name a topology and its modules to a verb."""
    return click.argument("place", metavar="MODULE:TOPOLOGY")(modules_option(verb))


dry_run_option = click.option("--dry-run", is_flag=True, help="Print the plan and do nothing.")
yes_option = click.option("--yes", is_flag=True, help="Carry out the steps without asking.")

FOUND = 1
"""The exit code of a verify that has findings."""


@click.command("verify", short_help="Compare ZooKeeper, ledgers and tables.")
@topology_argument
@click.option("--no-rows", is_flag=True, help="Skip the tables, which would be read completely.")
@choices
def verify_topology(chosen: Choices, place: str, *, no_rows: bool) -> int:
    """Compare ZooKeeper, ledgers and tables of a topology that does not run.

    Each finding says what is wrong and what to do. The exit code is 1 if there is one.

    \b
    Example:
      txtopo --zookeeper zk1:2181 verify shop:topology
    """
    topology, config = load_transactional(place, chosen.modules), chosen.load_config()
    findings = verify(topology, config, rows=not no_rows)
    if chosen.json:
        print_json(
            {
                "topology": topology.id,
                "findings": [
                    {"where": each.where, "problem": each.problem, "remedy": each.remedy}
                    for each in findings
                ],
            }
        )
    else:
        for each in findings:
            print_line(str(each))
        if not findings:
            print_line(f"topology {topology.id!r} can continue: nothing is wrong")
    return FOUND if findings else 0


@click.command("repair", short_help="Restore a lost node of ZooKeeper.")
@topology_argument
@click.argument("path", metavar="NODE")
@click.option(
    "--value",
    metavar="JSON",
    help="What the node held, as JSON or @FILE; only needed if this command asks for it.",
)
@dry_run_option
@yes_option
@choices
def repair_topology(
    chosen: Choices, place: str, path: str, value: str | None, *, dry_run: bool, yes: bool
) -> int:
    """Restore a node of ZooKeeper that is missing or cannot be read.

    NODE is the path that the error or verify names: /epoch, /current or /batches/NUMBER.

    \b
    Example:
      txtopo repair shop:topology /current
    """
    given = _json(value, "--value")
    return _carry_out(
        chosen,
        place,
        lambda topology, access: repair_node(
            topology, path, chosen.load_config(), value=given, access=access
        ),
        dry_run=dry_run,
        yes=yes,
    )


@click.command("rewind", short_help="Go back to an earlier txid.")
@topology_argument
@click.argument("txid", type=click.IntRange(0))
@click.option(
    "--metadata", metavar="JSON", help="The source's position after TXID, as JSON or @FILE."
)
@dry_run_option
@yes_option
@choices
def rewind_topology(
    chosen: Choices, place: str, txid: int, metadata: str | None, *, dry_run: bool, yes: bool
) -> int:
    """Take all states back to their contents after TXID, and the source to its position then.

    \b
    Example:
      txtopo rewind shop:topology 41 --dry-run
    """
    given = _json(metadata, "--metadata")
    return _carry_out(
        chosen,
        place,
        lambda topology, access: rewind(
            topology, txid, chosen.load_config(), metadata=given, access=access
        ),
        dry_run=dry_run,
        yes=yes,
    )


@click.command("rebuild", short_help="Rebuild ZooKeeper's data from the states.")
@topology_argument
@click.option(
    "--metadata",
    metavar="JSON",
    help='The source\'s position by txid, as JSON or @FILE: {"41": {"spouts": …}}.',
)
@dry_run_option
@yes_option
@choices
def rebuild_topology(
    chosen: Choices, place: str, metadata: str | None, *, dry_run: bool, yes: bool
) -> int:
    """Make ZooKeeper agree with what the ledgers of the states say.

    \b
    Example:
      txtopo rebuild shop:topology --metadata @before.json
    """
    given = _by_txid(_json(metadata, "--metadata"))
    return _carry_out(
        chosen,
        place,
        lambda topology, access: rebuild(
            topology, chosen.load_config(), metadata=given, access=access
        ),
        dry_run=dry_run,
        yes=yes,
    )


@click.command("quarantine", short_help="Remove a batch that always fails.")
@topology_argument
@click.argument("txid", type=click.IntRange(1))
@click.option(
    "--reason", metavar="TEXT", default="", help="A reason that is stored with the batch."
)
@click.option("--end", metavar="JSON", help="Where the batch ends, as JSON or @FILE.")
@dry_run_option
@yes_option
@choices
def quarantine_batch(
    chosen: Choices,
    place: str,
    txid: int,
    reason: str,
    end: str | None,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Commit the batch that blocks a topology as an empty one, and keep its metadata.

    TXID is that of PoisonBatchError, the lowest that is not committed.

    \b
    Example:
      txtopo quarantine shop:topology 42 --reason "a page that no parser takes"
    """
    given = _json(end, "--end")
    return _carry_out(
        chosen,
        place,
        lambda topology, access: quarantine(
            topology, txid, chosen.load_config(), end=given, reason=reason, access=access
        ),
        dry_run=dry_run,
        yes=yes,
    )


@click.command("forget", short_help="Give up a topology or a state.")
@topology_argument
@click.option("--state", metavar="COMPONENT.STATE", help="Release only this state.")
@dry_run_option
@yes_option
@choices
def forget_topology(
    chosen: Choices, place: str, state: str | None, *, dry_run: bool, yes: bool
) -> int:
    """Delete the nodes of a topology in ZooKeeper and release its states. No row is touched.

    \b
    Example:
      txtopo forget shop:topology
    """
    return _carry_out(
        chosen,
        place,
        lambda topology, access: forget(topology, chosen.load_config(), state=state, access=access),
        dry_run=dry_run,
        yes=yes,
    )


@click.command("fork", short_help="Create a second topology that continues from a txid.")
@topology_argument
@click.option("--id", "id_", metavar="ID", required=True, help="The id of the new topology.")
@click.option(
    "--to",
    "places",
    metavar="[COMPONENT.STATE=]URL",
    multiple=True,
    help="Its store; repeat the option to give each state its own.",
)
@click.option(
    "--at",
    metavar="TXID",
    default="current",
    show_default=True,
    help="The txid; current means the newest one that all states hold.",
)
@click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=WAIT_S,
    show_default=True,
    help="How long to wait until all states of a running topology hold one txid.",
)
@dry_run_option
@yes_option
@choices
def fork_topology(
    chosen: Choices,
    place: str,
    id_: str,
    places: tuple[str, ...],
    at: str,
    wait_s: float,
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Copy a topology as of one txid to a new id and other stores; both go on from there.

    The topology may be running, and nothing of it is written. Afterwards, start the same program
    with the new id and the new URLs.

    
    Example:
      txtopo fork shop:topology --id shop-2 --to sqlite:///copy.db --dry-run
    """
    txid = _txid(at)
    return _carry_out(
        chosen,
        place,
        lambda topology, access: fork(
            topology,
            id_,
            _places(places, topology),
            chosen.load_config(),
            at=txid,
            wait_s=wait_s,
            access=access,
        ),
        dry_run=dry_run,
        yes=yes,
    )


def _carry_out(
    chosen: Choices,
    place: str,
    make: Callable[[Topology, Access], Plan],
    *,
    dry_run: bool,
    yes: bool,
) -> int:
    """Print the plan of a verb, ask, and do its steps.

    Raises:
        StateUsageError: There is nobody to ask, and no --yes.
    """
    steps = _Steps()
    plan = make(load_transactional(place, chosen.modules), Access(point=steps.reach))
    steps.total = len(plan.steps)
    asks = bool(plan.steps) and not dry_run and not yes
    (print_note if chosen.json else print_line)(str(plan))
    if asks and not sys.stdin.isatty():
        raise StateUsageError(
            f"{plan.verb} changes what is stored, but there is no terminal to ask for "
            "confirmation; nothing was changed; use --yes to carry out these steps, or --dry-run "
            "only to show them",
            verb=plan.verb,
        )
    wanted = not dry_run and (not asks or click.confirm("Carry out these steps?", err=True))
    if wanted:
        plan.apply()
    if chosen.json:
        print_json(
            {
                "verb": plan.verb,
                "topology": plan.topology_id,
                "steps": [*plan.steps],
                "done": wanted,
            }
        )
    elif plan.steps and not dry_run:
        print_line("done" if wanted else "nothing was changed")
    return 0 if wanted or dry_run else 1


class _Steps:
    """Says which step of a plan begins."""

    def __init__(self) -> None:
        self.total = 0
        self._begun = 0

    def reach(self, point: str) -> None:
        """Show the durable step that a verb has reached; called as ``Access.point``."""
        if point == "operator.before-epoch" or point.startswith("operator.before:"):
            self._begun += 1
            print_note(f"step {self._begun} of {self.total}")


def _json(text: str | None, option: str) -> Json:
    """Return the JSON that an option gives, or that is in the file that it names after @.

    Raises:
        StateUsageError: It is not JSON, or there is no such file.
    """
    if text is None:
        return None
    try:
        found: Json = json.loads(Path(text[1:]).read_bytes() if text.startswith("@") else text)
    except (OSError, ValueError, RecursionError) as error:
        raise StateUsageError(
            f"{option} cannot be read: {error}; got {text!r:.200}; expected JSON, or @ followed "
            "by the name of a file that contains it",
            setting=option,
        ) from error
    return found


def _places(given: Sequence[str], topology: Topology) -> str | dict[str, str]:
    """Return the store for all states, or the store of each that is named.

    Raises:
        StateUsageError: There is none, or both forms are mixed.
    """
    components = topology.graph.components.values()
    states = [f"{component.id}.{name}" for component in components for name in component.states]
    named = {name: url for each in given for name in states if (url := _after(each, f"{name}="))}
    if len(given) == 1 and not named:
        return given[0]
    if not given or len(named) < len(given):
        raise StateUsageError(
            f"--to must name a store; got {[redacted_url(each) for each in given]}; expected one "
            f"URL for all states, or COMPONENT.STATE=URL for each of {', '.join(states)}",
            setting="--to",
        )
    return named


def _after(text: str, start: str) -> str:
    return text.removeprefix(start) if text.startswith(start) else ""


def _txid(text: str) -> int | None:
    """Return the txid of an option; None for the newest one.

    Raises:
        StateUsageError: It is neither a txid nor ``current``.
    """
    if text == "current":
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    raise StateUsageError(
        f"--at cannot be read; got {text!r:.100}; expected a txid, or current", setting="--at"
    )


def _by_txid(given: Json) -> dict[int, Json]:
    if given is None:
        return {}
    if not isinstance(given, dict) or not all(each.isdecimal() for each in given):
        raise StateUsageError(
            f'--metadata must map txids to positions; got {given!r:.200}; expected {{"41": '
            '{"spouts": …}}',
            setting="--metadata",
        )
    return {int(txid): each for txid, each in given.items()}
