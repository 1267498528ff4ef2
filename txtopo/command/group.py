"""The group of all verbs of ``txtopo``, with the options that stand before the verb."""

from __future__ import annotations

from pathlib import Path

import click

from txtopo import __version__
from txtopo.command.choices import Choices


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--zookeeper", metavar="HOSTS", help="The ensemble: host:port,host:port/chroot.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    help="The folder of an embedded ensemble, as Config.zookeeper_dir.",
)
@click.option(
    "--config",
    type=click.Path(path_type=Path, dir_okay=False),
    help="A file of settings (TOML); by default txtopo.toml, if there is one.",
)
@click.option("--json", is_flag=True, help="Print JSON instead of tables.")
@click.version_option(__version__, prog_name="txtopo")
@click.pass_context
def commands(
    context: click.Context,
    zookeeper: str | None,
    folder: Path | None,
    config: Path | None,
    *,
    json: bool,
) -> None:
    """Run topologies, look at those that run, and repair what faults leave behind.

    \b
    Exit codes: 0 done, 1 failed, 2 wrong call, 3 refused by a promise,
    4 not reachable, 130 interrupted.
    """
    context.obj = Choices(zookeeper, folder, config, json)
