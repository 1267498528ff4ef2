"""The files that a spout can read: lists them, defines formats, and divides them into ranges.

Files are on any filesystem that pyarrow opens. A range of a file of lines is in bytes; it owns the
lines that *start* in ``[start, end)``, so adjacent ranges own each line once, wherever the cut is.
A range of a Parquet file is in rows. ``end`` None means the whole file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Literal, NamedTuple

from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, OffsetRegression, SchemaVersionError, SourceDataLost
from txtopo.log_records import logger_of
from txtopo.metadata import Json
from txtopo.setting_checks import check_text
from txtopo.sources.files.folders import WILDCARDS, Walk, check_apart, inside, local_base, plain
from txtopo.spouts.spout import other_position
from txtopo.tuples import Fields

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow import fs

_logger = logger_of("txtopo.spouts")

_TOKENS = re.compile(r"\*\*/|\*\*|\*|\?|\[!?\]?[^\]]*\]|[^*?\[]+|\[")

FormatName = Literal["csv", "json", "text", "parquet"]

FORMATS = ("csv", "json", "text", "parquet")

METADATA_VERSION = 1
"""The version of the stored form of a batch's metadata."""

_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


class FileSource:
    """Folders, globs and files of one filesystem. Picklable.

    Names that begin with ``_`` or ``.`` are ignored, as in Hadoop and Spark, so that a writer can
    fill a file under such a name and then rename it.

    Args:
        paths: A folder (read with all below it), a file, a glob (``**`` crosses folders), or more.
        filesystem: A ``pyarrow.fs.FileSystem``, a URL, or None: then the paths are local, or URLs.

    Attributes:
        loops: The links that the last listing did not follow, with the folder to which each leads.
    """

    def __init__(
        self, paths: str | os.PathLike[str] | Sequence[str], filesystem: fs.FileSystem | str | None
    ) -> None:
        given = [os.fspath(paths)] if isinstance(paths, str | os.PathLike) else list(paths)
        if not given or not all(isinstance(path, str) and path for path in given):
            raise ConfigError(
                f"paths of a files spout are wrong; got {paths!r}; expected paths", setting="paths"
            )
        for path in given:
            check_text("a path of a files spout", os.fspath(path))
        self.filesystem, self._paths = _opened(given, filesystem)
        self.loops: dict[str, str] = {}
        self._twice: set[str] = set()

    def files(self) -> list[SourceFile]:
        """List the files that exist now, in any order.

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
        """Check that every named folder and file exists, and is named once.

        Raises:
            ConfigError: One does not; check its spelling, or create it first. Or two paths are one
                folder, by a link.
        """
        from pyarrow import fs

        for path in self._paths:
            root = _root(path)
            if self.filesystem.get_file_info(root).type == fs.FileType.NotFound:
                raise ConfigError(
                    f"the input {path!r} of the files spout does not exist; expected the folder "
                    f"or file {root!r} to exist; create it before the topology starts",
                    path=path,
                )
        check_apart(map(_root, self._paths), self.filesystem)

    def folders(self) -> list[str]:
        """Return the folders that are read, in order; for a file or a glob, the folder it is in.

        Raises:
            InfrastructureError: The filesystem cannot be reached; try again.
        """
        from pyarrow import fs

        found = set()
        for path in self._paths:
            root = _root(path)
            try:
                if self.filesystem.get_file_info(root).type == fs.FileType.File:
                    root = folder_of(root)
            except OSError as error:
                raise failure(f"look at {root!r}", error) from error
            found.add(root)
        return sorted(found)

    def open(self, file: SourceFile) -> pa.NativeFile:
        """Open a file, if it has not changed since it was planned.

        Raises:
            SourceDataLost: It is gone or was changed; restore it unchanged.
            OffsetRegression: It is shorter than it was.
            InfrastructureError: The filesystem cannot be reached; try again.
        """

        try:
            found = self._now(file.name)
            if found is None:
                raise self._lost(file, "gone")
            if found != file:
                changed = f"changed: {found.size} bytes of {found.mtime_ns} ns"
                shorter = found.size < file.size
                raise self._lost(file, changed, OffsetRegression if shorter else SourceDataLost)
            # pyarrow takes a name that is not UTF-8 as bytes.
            name = file.name if _is_text(file.name) else os.fsencode(file.name)
            return self.filesystem.open_input_file(name)
        except FileNotFoundError as error:
            raise self._lost(file, "gone") from error
        except OSError as error:
            raise failure(f"open {file.name!r}", error) from error

    def came_at(self, file: SourceFile) -> float | None:
        """Return the latest time at which a file can have got its name, in seconds since 1970.

        That is the time of its last change of any kind (name, content or rights), which nobody can
        set. None if the file is gone, or the filesystem does not report it.
        """
        base = local_base(self.filesystem)
        if base is None:
            return None
        try:
            return os.stat(inside(base, file.name)).st_ctime
        except OSError:
            return None

    def _now(self, name: str) -> SourceFile | None:
        """Return a file as it is now; None if it is gone.

        Size and time come from the same place as in a listing: for times after the year 2262
        pyarrow differs from the system.
        """
        from pyarrow import fs

        base = local_base(self.filesystem)
        if base is None:
            info = self.filesystem.get_file_info(name)
            return None if info.type == fs.FileType.NotFound else _source_file(info)
        try:
            return _local(name, os.stat(inside(base, name)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _lost(
        self, file: SourceFile, what: str, kind: type[SourceDataLost] = SourceDataLost
    ) -> SourceDataLost:
        return kind(
            f"file {file.name!r} of a planned batch is {what}; expected {file.size} bytes of "
            f"{file.mtime_ns} ns, as it was when the batch was planned; restore it unchanged, "
            "with its time; or remove the batch with quarantine, and write its rows to a file "
            "with another name",
            path=file.name,
        )

    def _matching(self, path: str) -> list[SourceFile]:
        from pyarrow import fs

        root = _root(path)
        info = self.filesystem.get_file_info(root)
        if info.type == fs.FileType.NotFound:
            return []
        if info.type == fs.FileType.File:
            found = None if WILDCARDS.search(path) else self._now(root)
            return [] if found is None else [found]
        rest = path[len(root) :].lstrip("/")
        recursive = not rest or "/" in rest or "**" in rest
        pattern = re.compile(_regex(path)) if rest else None
        base = local_base(self.filesystem)
        if base is None:
            listed = self._listed(root, recursive)
        else:
            walk = Walk()
            listed = [_local(*each) for each in walk.files(base, root, recursive=recursive)]
            self._tell(walk)
        return [file for file in listed if pattern is None or pattern.fullmatch(file.name)]

    def _listed(self, root: str, recursive: bool) -> list[SourceFile]:
        from pyarrow import fs

        selector = fs.FileSelector(root, recursive=recursive, allow_not_found=True)
        return [
            _source_file(info)
            for info in self.filesystem.get_file_info(selector)
            if info.type == fs.FileType.File and not _hidden(info.path[len(root) :])
        ]

    def _tell(self, walk: Walk) -> None:
        """Warn about each link once."""
        for path, other in walk.loops.items():
            if path not in self.loops:
                text = "a files spout does not follow link %r, which leads to folder %r above it"
                _logger.warning(text, path, other)
        for path, other in walk.twice.items():
            if path not in self._twice:
                text = (
                    "a files spout lists one folder as %r and, by a link, as %r, and reads its "
                    "files under both names; remove the link, or pass only one of them as a path"
                )
                _logger.warning(text, other, path)
        # Replaced and never changed, since pages read it from other threads.
        self.loops, self._twice = {**walk.loops}, {*walk.twice}


class SourceFile(NamedTuple):
    """A file as it was when it was listed.

    Attributes:
        name: Its path on the filesystem.
        size: Its size in bytes.
        mtime_ns: The time of its last change; 0 where the filesystem does not give it.
    """

    name: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class FileFormat:
    """The format of the files.

    Attributes:
        name: The name of the format.
        header: CSV: whether the first line of each file names the columns; else they are the
            fields, in order.
        delimiter: CSV: what separates values.
        null_values: CSV: unquoted texts that mean NULL.
        multiline: CSV: whether a quoted value may have line breaks.
    """

    name: FormatName
    header: bool = True
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)
    multiline: bool = field(default=False, repr=False)  # an identity of a lookup is its repr

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise ConfigError(
                f"unknown file format; got {self.name!r}; expected one of {', '.join(FORMATS)}",
                setting="format",
            )
        if len(self.delimiter) != 1:
            raise ConfigError(
                f"delimiter is wrong; got {self.delimiter!r}; expected a character",
                setting="delimiter",
            )
        if self.multiline and self.name != "csv":
            raise ConfigError(
                f"multiline=True is for CSV; got format={self.name!r}; leave it out",
                setting="multiline",
            )

    @property
    def lines(self) -> bool:
        """Whether a file consists of lines, so that its ranges are in bytes."""
        return self.name != "parquet"

    def undivided(self, name: str) -> bool:
        """Return whether a batch has a file of this name as a whole, and its rows are not counted.

        A compressed stream cannot be read from its middle. Nor can values with line breaks: only
        what is before a quotation mark shows whether it begins a value or ends one.
        """
        return self.multiline or self.compression(name) is not None

    def plain_lines(self, block: bytes) -> bytes:
        """Return a block of the same length that has newlines only where a record ends.

        Args:
            block: Bytes of a file, from the beginning of a record on.
        """
        if not self.multiline or b'"' not in block:
            return block
        return _plain_lines(block, self.delimiter)

    def compression(self, name: str) -> str | None:
        """Return the compression of a file, by its name; None for none.

        Raises:
            ConfigError: The file is an archive, which cannot be read; unpack it.
        """
        suffix = name[name.rfind(".") :].lower() if "." in name else ""
        if suffix in (".zip", ".tar", ".tgz", ".7z"):
            raise ConfigError(
                f"file {name!r} is an archive; expected {self.name} files, plain or "
                f"{', '.join(_COMPRESSIONS)}; unpack it",
                path=name,
            )
        return _COMPRESSIONS.get(suffix) if self.lines else None

    def check_fields(self, fields: Fields) -> None:
        """Check that files of this format can have these fields.

        Raises:
            ConfigError: They cannot; repair the fields.
        """
        if not isinstance(fields, Fields) or not len(fields):
            raise ConfigError(
                f"fields of a files spout are wrong; got {fields!r}; expected Fields",
                setting="fields",
            )
        if self.name == "text" and [field.type for field in fields] != ["string"]:
            raise ConfigError(
                f"a text file has exactly one field, for its lines; got {fields!r}; expected e.g. "
                'Fields("line string")',
                setting="fields",
            )


def is_open(block: bytes, delimiter: str) -> bool:
    """Return whether a quoted value of CSV has no closing quotation mark in a block."""
    return b'"' in block and not _plain_lines(block + b"\n", delimiter).endswith(b"\n")


def _plain_lines(block: bytes, delimiter: str) -> bytes:
    return _quoted(delimiter).sub(lambda found: found[0].replace(b"\n", b" "), block)


@cache
def _quoted(delimiter: str) -> re.Pattern[bytes]:
    """Return the pattern of a quoted value, which begins a value, and may be open at the end."""
    before = rb"(?:(?<=[\r\n%s])|\A(?:\xef\xbb\xbf)?)" % re.escape(delimiter.encode())
    return re.compile(before + rb'"[^"]*(?:""[^"]*)*(?:"|\Z)')


class FileRange(NamedTuple):
    """A part of a file, in bytes of a file of lines, or in rows of a Parquet file.

    Attributes:
        file: The file.
        start: Its start.
        end: Its end, exclusive; None for the whole file, which is then never divided.
    """

    file: SourceFile
    start: int
    end: int | None

    @property
    def weight(self) -> int:
        """The size of the range, for comparison with other ranges of the batch."""
        return self.file.size if self.end is None else self.end - self.start


Share = list[FileRange]
"""The part of a batch that one partition reads."""


def _local(name: str, found: os.stat_result) -> SourceFile:
    return SourceFile(name, found.st_size, found.st_mtime_ns)


def _is_text(name: str) -> bool:
    """Return whether a name is UTF-8; names on a local filesystem need not be."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _source_file(info: fs.FileInfo) -> SourceFile:
    return SourceFile(info.path, info.size, info.mtime_ns or 0)


