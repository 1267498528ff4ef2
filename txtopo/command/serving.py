"""``txtopo ui``: the page of an ensemble."""

from __future__ import annotations

import signal
import sys
from concurrent.futures import Future
from types import FrameType

import click

from txtopo.command.choices import Choices, choices
from txtopo.command.output import print_json_line, print_line
from txtopo.command.topologies import open_ensemble
from txtopo.config import Page
from txtopo.runtime.handle import done_in


@click.command("ui")
@click.option("--host", help="Where to serve it; 127.0.0.1 by default, or the setting page.host.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="The port; a free one by default, or page.port."
)
@click.option(
    "--token",
    metavar="TOKEN",
    help="Anyone who has it may send commands; better set it in TXTOPO_PAGE_TOKEN.",
)
@choices
def ui(chosen: Choices, host: str | None, port: int | None, token: str | None) -> None:
    """Serve the page of an ensemble.

    It ends with ^C or SIGTERM. Without a token it only reads. Another host than a loopback one
    needs a token. Needs the ensemble, and the extra ui.

    \b
    Example:
      txtopo --zookeeper zk1:2181 ui --port 8080
    """
    from txtopo.ui.pages.server import PageServer, check_installed
    from txtopo.ui.pages.sources import EnsembleSource

    check_installed("txtopo ui")
    config = chosen.load_config()
    page = config.page or Page()
    page = Page(
        page.port if port is None else port,
        page.host if host is None else host,
        page.token if token is None else token,
    )
    with open_ensemble(chosen) as ensemble:
        ensemble.topologies()  # an ensemble that cannot be reached ends it at once
        source = EnsembleSource(ensemble, config.zookeeper.place)
        with PageServer(source, page) as server:
            if chosen.json:
                print_json_line({"page": server.url})
            else:
                print_line(f"page: {server.url}")
            sys.stdout.flush()
            signal.signal(signal.SIGTERM, _end)
            # Not signal.pause(): a thread of the page may get the signal.
            done_in(Future(), None)


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(0)
