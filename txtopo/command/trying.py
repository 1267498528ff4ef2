"""``txtopo try``: computes txids of the past with a changed program, beside the running one."""

from __future__ import annotations

import click

from txtopo.command.choices import Choices, choices, modules_option
from txtopo.command.loading import check_apart, load_transactional
from txtopo.command.output import print_json, print_line
from txtopo.operations import trial
from txtopo.operations.trial_text import trial_json, trial_text


@click.command("try", short_help="Try a changed program on past batches.")
@click.argument("place", metavar="MODULE:TOPOLOGY")
@click.option("--from", "first", required=True, type=int, help="The first txid.")
@click.option("--to", "last", type=int, help="The last txid; by default the last committed one.")
@click.option(
    "--against",
    metavar="MODULE:TOPOLOGY",
    help="The program that is running now; it computes the same txids, for comparison.",
)
@click.option("--store", metavar="URL", help="Write the rows of the changed program there.")
@click.option("--spark", is_flag=True, help="Run it in tasks of Spark.")
@modules_option
@choices
def try_program(
    chosen: Choices,
    place: str,
    first: int,
    last: int | None,
    against: str | None,
    store: str | None,
    *,
    spark: bool,
) -> int:
    """Compute batches of the past with a changed program, and compare its tables.

    The topology may run meanwhile: its ZooKeeper, stores and sinks are only read. Without
    --against, tables are compared with what their stores held after the last txid, where they still
    have it. The exit code is 0 if each table that both programs have was compared and is equal,
    else 1.

    \b
    Example:
      txtopo try new_shop:topology --from 1100 --to 1200 --against shop:topology
    """
    topology = load_transactional(place, chosen.modules)
    running = None
    if against is not None:
        is_yaml = against.endswith((".yaml", ".yml"))
        check_apart(against)
        running = load_transactional(against, chosen.modules if is_yaml else ())
    found = trial(
        topology,
        first,
        last,
        chosen.load_config(),
        against=running,
        store=store,
        on="spark" if spark else "local",
    )
    if chosen.json:
        print_json(trial_json(found))
    else:
        print_line(trial_text(found))
    return 0 if found.equal else 1
