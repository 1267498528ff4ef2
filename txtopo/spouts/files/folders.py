"""The folders that a files spout reads: how they are spelled, and whether they are those of before.

A file is known by its path as it is listed, so a folder under another path would be read again from
its beginning. A path is taken as it is given: links are not followed to find out what a file is.
So the target of a link may change, as it does where a release is switched or Kubernetes updates a
ConfigMap, and the files keep their names. What would be read twice is refused:

* a folder that one spout gets under two names, with links followed for this alone;
* other folders than before, if none of the files in them was read. Their files may be those that
  were read, moved to another place.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from txtopo.errors import ConfigError

if TYPE_CHECKING:
    from pyarrow import fs

WILDCARDS = re.compile(r"[*?\[]")


def local_base(filesystem: fs.FileSystem) -> str | None:
    """Return the folder in which the paths of a local filesystem lie; None if it is not local."""
    from pyarrow import fs

    if isinstance(filesystem, fs.SubTreeFileSystem):
        base = local_base(filesystem.base_fs)
        return None if base is None else _inside(base, filesystem.base_path)
    return "" if isinstance(filesystem, fs.LocalFileSystem) else None


def plain(path: str) -> str:
    """Return a local path without ``.`` and doubled slashes.

    ``..`` stays, since behind a link it leads elsewhere. So does the dot of ``./*.csv``, which says
    in which folder to look.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    start = "/" if path.startswith("/") else ""
    if path.startswith("./") and parts and WILDCARDS.search(parts[0]):
        start = "./"
    return start + "/".join(parts) or "."


def check_apart(paths: Iterable[str], filesystem: fs.FileSystem) -> None:
    """Check that no two local paths are the same folder or file, or one inside the other.

    A path inside another one is right if it is spelled as such, since its files then have the same
    names under both.

    Args:
        paths: Each path up to its first wildcard.
        filesystem: The filesystem. One that is not local is not looked at.

    Raises:
        ConfigError: Two are; give one of them.
    """
    base = local_base(filesystem)
    if base is None:
        return
    places: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        real = os.path.realpath(_inside(base, path))
        other = places.setdefault(real, path)
        if other != path:
            raise _twice(other, path, real)
    for real, path in places.items():
        folder = real
        while folder != "/":
            folder = folder.rpartition("/")[0] or "/"
            outer = places.get(folder)
            if outer is not None and not within(path, outer):
                raise _twice(outer, path, real)


def within(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or in it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def exchanged(before: Sequence[str], now: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders that are read no more, and those that are read in their place.

    Folders that came are no matter while all of before are still read, nor are folders that went.
    """
    gone = [old for old in before if not any(within(old, new) for new in now)]
    new = [new for new in now if not any(within(new, old) for old in before)]
    return (gone, new) if gone else ([], [])


def _inside(base: str, path: str) -> str:
    return f"{base.rstrip('/')}/{path.lstrip('/')}" if base else path


def _twice(one: str, other: str, real: str) -> ConfigError:
    return ConfigError(
        f"a files spout has a folder or file under two names, and would read it twice; got {one!r} "
        f"and {other!r}, of which the second one is {real!r}; expected each file under one path; "
        "give one of them",
        path=other,
    )
