"""Suites with the tests that have to notice what is broken, and no others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any


def noticing(name: str, bases: tuple[type, ...], tests: Collection[str], **body: Any) -> type:
    """Return a suite of some of the tests of its bases.

    Args:
        name: The suite's name, after ``Test``.
        bases: Fixtures and suites.
        tests: What a test's name begins with, or all of it with its parameters.
        body: Further attributes of the class.
    """
    names = tuple(test.partition("[")[0] for test in tests)
    suite = type(f"Test{name}", bases, body)
    for other in dir(suite):
        if other.startswith("test_") and not other.startswith(names):
            setattr(suite, other, None)
    return suite
