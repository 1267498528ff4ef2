"""The picture of docs/how-to/streams.md; ``python -m tests.unit.streams.picture`` writes it."""

from __future__ import annotations

from examples.streams_balances import topology
from tests.harness.report_page import DOCS
from txtopo import Config

PICTURE = DOCS / "how-to" / "images" / "streams.svg"


def drawn() -> str:
    """Return the picture."""
    config = Config(carrier="rdd", zookeeper="memory", slots=2)
    return topology("sqlite:///bank.db").explain(config).svg()


if __name__ == "__main__":
    PICTURE.write_text(drawn())
