"""Databases that wait as long as a test is slow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import pytest

# A lock that a test holds is held until the test continues, and so is a transaction left idle.
POSTGRESQL_PATIENCE: Mapping[str, object] = {
    "state_backends.sql.postgresql._LOCK_TIMEOUT": "120s",
    "state_backends.sql.postgresql._IDLE_TIMEOUT_S": 120,
}
MARIADB_PATIENCE: Mapping[str, object] = {
    "state_backends.sql.mariadb._LOCK_TIMEOUT_S": 120,
    "state_backends.sql.mariadb._IDLE_TIMEOUT_S": 120,
}


class Patient:
    """To be subclassed, by suites that hold locks or leave transactions idle.

    Attributes:
        patience: By name, what makes waits for locks and idle transactions last.
    """

    patience: ClassVar[Mapping[str, object]]

    @pytest.fixture(autouse=True)
    def patient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Have the server wait while a test does something else, which may take seconds."""
        for name, value in self.patience.items():
            monkeypatch.setattr(name, value)
