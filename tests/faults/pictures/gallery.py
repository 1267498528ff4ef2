"""Gallery: the pictures of docs/explanation by name, and where their files are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tests.faults.pictures.phases import phases
from tests.faults.pictures.schedule import batches, runs_and_groups, two_phases
from tests.faults.pictures.sequence import fence, takeover
from tests.faults.pictures.transcript import Cast, transcript
from tests.faults.pictures.versions import undo_before_redo
from tests.faults.pictures.wide import wide

IMAGES = Path(__file__).parents[3] / "docs" / "explanation" / "images"
DEMO = IMAGES / "demo.cast"
"""What a run of the demo printed. ``wide`` is made from a table of figures in its page, and each
other picture from the code alone."""

PICTURES: Mapping[str, Callable[[], str]] = {
    "batches": batches,
    "demo": lambda: transcript(Cast.read(DEMO)),
    "fence": fence,
    "phases": phases,
    "runs-and-groups": runs_and_groups,
    "takeover": takeover,
    "two-phases": two_phases,
    "undo-before-redo": undo_before_redo,
    "wide": wide,
}


def path_of(name: str) -> Path:
    """Return where a picture is."""
    return IMAGES / f"{name}.svg"
