"""What is said whenever something that failed is tried again.

Nothing is tried again without a WARNING of the logger ``txtopo.runtime``, so a run that does not
get on says why, whoever started it and whatever its status. What an operator wants to filter or
count by is in attributes of the record, not in its text alone. A page of the documentation lists
every retry, ``docs/retries.md``.
"""

from __future__ import annotations

import logging

LOGGER = "txtopo.runtime"
CAUSE_CHARACTERS_MAX = 500
"""Enough for what went wrong in one line; the listeners get the error itself."""

_logger = logging.getLogger(LOGGER)


def warn_of_retry(
    what: str,
    error: BaseException,
    *,
    topology: str | None,
    failures: int,
    pause_s: float | None = None,
    txid: int | None = None,
    attempt: int | None = None,
    epoch: int | None = None,
    component: str | None = None,
) -> None:
    """Say that *what* failed and is tried again. The arguments become attributes of the record.

    Args:
        what: What failed, for the text.
        error: Why; in the record as ``cause``, one line.
        topology: Id of the topology, where it is known.
        failures: How often it has failed now, since it last went well.
        pause_s: After how many seconds it is tried again; None if something else decides when.
        txid: The batch that it is about.
        attempt: The attempt of it that failed.
        epoch: The epoch of the coordinator.
        component: Where it failed, if it was in a component.
    """
    cause = one_line(error)
    about = "txtopo" if topology is None else f"topology {topology!r}"
    again = "later" if pause_s is None else f"in {pause_s:.3g} s" if pause_s else "at once"
    _logger.warning(
        "%s: %s failed; got %s; failures in a row: %d; tried again %s",
        about,
        what,
        cause,
        failures,
        again,
        extra={
            "topology": topology,
            "txid": txid,
            "attempt": attempt,
            "epoch": epoch,
            "component": component,
            "failures": failures,
            "cause": cause,
            "pause_s": pause_s,
        },
    )


def one_line(error: BaseException) -> str:
    """Return an error's class and text as one line."""
    text = f"{type(error).__name__}: {'; '.join(str(error).split(chr(10)))}"
    if len(text) <= CAUSE_CHARACTERS_MAX:
        return text
    half = CAUSE_CHARACTERS_MAX // 2
    return f"{text[:half]} […] {text[-half:]}"
