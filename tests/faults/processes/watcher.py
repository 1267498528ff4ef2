"""Watcher: a process that samples the store of a campaign, again and again."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
PASS = "pass\n"
"""What it says when it has looked at all tables once."""
Sample = tuple[str, int, int, str]
"""Table, txid, flights, digest."""


class Watcher:
    """A process that reads tables until it is ended.

    Attributes:
        samples: What it has read.
    """

    def __init__(self, url: str, tables: Sequence[str], limit_s: float) -> None:
        self.samples: list[Sample] = []
        self._limit_s = limit_s
        self._passes = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.processes.sampling_process", url, *tables],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def look(self) -> None:
        """Wait until it has read what the tables hold now."""
        enough = self._passes + 2  # the one that is under way may have begun earlier
        end_s = time.monotonic() + self._limit_s
        while self._passes < enough:
            assert self._process.poll() is None, "the watcher ended"
            assert time.monotonic() < end_s, "the watcher hangs"
            time.sleep(0.01)

    def end(self) -> None:
        """End it, and take in what it said."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(self._limit_s)
        self._reader.join(self._limit_s)

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == PASS:
                self._passes += 1
            else:
                self.samples.append(json.loads(line))
