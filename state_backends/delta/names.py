"""What a state has in a folder of Delta tables, by name: here and nowhere else.

Each state has a folder of its own, in which nothing else may be: whoever vacuums a table removes
what it does not know, another table as well. So no state lies within the table of another, in
whichever order they come, and none has the name of a log.
"""

from __future__ import annotations

from dataclasses import dataclass
from string import ascii_letters
from urllib.parse import unquote

LOG = "_delta_log"
"""The folder of a table's log; Delta's word."""
CHECKSUMS = "_txtopo_checksums"
"""The file of notes in that folder, on a local disk; see ``checksums.py``."""
_PLAIN = frozenset("_0123456789" + ascii_letters)


@dataclass(frozen=True, slots=True)
class Names:
    """What is of one state, below the folder of all states.

    Attributes:
        folder: The folder of its table.
        log: The folder of its log.
        checksums: The file of notes.
    """

    folder: str
    log: str
    checksums: str


def names_of(table: str) -> Names:
    """Return the names of what a state has."""
    folder = folder_name(table)
    return Names(folder, f"{folder}/{LOG}", f"{folder}/{LOG}/{CHECKSUMS}")


def folder_name(table: str) -> str:
    """Return the folder for a table: other signs than letters and digits stand as ``-`` and hex.

    delta-rs decodes percent signs in a path, and object stores take few signs as they are.
    """
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"-{byte:02x}" for byte in table.encode())


def table_name(folder: str) -> str:
    """Return the table that has a folder."""
    return unquote(folder.replace("%", "%25").replace("-", "%"))
