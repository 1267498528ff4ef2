"""Drawing: the shapes that all pictures are made of, as SVG.

A picture has a card of its own as background, which is light or dark as the reader's system is, and
names no font that would have to be fetched. It has no script, and no ``id``.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

PLAIN, GREY = "currentColor", "#7d8590"
PROCESSING, COMMIT, STORED, BROKEN = "#3b82c4", "#c77700", "#2e9e6b", "#d1443c"
"""Told apart by words as well; each has a contrast of 3:1 on white and on black."""
TEXT, SMALL = 13.0, 11.5

_STYLE = (
    ".txtopo-picture{color:#1f2328}.txtopo-picture .card{fill:#ffffff;stroke:#d0d7de}"
    "@media (prefers-color-scheme:dark){.txtopo-picture{color:#e6edf3}"
    ".txtopo-picture .card{fill:#0d1117;stroke:#30363d}}"
)


class Picture:
    """A picture that grows as shapes are added.

    Args:
        title: What it shows, in a few words.
        told: The same in sentences, for those who do not see it.
        style: Rules of a style sheet that only this picture has.
    """

    def __init__(self, title: str, told: str, style: str = "") -> None:
        self._style = f"{_STYLE}{style}"
        self._head = f"<title>{escape(title)}</title>\n<desc>{escape(told)}</desc>"
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        content: str,
        *,
        size: float = TEXT,
        anchor: str = "start",
        colour: str = PLAIN,
        opacity: float = 1.0,
        bold: bool = False,
        code: bool = False,
        more: str = "",
    ) -> None:
        """Add a line of text; *y* is that of its base."""
        style = f' font-size="{_n(size)}"' if size != TEXT else ""
        style += f' text-anchor="{anchor}"' if anchor != "start" else ""
        style += f' fill="{colour}"' if colour != PLAIN else ""
        style += f' fill-opacity="{opacity:g}"' if opacity != 1.0 else ""
        style += ' font-weight="600"' if bold else ""
        style += ' font-family="ui-monospace, monospace" xml:space="preserve"' if code else ""
        self._parts.append(f'<text x="{_n(x)}" y="{_n(y)}"{style}{more}>{escape(content)}</text>')

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        colour: str = PLAIN,
        fill: float = 0.12,
        line: float = 1.4,
        dashed: bool = False,
        round: float = 5.0,
    ) -> None:
        """Add a box; *fill* is how strong its inside is, from 0 to 1."""
        dashes = ' stroke-dasharray="4 3"' if dashed else ""
        stroke = f'stroke="{colour}" stroke-width="{line:g}"{dashes}' if line else 'stroke="none"'
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" '
            f'rx="{_n(round)}" fill="{colour}" fill-opacity="{fill:g}" {stroke}/>'
        )

    def card(self, x: float, y: float, width: float, height: float) -> None:
        """Add a box of the background's colour, which hides what is below it."""
        self._parts.append(
            f'<rect class="card" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" '
            f'height="{_n(height)}" rx="5" fill="#ffffff"/>'
        )

    def line(
        self,
        points: Sequence[tuple[float, float]],
        *,
        colour: str = PLAIN,
        opacity: float = 0.7,
        width: float = 1.4,
        dashed: bool = False,
        arrow: bool = False,
    ) -> None:
        """Add a line through points, perhaps with an arrow at its end."""
        path = "M" + "L".join(f"{_n(x)} {_n(y)}" for x, y in points)
        dashes = ' stroke-dasharray="3 4"' if dashed else ""
        self._parts.append(
            f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}" '
            f'stroke-opacity="{opacity:g}"{dashes}/>'
        )
        if arrow:
            self._arrow(points[-2], points[-1], colour)

    def cross(self, x: float, y: float, colour: str = BROKEN, size: float = 6.0) -> None:
        """Add a cross."""
        for slope in (1, -1):
            ends = [(x - size, y - slope * size), (x + size, y + slope * size)]
            self.line(ends, colour=colour, opacity=1.0, width=2.6)

    def svg(self, width: float, height: float) -> str:
        """Return the picture on a card of this size."""
        size = f'width="{_n(width)}" height="{_n(height)}"'
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" class="txtopo-picture" role="img" {size} '
                f'viewBox="0 0 {_n(width)} {_n(height)}" font-family="system-ui, sans-serif" '
                f'font-size="{_n(TEXT)}" color="#1f2328" fill="currentColor">',
                self._head,
                f"<style>{self._style}</style>",
                f'<rect class="card" x="0.5" y="0.5" width="{_n(width - 1)}" '
                f'height="{_n(height - 1)}" rx="8" fill="#ffffff" stroke="#d0d7de"/>',
                *self._parts,
                "</svg>\n",
            ]
        )

    def _arrow(self, start: tuple[float, float], end: tuple[float, float], colour: str) -> None:
        (x, y), dx, dy = end, end[0] - start[0], end[1] - start[1]
        length = (dx * dx + dy * dy) ** 0.5
        dx, dy = dx / length, dy / length
        left = (x - 8 * dx - 4 * dy, y - 8 * dy + 4 * dx)
        right = (x - 8 * dx + 4 * dy, y - 8 * dy - 4 * dx)
        path = "M" + "L".join(f"{_n(a)} {_n(b)}" for a, b in ((x, y), left, right)) + "Z"
        self._parts.append(f'<path d="{path}" fill="{colour}"/>')


def width_of(text: str, size: float = TEXT) -> float:
    """Return about how wide a text is; fonts differ, so it is rather too wide."""
    return size * 0.6 * len(text)


def _n(number: float) -> str:
    return f"{number:.1f}".removesuffix(".0")
