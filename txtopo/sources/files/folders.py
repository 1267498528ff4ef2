"""The folders that a files spout reads: their spelling, and whether they are the earlier ones.

A file is identified by its listed path, so a folder under another path would be read again from its
beginning. Paths are used as given: links are not followed to identify a file. So the target of a
link may change, as when a release is switched or Kubernetes updates a ConfigMap, and the files keep
their names. Anything that would be read twice is refused:

* a folder that one spout gets under two names; only for this check are links followed;
* a link in a folder that leads to the folder itself or to one above it, where each file would have
  any number of names: it is not followed, whenever it is made;
* other folders than before, if none of the files in them was read. Their files may be files that
  were read and moved to another place.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
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
        return None if base is None else inside(base, filesystem.base_path)
    return "" if isinstance(filesystem, fs.LocalFileSystem) else None


def plain(path: str) -> str:
    """Return a local path without ``.`` and doubled slashes.

    ``..`` stays, since after a link it leads elsewhere. So does the dot of ``./*.csv``, which names
    the folder to search.
    """
    parts = [part for part in path.split("/") if part not in ("", ".")]
    start = "/" if path.startswith("/") else ""
    if path.startswith("./") and parts and WILDCARDS.search(parts[0]):
        start = "./"
    return start + "/".join(parts) or "."


def check_apart(paths: Iterable[str], filesystem: fs.FileSystem) -> None:
    """Check that no two local paths are the same folder or file, or one inside the other.

    A path inside another one is accepted if its spelling shows that, since its files then have the
    same names under both.

    Args:
        paths: Each path up to its first wildcard.
        filesystem: The filesystem. One that is not local is not checked.

    Raises:
        ConfigError: Two are the same or nested; give one of them.
    """
    base = local_base(filesystem)
    if base is None:
        return
    places: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        real = os.path.realpath(inside(base, path))
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


class Walk:
    """Lists the current local files, and links that form a loop or lead to a listed folder.

    A folder is identified by its device and inode. Names that are not UTF-8 are decoded by
    ``os.fsdecode``.

    Attributes:
        loops: The links that are not followed, with the folder to which each leads.
        twice: The folders that are listed under two names, by the second one.
    """

    def __init__(self) -> None:
        self.loops: dict[str, str] = {}
        self.twice: dict[str, str] = {}
        self._places: dict[tuple[int, int], str] = {}

    def files(
        self, base: str, root: str, *, recursive: bool
    ) -> Iterator[tuple[str, os.stat_result]]:
        """Yield path and properties of each file that is not hidden, in a folder or below it.

        Args:
            base: The folder in which the paths lie; empty for none.
            root: The folder.
            recursive: Whether folders in it are listed as well.

        Raises:
            OSError: A folder cannot be listed.
        """
        above: list[tuple[tuple[int, int], str]] = []
        yield from self._below(base, root, recursive, above)

    def _below(
        self, base: str, path: str, recursive: bool, above: list[tuple[tuple[int, int], str]]
    ) -> Iterator[tuple[str, os.stat_result]]:
        try:
            place = _place(os.stat(inside(base, path)))
            with os.scandir(inside(base, path)) as listed:
                entries = sorted(listed, key=lambda entry: (entry.is_symlink(), entry.name))
        except (FileNotFoundError, NotADirectoryError):
            return  # It existed when its folder was listed.
        for known, name in above:
            if known == place:
                self.loops[path] = name
                return
        other = self._places.setdefault(place, path)
        if other != path:
            self.twice[path] = other
        above.append((place, path))
        for entry in entries:
            if entry.name.startswith(("_", ".")):
                continue
            name = f"{path.rstrip('/')}/{entry.name}"
            try:
                found = entry.stat()
            except FileNotFoundError:
                continue  # It is gone, or it is a link that leads nowhere.
            if stat.S_ISREG(found.st_mode):
                yield name, found
            elif recursive and stat.S_ISDIR(found.st_mode):
                yield from self._below(base, name, recursive, above)
        above.pop()


def _place(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


def within(path: str, folder: str) -> bool:
    """Return whether a path is a folder, or inside it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def exchanged(before: Sequence[str], now: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the folders that are no longer read, and those that replaced them.

    Added folders alone do not matter while all earlier ones are still read, and neither do removed
    folders alone.
    """
    gone = [old for old in before if not any(within(old, new) for new in now)]
    new = [new for new in now if not any(within(new, old) for old in before)]
    return (gone, new) if gone else ([], [])


def inside(base: str, path: str) -> str:
    """Return the absolute path of a path in a base folder; the path itself if the base is empty."""
    return f"{base.rstrip('/')}/{path.lstrip('/')}" if base else path


def _twice(one: str, other: str, real: str) -> ConfigError:
    return ConfigError(
        f"a files spout has a folder or file under two names and would read it twice; got {one!r} "
        f"and {other!r}, and the second one is {real!r}; expected each file under one path; pass "
        "only one of them",
        path=other,
    )
