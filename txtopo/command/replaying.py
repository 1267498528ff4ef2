"""``txtopo replay``: computes one batch of the past again, and writes nothing."""

from __future__ import annotations

import pdb
from pathlib import Path

import click

from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import load_transactional
from txtopo.command.output import print_json, print_line, print_note
from txtopo.errors import StateUsageError, nearest
from txtopo.operations import Access, Replay, replay
from txtopo.operations.replay_text import replay_json, replay_text


@click.command("replay", short_help="Compute one past batch again, without writing anything.")
@click.argument("place", metavar="MODULE:TOPOLOGY")
@click.option("--txid", required=True, type=int, help="The txid of the batch.")
@click.option("--component", metavar="ID", help="Show only the rows of this spout or bolt.")
@click.option("--out", metavar="FOLDER", type=click.Path(), help="Write all rows as Parquet files.")
@click.option("--pdb", "debug", is_flag=True, help="Stop in the debugger where user code fails.")
@modules_option
@choices
def replay_txid(
    chosen: Choices, place: str, txid: int, component: str | None, out: str | None, *, debug: bool
) -> int:
    """Compute one batch of the past again in this process, and write nothing.

    Shows the rows that each component receives and emits, what the batch does to each state, where
    it fails, and whether it is equal to what was committed. The topology may run meanwhile. The
    exit code is 1 if the batch fails or differs.

    \b
    Example:
      txtopo replay shop.py:topology --txid 1203 --component convert
    """
    topology = load_transactional(place, chosen.modules)
    ids = [each.id for each in topology.graph.components.values()]
    if component is not None and component not in ids:
        raise StateUsageError(
            f"--component is not the id of a spout or bolt; got {component!r}; "
            f"{nearest(component, ids)}",
            setting="--component",
        )
    found = replay(topology, txid, chosen.load_config(), access=Access())
    if chosen.json:
        print_json(replay_json(found, component))
    else:
        print_line(replay_text(found, component))
    if out is not None:
        for path in found.write(Path(out)):
            print_note(f"wrote {path}")
    if debug:
        _debug(found)
    return 1 if found.failure is not None or found.differences else 0


def _debug(found: Replay) -> None:
    """Stop in the debugger at the exception that user code raised."""
    if found.raised is None:
        print_note("no code of the topology raised an exception, so there is nothing to debug")
    else:
        pdb.post_mortem(found.raised.traceback)
