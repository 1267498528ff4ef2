"""How much tests do that could do more: the most in ``make test-all``, less in shorter runs."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# The default of hypothesis. A profile with fewer examples takes this share of every number.
_WHOLE = 100
SHARE = 40


def times(number: int) -> int:
    """Return how often to try in this run: *number* times, or fewer without the slow tests."""
    return max(1, number * _examples() // _WHOLE)


def examples(number: int) -> settings:
    """Return the settings of a property with *number* examples, or with fewer."""
    return settings(max_examples=times(number))


def has_slow_tests() -> bool:
    """Return whether this run has the slow tests. To be called when the tests are imported."""
    return _examples() >= _WHOLE


def most(number: int, *, otherwise: int) -> int:
    """Return *number* in a run that has the slow tests, and another number in one without them.

    To be called when the tests are imported, as by the attributes of their classes.
    """
    return number if has_slow_tests() else otherwise


def be_patient() -> None:
    """Let no property fail for being slow. To be called before the tests are imported.

    On a busy machine one example, or drawing a few, may take seconds.
    """
    patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.register_profile("patient", patient)
    settings.load_profile("patient")


def take_fewer() -> None:
    """Take fewer examples, and the smaller numbers of :func:`most`, for a run without slow tests.

    To be called before the tests are imported.
    """
    settings.register_profile("fewer", max_examples=SHARE)
    settings.load_profile("fewer")


def _examples() -> int:
    default = settings.default
    assert default is not None
    return default.max_examples
