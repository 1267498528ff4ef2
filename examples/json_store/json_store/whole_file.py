"""Files that are written whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile


def read(path: Path) -> str | None:
    """Return the text of a file, or None if there is none."""
    try:
        return path.read_text(encoding="ascii")
    except FileNotFoundError:
        return None


def write(folder: Path, texts: Mapping[str, str]) -> None:
    """Write files by name, each whole or not at all, and durable when this returns."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        with NamedTemporaryFile("w", dir=folder, delete=False, encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(file.name).replace(folder / name)
    # A new name is durable once the folder is that has it; that of a new folder too.
    for path in (folder, *(path.parent for path in made)):
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
