"""A backing map in a folder, a file for each key: ``json-map:folder``."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

from json_store import whole_file
from txtopo.plugins.stores import BackingMap, backing_map_factory


class TextFolder(BackingMap):
    """Texts in files; the values are JSON, and so are the files.

    A key may be longer than a file's name and differ from another in case alone, which some file
    systems do not mind, so the file is named by a hash of it.
    """

    def __init__(self, url: str) -> None:
        self.folder = Path(url.partition(":")[2])

    def multi_get(self, keys: Sequence[str]) -> list[str | None]:
        return [whole_file.read(self.folder / name_of(key)) for key in keys]

    def multi_put(self, keys: Sequence[str], values: Sequence[str]) -> None:
        whole_file.write(self.folder, dict(zip(map(name_of, keys), values, strict=True)))


def name_of(key: str) -> str:
    """Return the name of the file of a key."""
    return f"{sha256(key.encode('ascii')).hexdigest()}.json"


open_backend = backing_map_factory(TextFolder)
