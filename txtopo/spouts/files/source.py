"""FileSource: which files there are, on any filesystem that pyarrow opens."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from txtopo.config import check_text
from txtopo.errors import ConfigError, OffsetRegression, SourceDataLost
from txtopo.state.disk_errors import failure

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_MAGIC = re.compile(r"[*?\[]")
_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[")


class SourceFile(NamedTuple):
    """A file as it was when it was listed.

    Attributes:
        name: Its path on the filesystem.
        size: Its size in bytes.
        mtime_ns: When it was changed last; 0 where the filesystem does not say.
    """

    name: str
    size: int
    mtime_ns: int


class FileSource:
    """Folders, globs and files of one filesystem; picklable.

    Names that begin with ``_`` or ``.`` are passed over, as Hadoop and Spark do, so that a writer
    can fill a file under such a name and then rename it.

    Args:
        paths: A folder (read with all below it), a file, a glob (``**`` crosses folders), or more.
        filesystem: A ``pyarrow.fs.FileSystem``, a URL, or None: then the paths are local, or URLs.
    """

    def __init__(
        self, paths: str | os.PathLike[str] | Sequence[str], filesystem: fs.FileSystem | str | None
    ) -> None:
        given = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else list(paths)
        if not given or not all(isinstance(path, str) and path for path in given):
            raise ConfigError(f"paths of a files spout are wrong; got {paths!r}; expected paths")
        for path in given:
            check_text("a path of a files spout", os.fspath(path))
        self.filesystem, self._paths = _opened(given, filesystem)

    def files(self) -> list[SourceFile]:
        """List the files there are now, in no promised order.

        Raises:
            InfrastructureError: The filesystem cannot be reached; try again.
        """
        found: dict[str, SourceFile] = {}
        for path in self._paths:
            try:
                listed = self._matching(path)
            except OSError as error:
                raise failure(f"list {path!r}", error) from error
            found.update((file.name, file) for file in listed)
        return list(found.values())

    def check(self) -> None:
        """Check that every folder and file that was named is there.

        Raises:
            ConfigError: One is not; look at its spelling, or make it first.
        """
        from pyarrow import fs

        for path in self._paths:
            root = _root(path)
            if self.filesystem.get_file_info(root).type == fs.FileType.NotFound:
                raise ConfigError(
                    f"input of the files spout is not there; got {path!r}; expected the "
                    f"folder or file {root!r} to exist; make it before the topology starts",
                    path=path,
                )

    def open(self, file: SourceFile) -> pa.NativeFile:
        """Open a file that is still what it was when it was planned.

        Raises:
            SourceDataLost: It is gone or was changed; bring it back as it was. As
                ``OffsetRegression`` if it is shorter than it was.
            InfrastructureError: The filesystem cannot be reached; try again.
        """
        from pyarrow import fs

        try:
            info = self.filesystem.get_file_info(file.name)
            if info.type == fs.FileType.NotFound:
                raise self._lost(file, "gone")
            if (info.size, info.mtime_ns or 0) != (file.size, file.mtime_ns):
                changed = f"changed: {info.size} bytes of {info.mtime_ns or 0} ns"
                shorter = info.size is not None and info.size < file.size
                raise self._lost(file, changed, OffsetRegression if shorter else SourceDataLost)
            return self.filesystem.open_input_file(file.name)
        except FileNotFoundError as error:
            raise self._lost(file, "gone") from error
        except OSError as error:
            raise failure(f"open {file.name!r}", error) from error

    def _lost(
        self, file: SourceFile, what: str, kind: type[SourceDataLost] = SourceDataLost
    ) -> SourceDataLost:
        return kind(
            f"file {file.name!r} of a planned batch is {what}; expected {file.size} bytes of "
            f"{file.mtime_ns} ns, as it was when the batch was planned; bring it back as it was, "
            "with its time, or the batch cannot be computed",
            path=file.name,
        )

    def _matching(self, path: str) -> list[SourceFile]:
        from pyarrow import fs

        info = self.filesystem.get_file_info(_root(path))
        if info.type == fs.FileType.NotFound:
            return []
        if info.type == fs.FileType.File:
            return [] if _MAGIC.search(path) else [_source_file(info)]
        rest = path[len(_root(path)) :].lstrip("/")
        selector = fs.FileSelector(
            _root(path), recursive=not rest or "/" in rest or "**" in rest, allow_not_found=True
        )
        pattern = re.compile(_regex(path)) if rest else None
        skip = len(_root(path))
        return [
            _source_file(info)
            for info in self.filesystem.get_file_info(selector)
            if info.type == fs.FileType.File
            and not _hidden(info.path[skip:])
            and (pattern is None or pattern.fullmatch(info.path))
        ]


def _source_file(info: fs.FileInfo) -> SourceFile:
    return SourceFile(info.path, info.size, info.mtime_ns or 0)


def _opened(
    paths: list[str], filesystem: fs.FileSystem | str | None
) -> tuple[fs.FileSystem, tuple[str, ...]]:
    from pyarrow import fs

    if isinstance(filesystem, str):
        opened, prefix = fs.FileSystem.from_uri(filesystem)
        return opened, tuple(f"{prefix.rstrip('/')}/{path.lstrip('/')}" for path in paths)
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):
            raise ConfigError(
                f"filesystem of a files spout is of the wrong type; got {filesystem!r}; expected "
                "a pyarrow.fs.FileSystem, a URL or None"
            )
        return filesystem, tuple(path.rstrip("/") or "/" for path in paths)
    if any("://" in path for path in paths):
        parsed = [fs.FileSystem.from_uri(path) for path in paths]
        if any(other != parsed[0][0] for other, _ in parsed):
            raise ConfigError(f"paths lie on different filesystems; got {paths!r}; expected one")
        return parsed[0][0], tuple(path.rstrip("/") for _, path in parsed)
    return fs.LocalFileSystem(), tuple(os.path.abspath(path) for path in paths)


def _root(path: str) -> str:
    """Return the part of a path before its first wildcard, up to a slash."""
    match = _MAGIC.search(path)
    return path if match is None else path[: match.start()].rpartition("/")[0] or "/"


def _regex(glob: str) -> str:
    parts = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    pieces = []
    for token in _TOKENS.findall(glob):
        if token in parts:
            pieces.append(parts[token])
        elif token.startswith("[") and len(token) > 2:
            inside = token[1:-1].replace("\\", "\\\\")
            pieces.append(f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]")
        else:
            pieces.append(re.escape(token))
    return "".join(pieces)


def _hidden(path: str) -> bool:
    return any(part.startswith(("_", ".")) for part in path.split("/"))
