"""The log record of a failure: what failed, why, how often, and when it is tried again.

Each record is a WARNING of the logger ``txtopo.runtime``, so the log shows why a topology makes no
progress. Operators can filter and count by the attributes of the record.
``docs/how-to/failures.md`` lists all retries.
"""

from __future__ import annotations

import logging

from txtopo.errors import ProcessEnds
from txtopo.log_records import logger_of, one_line

LOGGER = "txtopo.runtime"

_LOGGED = "_txtopo_logged"

_logger = logger_of(LOGGER)


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
    final: bool = False,
) -> None:
    """Log that *what* failed and is tried again. The arguments become attributes of the record.

    Args:
        what: What failed, as a noun for the text.
        error: The error; the record has it as ``cause``, in one line.
        topology: Id of the topology, if it is known.
        failures: Number of failures in a row.
        pause_s: Seconds until it is tried again; None if another event starts it.
        txid: The txid of the batch.
        attempt: The number of the attempt that failed.
        epoch: The epoch of the coordinator.
        component: Id of the component that failed.
        final: Whether this run does not try it again.
    """
    about = "txtopo" if topology is None else f"topology {topology!r}"
    when = "later" if pause_s is None else f"in {pause_s:.3g} s" if pause_s else "at once"
    again = "not tried again by this run" if final else f"tried again {when}"
    attributes = {
        "topology": topology,
        "failures": failures,
        "cause": one_line(error),
        "txid": txid,
        "attempt": attempt,
        "epoch": epoch,
        "component": component,
        "pause_s": pause_s,
    }
    # Requests that fail because the process ends need no repair.
    level = logging.DEBUG if isinstance(error, ProcessEnds) else logging.WARNING
    text = "%s: %s failed; got %s; failures in a row: %d; %s"
    arguments = about, what, attributes["cause"], failures, again
    _logger.log(level, text, *arguments, extra=attributes, stacklevel=2)
    vars(error)[_LOGGED] = True


def is_logged(error: BaseException) -> bool:
    """Return whether :func:`warn_of_retry` has logged this error."""
    return _LOGGED in vars(error)
