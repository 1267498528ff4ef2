"""Log records: the loggers of txtopo, and the attributes that each of their records has.

The records go to the standard :mod:`logging`, under loggers that are named for packages. No handler
is installed here, not even a ``NullHandler``: as long as a program has none, Python prints warnings
and errors to standard error, so a topology that makes no progress says why from its first hour on.

The coordinator and all else that does no I/O write no log; the runtime writes one for them.
``docs/logging.md`` lists the records.
"""

from __future__ import annotations

import logging

ATTRIBUTES = (
    "topology",
    "txid",
    "attempt",
    "epoch",
    "component",
    "failures",
    "pause_s",
    "cause",
)
"""What each record has as an attribute; None where nothing is known or nothing applies."""

CAUSE_CHARACTERS_MAX = 500
"""Limit for an error in one line. Listeners get the error itself."""


def logger_of(package: str) -> logging.Logger:
    """Return the logger of a package of txtopo, which completes the attributes of its records."""
    logger = logging.getLogger(package)
    logger.addFilter(_complete)
    return logger


def one_line(error: BaseException) -> str:
    """Return the class and the text of an error in one line of a readable length."""
    return printable(f"{type(error).__name__}: {_text(error)}")


def printable(text: str) -> str:
    """Return a text in one line of a readable length.

    Nothing in it moves a terminal's cursor or begins another line of a log: what cannot be printed
    is escaped.
    """
    lines = "; ".join(line for line in _shortened(text).split("\n") if line.strip())
    if lines.isprintable():
        return lines
    escaped = (sign if sign.isprintable() else repr(sign)[1:-1] for sign in lines)
    return _shortened("".join(escaped))


def _shortened(text: str) -> str:
    if len(text) <= CAUSE_CHARACTERS_MAX:
        return text
    half = CAUSE_CHARACTERS_MAX // 2
    return f"{text[:half]} […] {text[-half:]}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return "(it cannot be printed)"


def _complete(record: logging.LogRecord) -> bool:
    """Give a record the attributes that it lacks."""
    for name in ATTRIBUTES:
        record.__dict__.setdefault(name, None)
    return True
