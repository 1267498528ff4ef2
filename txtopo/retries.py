"""The log record of a retry.

Each retry logs a WARNING with the logger ``txtopo.runtime``, so a topology that makes no progress
says why. Operators can filter and count by attributes of the record. ``docs/retries.md`` lists all
retries.
"""

from __future__ import annotations

import logging

LOGGER = "txtopo.runtime"
CAUSE_CHARACTERS_MAX = 500
"""Limit for the error in one line. Listeners get the error itself."""

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
    """Log that *what* failed and is tried again. The arguments become attributes of the record.

    Args:
        what: The thing that failed, as a noun for the text.
        error: The error; in the record as ``cause``, one line.
        topology: Id of the topology, if it is known.
        failures: Number of failures in a row.
        pause_s: Seconds until it is tried again; None if another event starts it.
        txid: The txid of the batch.
        attempt: The number of the attempt that failed.
        epoch: The epoch of the coordinator.
        component: Id of the component that failed.
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
        extra=record_attributes(
            topology=topology,
            failures=failures,
            cause=cause,
            txid=txid,
            attempt=attempt,
            epoch=epoch,
            component=component,
            pause_s=pause_s,
        ),
    )


def record_attributes(
    *, topology: str | None, failures: int, cause: str, **facts: object
) -> dict[str, object]:
    """Return the attributes of a log record; each is there, None if nothing is given for it."""
    unknown = dict.fromkeys(("txid", "attempt", "epoch", "component", "pause_s"))
    return {**unknown, "topology": topology, "failures": failures, "cause": cause, **facts}


def one_line(error: BaseException) -> str:
    """Return the class and the text of an error in one line."""
    text = f"{type(error).__name__}: {'; '.join(str(error).split(chr(10)))}"
    if len(text) <= CAUSE_CHARACTERS_MAX:
        return text
    half = CAUSE_CHARACTERS_MAX // 2
    return f"{text[:half]} […] {text[-half:]}"
