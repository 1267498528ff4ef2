"""The picture of docs/how-to/explain.md; ``python -m tests.unit.explanation.picture`` writes it."""

from __future__ import annotations

from tests.harness.report_page import DOCS
from tests.unit.explanation.topologies import words
from txtopo import Config

PICTURE = DOCS / "how-to" / "images" / "explain.svg"


def drawn() -> str:
    """Return the picture."""
    return words(tasks=2).explain(Config(carrier="rdd")).svg()


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn())
