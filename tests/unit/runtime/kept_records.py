"""Keep what the package logs, at every level."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from txtopo.log_records import ATTRIBUTES


class Kept(logging.Handler):
    """Keeps each record, and notes those that lack an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []
        self.lacking: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)
        self.lacking += [
            f"{name}: {record.getMessage()}" for name in ATTRIBUTES if name not in vars(record)
        ]

    def at(self, level: int) -> list[str]:
        """Return the messages of a level."""
        return [each.getMessage() for each in self.records if each.levelno == level]


@pytest.fixture
def kept() -> Iterator[Kept]:
    """Everything that the package logs."""
    logger, handler = logging.getLogger("txtopo"), Kept()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    yield handler
    logger.setLevel(before)
    logger.removeHandler(handler)
