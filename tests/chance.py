"""How many examples the tests of properties take: fewer where only the fast tests run."""

from __future__ import annotations

from hypothesis import settings

# What hypothesis takes when it is not told; a profile that takes less means a share of everything.
_WHOLE = 100
FAST_SHARE = 40


def times(number: int) -> int:
    """Return how often to try in this run: *number* times, in the fast tests their share of it."""
    default = settings.default
    assert default is not None
    return max(1, number * default.max_examples // _WHOLE)


def examples(number: int) -> settings:
    """Return the settings of a property with *number* examples, in the fast tests fewer.

    Nothing has a deadline, since the machine may be busy.
    """
    return settings(max_examples=times(number), deadline=None)


def take_fewer() -> None:
    """Take a share of the examples, the same ones each time; before the tests are imported."""
    settings.register_profile("fast", max_examples=FAST_SHARE, derandomize=True, database=None)
    settings.load_profile("fast")
