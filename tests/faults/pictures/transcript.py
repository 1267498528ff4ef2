"""Transcript: what a run of the demo printed, as a picture that plays it once.

:func:`record` runs ``examples.demo`` and keeps what it prints in a file of asciinema's format
(asciicast 2), which the picture is drawn from.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.faults.pictures.drawing import BROKEN, SMALL, STORED, Picture

ROOT = Path(__file__).parents[3]
LEFT, TOP, LINE, CELL = 24.0, 40.0, 17.0, 7.3
COLUMNS = 96
PLAYED_S = 6.0
"""How long the picture plays, however long the run took."""


@dataclass(frozen=True, slots=True)
class Cast:
    """What a program printed, and when.

    Attributes:
        command: The command line.
        lines: Seconds since the start, and a line.
    """

    command: str
    lines: tuple[tuple[float, str], ...]

    @classmethod
    def read(cls, path: Path) -> Cast:
        """Read a file in asciinema's format."""
        head, *events = (json.loads(line) for line in path.read_text().splitlines())
        lines = tuple((at_s, str(text).rstrip("\r\n")) for at_s, _, text in events)
        return cls(head["command"], lines)

    def write(self, path: Path) -> None:
        """Write it in asciinema's format."""
        head = {"version": 2, "width": COLUMNS, "height": 40, "command": self.command}
        events = [[round(at_s, 1), "o", f"{text}\r\n"] for at_s, text in self.lines]
        path.write_text("".join(f"{json.dumps(each)}\n" for each in (head, *events)))


def record(kills: int, seed: int) -> Cast:
    """Run the demo and return what it printed; its folder is named as if it ran where you are."""
    arguments = ["--kills", str(kills), "--seed", str(seed)]
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        with subprocess.Popen(
            [sys.executable, "-m", "examples.demo", *arguments, "--dir", folder],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            text=True,
        ) as demo:
            assert demo.stdout is not None
            lines = tuple(
                (time.monotonic() - started, line.rstrip().replace(folder, "txtopo-demo"))
                for line in demo.stdout
            )
        assert demo.returncode == 0, lines
    return Cast(f'make demo ARGS="{" ".join(arguments)}"', lines)


def transcript(cast: Cast) -> str:
    """Return the picture of a transcript; its lines appear one after the other, once."""
    last_s = max(at_s for at_s, _ in cast.lines)
    told = " ".join(text.strip() for _, text in cast.lines if text.strip())
    picture = Picture("make demo, with kills", f"The output of {cast.command}. {told}", _STYLE)
    picture.text(LEFT, TOP, f"$ {cast.command}", size=SMALL, code=True, bold=True)
    for row, (at_s, text) in enumerate(cast.lines, 1):
        colour = _colour(text)
        delay = f' class="line" style="animation-delay:{PLAYED_S * at_s / last_s:.2f}s"'
        y = TOP + LINE * row
        if colour:
            picture.text(LEFT, y, text, size=SMALL, code=True, colour=colour, bold=True, more=delay)
        else:
            picture.text(LEFT, y, text, size=SMALL, code=True, more=delay)
    rows = len(cast.lines) + 1
    return picture.svg(LEFT * 2 + CELL * _longest(cast.lines), TOP + LINE * rows + 4)


_STYLE = (
    "@keyframes txtopo-line{from{opacity:.12}to{opacity:1}}"
    ".txtopo-picture .line{animation:txtopo-line .1s both}"
    "@media (prefers-reduced-motion:reduce){.txtopo-picture .line{animation:none}}"
    "@media print{.txtopo-picture .line{animation:none}}"
)


def _colour(text: str) -> str:
    if text.startswith("killed"):
        return BROKEN
    return STORED if "are equal" in text else ""


def _longest(lines: Iterable[tuple[float, str]]) -> int:
    return max(len(text) for _, text in lines)
