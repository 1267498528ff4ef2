"""Notebook: what a notebook shows of a value of txtopo. Who makes the HTML is registered.

A class that a notebook shows has a method ``_repr_html_``, which returns :func:`html_of`. So a
progress and a state are plain data, and import nothing that makes HTML of them.
"""

from __future__ import annotations

from collections.abc import Callable

Renderer = Callable[[object], str]
"""Returns a value as HTML."""

# It belongs to the program, not to a run; txtopo/wings.py registers it.
_renderer: Renderer | None = None


def show_with(renderer: Renderer) -> None:
    """Register what makes HTML of values, in this process."""
    global _renderer
    _renderer = renderer


def html_of(value: object) -> str:
    """Return a value as a notebook shows it."""
    assert _renderer is not None, "nothing is registered that makes HTML"
    return _renderer(value)
