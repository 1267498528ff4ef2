"""Notebook: what a notebook shows of a value of txtopo. Who makes the HTML is registered.

A class that a notebook shows has a method ``_repr_html_``, which returns :func:`html_of`. So a
progress and a state are plain data, and import nothing that makes HTML of them.
"""

from __future__ import annotations

from collections.abc import Callable

from txtopo.registered import Registered

Renderer = Callable[[object], str]
"""Returns a value as HTML."""

RENDERER: Registered[Renderer] = Registered("what makes HTML of values")


def html_of(value: object) -> str:
    """Return a value as a notebook shows it."""
    return RENDERER.get()(value)
