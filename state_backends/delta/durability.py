"""Making a version durable on a local disk, which delta-rs leaves to the operating system."""

from __future__ import annotations

import json
import os
from pathlib import Path
from urllib.parse import unquote


def sync_version(table: str, version: int) -> None:
    """Sync the log of a version, the files that it adds, and their folders.

    It comes after the commit, so a power cut may leave a version that lacks its files; but then
    the commit has not returned, and whoever reads the torn version gets an error.
    """
    folder = Path(table)
    log = folder / "_delta_log" / f"{version:020}.json"
    for line in log.read_text().splitlines():
        added = json.loads(line).get("add")
        if added is not None:
            _sync(folder / unquote(added["path"]))
    _sync(log)
    for parent in (folder, log.parent):
        _sync(parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
