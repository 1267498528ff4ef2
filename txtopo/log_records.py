"""Log records: the loggers of txtopo, and the attributes that each of their records has.

The records go to the standard :mod:`logging`, under loggers that are named for packages. No handler
is installed here, not even a ``NullHandler``: as long as a program has none, Python prints warnings
and errors to standard error, so a topology that makes no progress says why from its first hour on.

The coordinator and all else that does no I/O write no log; the runtime writes one for them.
``docs/reference/logging.md`` lists the records.
"""

from __future__ import annotations

import logging

from txtopo.errors import escaped, shortened, text_of

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
    return printable(f"{type(error).__name__}: {text_of(error)}")


def printable(text: str) -> str:
    """Return a text in one line of a readable length.

    Nothing in it moves a terminal's cursor or begins another line of a log: what cannot be printed
    is escaped.
    """
    lines = "; ".join(line for line in _cut(text).split("\n") if line.strip())
    shown = escaped(lines)
    return shown if shown == lines else _cut(shown)


def _cut(text: str) -> str:
    return shortened(text, CAUSE_CHARACTERS_MAX, " […] ")


def _complete(record: logging.LogRecord) -> bool:
    """Give a record the attributes that it lacks."""
    for name in ATTRIBUTES:
        record.__dict__.setdefault(name, None)
    return True
