"""A pickle that shows when somebody reads it."""

from __future__ import annotations

import base64
import os
import pickle
from pathlib import Path


class Canary:
    """Makes a folder when it is unpickled.

    Args:
        folder: Where.
    """

    def __init__(self, folder: Path) -> None:
        self.sign = folder / "a-pickle-was-read"

    def __reduce__(self) -> tuple[object, ...]:
        return os.makedirs, (str(self.sign), 0o777, True)

    @property
    def is_dead(self) -> bool:
        """Whether somebody has read it."""
        return self.sign.exists()

    def pickles(self) -> list[bytes]:
        """Return it as bytes, as text that is a pickle too, and as text that many unwrap."""
        newest = pickle.dumps(self, pickle.HIGHEST_PROTOCOL)
        return [newest, pickle.dumps(self, 0), base64.b64encode(newest)]
