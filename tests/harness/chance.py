"""How many examples the tests of properties take: fewer where only the fast tests run."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# What hypothesis takes when it is not told; a profile that takes less means a share of everything.
_WHOLE = 100
FAST_SHARE = 40


def times(number: int) -> int:
    """Return how often to try in this run: *number* times, in the fast tests their share of it."""
    default = settings.default
    assert default is not None
    return max(1, number * default.max_examples // _WHOLE)


def examples(number: int) -> settings:
    """Return the settings of a property with *number* examples, in the fast tests fewer."""
    return settings(max_examples=times(number))


def be_patient() -> None:
    """Let no property fail for the time that it takes; before the tests are imported.

    The machine may be busy: one example, or drawing a few, may take seconds at any time.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", patient)
    settings.load_profile("patient")


def take_fewer() -> None:
    """Take a share of the examples, the same ones each time; before the tests are imported."""
    settings.register_profile("fast", max_examples=FAST_SHARE, derandomize=True, database=None)
    settings.load_profile("fast")