def _opened(
    paths: list[str], filesystem: fs.FileSystem | str | None
) -> tuple[fs.FileSystem, tuple[str, ...]]:
    from pyarrow import fs

    if isinstance(filesystem, str):
        opened, prefix = fs.FileSystem.from_uri(filesystem)
        return opened, _spelled(opened, [f"{prefix.rstrip('/')}/{p.lstrip('/')}" for p in paths])
    if filesystem is not None:
        if not isinstance(filesystem, fs.FileSystem):
            raise ConfigError(
                f"filesystem of a files spout is of the wrong type; got {filesystem!r}; expected "
                "a pyarrow.fs.FileSystem, a URL or None",
                setting="filesystem",
            )
        return filesystem, _spelled(filesystem, [path.rstrip("/") or "/" for path in paths])
    if any("://" in path for path in paths):
        parsed = [fs.FileSystem.from_uri(path) for path in paths]
        if any(other != parsed[0][0] for other, _ in parsed):
            raise ConfigError(
                f"the paths are on different filesystems; got {paths!r}; expected the same "
                "filesystem for all",
                setting="paths",
            )
        return parsed[0][0], _spelled(parsed[0][0], [path.rstrip("/") for _, path in parsed])
    local = fs.LocalFileSystem()
    return local, _spelled(local, [os.path.abspath(path) for path in paths])


def _spelled(filesystem: fs.FileSystem, paths: list[str]) -> tuple[str, ...]:
    """Return local paths in a normal form, without resolving links."""
    base = local_base(filesystem)
    if base is None:
        return tuple(paths)
    if not base:
        # Without a slash, a pattern would be matched in the root of the disk.
        paths = [f"./{path}" if WILDCARDS.search(path.split("/")[0]) else path for path in paths]
    return tuple(map(plain, paths))


def folder_of(name: str) -> str:
    """Return the folder in which a file is."""
    return name.rpartition("/")[0] or ("/" if name.startswith("/") else ".")


def _root(path: str) -> str:
    """Return the part of a path before its first wildcard, up to a slash."""
    match = WILDCARDS.search(path)
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


def shared(ranges: Sequence[FileRange], partitions: int) -> list[Share]:
    """Distribute the ranges of a batch among partitions, as evenly as possible."""
    if all(each.end is None for each in ranges):
        return _by_size(ranges, partitions)
    shares: list[Share] = [[] for _ in range(partitions)]
    total = sum(each.weight for each in ranges)
    before = 0
    for each in ranges:
        if each.end is None:
            middle = before + each.weight // 2
            shares[min(middle * partitions // total, partitions - 1)].append(each)
        else:
            _cut(each, before, total, shares)
        before += each.weight
    return shares


def to_json(shares: Sequence[Share]) -> Json:
    """Return shares as JSON; the common prefix of all names is written once."""
    names = [each.file.name for share in shares for each in share]
    root = _common(names)
    listed: list[Json] = [
        [
            [each.file.name[len(root) :], each.file.size, each.file.mtime_ns, each.start, each.end]
            for each in share
        ]
        for share in shares
    ]
    return {"version": METADATA_VERSION, "root": root, "shares": listed}


def check_version(version: Json) -> None:
    """Check the version of the metadata of a batch.

    Raises:
        SchemaVersionError: A newer txtopo planned it.
    """
    if version != METADATA_VERSION:
        raise SchemaVersionError(
            f"the metadata of a batch of files has version {version!r}; expected "
            f"{METADATA_VERSION}; upgrade this txtopo",
            version=version,
        )


def from_json(stored: Json) -> list[Share]:
    """Return the shares of a batch's metadata.

    Raises:
        SchemaVersionError: A newer txtopo planned it.
        TopologyChanged: Another spout planned it.
    """
    match stored:
        case {"version": version, "root": str(root), "shares": list(listed)}:
            check_version(version)
        case _:
            raise other_position("FilesTransactionalSpout", stored)
    shares: list[Share] = []
    for share in listed:
        assert isinstance(share, list)
        shares.append([_range(root, each) for each in share])
    return shares


def _range(root: str, stored: Json) -> FileRange:
    assert isinstance(stored, list)
    name, size, mtime_ns, start, end = stored
    assert isinstance(name, str)
    assert isinstance(size, int)
    assert isinstance(mtime_ns, int)
    assert isinstance(start, int)
    assert end is None or isinstance(end, int)
    return FileRange(SourceFile(root + name, size, mtime_ns), start, end)


def _by_size(ranges: Sequence[FileRange], partitions: int) -> list[Share]:
    shares: list[Share] = [[] for _ in range(partitions)]
    loads = [0] * partitions
    for each in sorted(ranges, key=lambda each: -each.weight):
        least = loads.index(min(loads))
        shares[least].append(each)
        loads[least] += each.weight
    return shares


def _cut(each: FileRange, before: int, total: int, shares: list[Share]) -> None:
    """Divide a range at the boundaries between shares."""
    assert each.end is not None
    start = each.start
    for partition, share in enumerate(shares):
        border = total * (partition + 1) // len(shares)
        end = min(each.end, each.start + max(border - before, 0))
        if end > start:
            share.append(FileRange(each.file, start, end))
            start = end


def _common(names: Sequence[str]) -> str:
    if not names:
        return ""
    low, high = min(names), max(names)
    at = next((at for at, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), len(low))
    return low[: low[:at].rfind("/") + 1]
