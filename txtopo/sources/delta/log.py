"""Planning batches of a Delta table from its log: which files hold the changes of each version.

The log entry of a version never changes, so a version always names the same files. Entries that
rewrite rows without changing them (OPTIMIZE) are marked as such, and are skipped.

If a version has files of change data, they hold all of its changes. Otherwise the files that it
added hold inserted rows, and the files that it removed hold deleted rows. Delta's protocol defines
the change data feed like that. This also works where the feed is off: a delete then rewrites a
file, so the remaining rows are deleted and inserted again. That is more to read, with the same
total.

The metadata of a batch is ``{"start": [version, file], "end": [version, file], "entry": digest,
"whole": true}``: the files from the first position (included) to the second one (excluded). Both
are in versions that exist when the batch is planned, so a replay finds the same files. The appended
files of a version may be divided between batches. The changes of a version are not, since one file
may delete a row that another inserts. ``whole`` means that the last version has no more files: the
next batch does not need its entry, which log retention may have removed meanwhile.

The digest is that of the log entry of the last version. It reveals a table that was deleted and
recreated, or restored to an earlier state and then changed: its versions have the same numbers but
other entries. The id of a table does not reveal that: deltalake gives a table a new id when it is
replaced in place, where the log continues, and keeps the id after a restore. A batch without files
has no digest.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, OffsetRegression, SourceDataLost
from txtopo.metadata import Json
from txtopo.sources.json_objects import times_of
from txtopo.sources.values import fitted_column
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator, other_position

if TYPE_CHECKING:
    import pyarrow as pa
    from deltalake import DeltaTable
    from pyarrow import fs

# Entries are small, and planning a batch needs the same few again and again.
_KEPT_MAX = 256

# Two entries of one version have the same digest by chance once in 2e19.
_DIGEST_BYTES = 8

_MAPPING = "delta.columnMapping.mode"

# The beginning of the statistics of a file, of which the rest is about its columns.
_ROWS_IN_STATS = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(\d+)')

CHANGE_TYPE = "_change_type"
"""The column in a file of change data that describes how a row changed."""

Position = tuple[int, int]
"""(version, number of a file in it) that is read next."""


class RowChange(Enum):
    """How a version changed the rows of a file: inserted, deleted, or as given in each row."""

    INSERTED = "inserted"
    DELETED = "deleted"
    BY_ROW = "by row"


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file with rows that a version changed.

    Attributes:
        path: Its path within the folder of the table.
        bytes: Its size; 0 if the log does not give it.
        partition: The values of the partition columns, as texts; None for NULL.
        change: How its rows changed.
        rows: How many rows it has, if the log says so.
    """

    path: str
    bytes: int
    partition: Mapping[str, str | None]
    change: RowChange = RowChange.INSERTED
    rows: int | None = None


class _Entry(NamedTuple):
    """The log entry of a version: its digest, and the files with the changes."""

    digest: str
    files: tuple[ChangedFile, ...]


@dataclass(slots=True)
class DeltaLog:
    """The log of one table. Picklable.

    Attributes:
        uri: Path or URL of the table.
        options: Storage options for deltalake.
        changes: Whether versions may delete rows; if False, a version that does is an error.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    changes: bool = False
    _known: dict[int, _Entry] = field(default_factory=dict, repr=False)
    _counted: dict[str, int | None] = field(default_factory=dict, repr=False)

    def filesystem(self) -> fs.FileSystem:
        """Return the folder of the table as a filesystem."""
        from pyarrow import fs

        if "://" not in self.uri:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))

    def files(self, version: int) -> tuple[ChangedFile, ...]:
        """Return the files with the changes of a version, in the order of the log.

        Raises:
            SourceDataLost: The log does not reach back that far, or the version cannot be read.
            InfrastructureError: The table cannot be reached; try again.
        """
        return self._entry(version).files

    def rows(self, file: ChangedFile) -> int | None:
        """Return how many rows a file has: by the log, or else by its footer; None if it has none.

        A file that cannot be read is not an error here: the task that reads it says what is wrong.
        """
        if file.rows is not None:
            return file.rows
        if file.path not in self._counted:
            if len(self._counted) >= _KEPT_MAX:
                self._counted.clear()
            self._counted[file.path] = self._rows_in_footer(file.path)
        return self._counted[file.path]

    def _rows_in_footer(self, path: str) -> int | None:
        import pyarrow.parquet as pq

        try:
            with self.filesystem().open_input_file(path) as opened:
                return int(pq.read_metadata(opened).num_rows)
        except (OSError, ValueError):
            return None

    def planned(self, metadata: Json) -> Iterator[tuple[int, ChangedFile]]:
        """Yield the version and the changes of each file of a batch.

        Raises:
            SourceDataLost: As of :meth:`files`.
            OffsetRegression: The table is not the one for which the batch was planned.
            InfrastructureError: The table cannot be reached; try again.
        """
        start, end = positions(metadata)
        digest = _digest_of(metadata)
        if digest is not None and self._entry(end[0]).digest != digest:
            raise self._remade(end[0], digest, self._entry(end[0]).digest)
        for version, _, file in files_between(self, start, end):
            yield version, file

    def check(self, metadata: Json, latest: int) -> None:
        """Check that the table is still the one that was read up to the end of a batch.

        Its entry is read again, so a table that is recreated during a run is noticed as well.

        Args:
            metadata: The metadata of the batch.
            latest: The latest version of the table.

        Raises:
            OffsetRegression: It is another table, or ends before that version.
            InfrastructureError: The table cannot be reached; try again.
        """
        version, before = positions(metadata)[1]
        if before and version > latest:
            raise OffsetRegression(
                f"the Delta table at {self.uri!r} ends before the version up to which it was "
                f"read; got {latest} as its latest version; expected at least {version}; was it "
                "deleted and recreated, or restored from a copy? restore the earlier table, or "
                "read this one under a new topology id",
                version=version,
            )
        digest = _digest_of(metadata)
        got = None if digest is None else self.digest_now(version)
        if digest is not None and got not in (None, digest):
            raise self._remade(version, digest, got)

    def digest(self, version: int) -> str:
        """Return the digest of the log entry of a version; it raises as :meth:`files`."""
        return self._entry(version).digest

    def digest_now(self, version: int) -> str | None:
        """Return the digest of the log entry of a version, read again; None if it is missing.

        The log may have been cleaned up, which begins with its oldest versions.

        Raises:
            InfrastructureError: The table cannot be reached; try again.
        """
        try:
            return _digest(self._bytes(version))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise failure(f"read the log of {self.uri!r}", error) from error

    def _entry(self, version: int) -> _Entry:
        if version not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            self._known[version] = self._read(version)
        return self._known[version]

    def _bytes(self, version: int) -> bytes:
        with self.filesystem().open_input_file(f"_delta_log/{version:020}.json") as opened:
            return bytes(opened.read())

    def _remade(self, version: int, expected: str, got: str | None) -> OffsetRegression:
        return OffsetRegression(
            f"the Delta table at {self.uri!r} is not the one that was read; got a log entry of "
            f"version {version} with the digest {got}; expected {expected}, as when its rows were "
            "planned; was the table deleted and recreated, or restored from a copy? restore the "
            "earlier table, or read this one under a new topology id",
            version=version,
        )

    def _read(self, version: int) -> _Entry:
        try:
            read = self._bytes(version)
        except FileNotFoundError as error:
            raise SourceDataLost(
                f"the log of {self.uri!r} lacks version {version}, which was to be read next; "
                "expected the log to go back that far; delta.logRetentionDuration was too short "
                "for this topology; raise it, and begin after the gap with starting_version, "
                "under a new topology id",
                version=version,
            ) from error
        except OSError as error:
            raise failure(f"read the log of {self.uri!r}", error) from error
        try:
            return _Entry(_digest(read), self._changes(version, actions_in(read)))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise SourceDataLost(
                f"the log of {self.uri!r} is damaged in version {version}; got {error!r:.200}; "
                "expected one Delta action in JSON on each line; restore an intact copy of the "
                "table, or begin after it with starting_version, under a new topology id",
                version=version,
            ) from error

    def _changes(self, version: int, actions: Sequence[dict[str, Any]]) -> tuple[ChangedFile, ...]:
        if self.changes:
            told = [each["cdc"] for each in actions if "cdc" in each]
            if told:
                self._check(version, [each for each in actions if "metaData" in each])
                return tuple(_file(each, RowChange.BY_ROW) for each in told)
        self._check(version, actions)
        files = []
        for action in actions:
            for name, change in (("remove", RowChange.DELETED), ("add", RowChange.INSERTED)):
                found = action.get(name)
                if found is not None and found.get("dataChange", True):
                    files.append(_file(found, change))
        return tuple(files)

    def _check(self, version: int, actions: Sequence[dict[str, Any]]) -> None:
        for action in actions:
            settings = (action.get("metaData") or {}).get("configuration") or {}
            if mapped := maps_columns(f"version {version} of {self.uri!r}", settings):
                raise SourceDataLost(mapped, version=version)
            what = self._unreadable(action)
            if what is not None:
                expected = (
                    "changes without them"
                    if self.changes
                    else (
                        "appended rows only, because emitted rows cannot be taken back, unless "
                        "changes='…' names a field that marks the removed rows"
                    )
                )
                raise SourceDataLost(
                    f"version {version} of {self.uri!r} {what}; expected {expected}; begin after "
                    f"it with starting_version={version + 1}, under a new topology id",
                    version=version,
                )

    def _unreadable(self, action: dict[str, Any]) -> str | None:
        """Return why an action cannot be read; None if it can."""
        removed, added = action.get("remove") or {}, action.get("add") or {}
        went = bool(removed) and removed.get("dataChange", True)
        if went and not self.changes:
            return "removed rows (a delete, update, merge or overwrite)"
        if added.get("deletionVector") or (went and removed.get("deletionVector")):
            return "has deletion vectors"
        if went and "partitionValues" not in removed:
            return "does not say of which partition the rows were that it took away"
        return None


def actions_in(entry: bytes) -> list[dict[str, Any]]:
    """Return the actions of a log entry.

    Lines end only with a newline: the statistics of text may contain U+2028, U+0085 and other
    characters that end a line in ``str.splitlines``, but not in JSON.

    Raises:
        ValueError: A line is not a JSON object.
    """
    actions = [json.loads(line) for line in entry.split(b"\n") if line.strip()]
    if not all(isinstance(action, dict) for action in actions):
        raise ValueError("a line is not an object")
    return actions


# How delta-rs writes bytes: \u00FF for each, the backslash included.
_ESCAPED_BYTES = re.compile(r"(?:\\u00[0-9A-Fa-f]{2})+")


def partition_value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """Return the value of a partition column from its text in a log, by Delta's protocol.

    An empty text is NULL, whatever the type. A timestamp without a zone is in UTC. Bytes are
    written as characters (Spark), or as an escape for each (delta-rs).

    Raises:
        ValueError: The text is not a value of the type.
    """
    import pyarrow as pa

    if text is None or text == "":
        return pa.scalar(None, kind)
    if pa.types.is_binary(kind):
        escaped = _ESCAPED_BYTES.fullmatch(text)
        return pa.scalar(
            bytes.fromhex(text.replace("\\u00", "")) if escaped else text.encode(), kind
        )
    texts = pa.array([text], pa.string())
    return (times_of(texts, kind) if pa.types.is_timestamp(kind) else fitted_column(texts, kind))[0]


def maps_columns(what: str, configuration: Mapping[str, str | None]) -> str:
    """Return why a table with this configuration cannot be read: it maps columns to other names.

    Empty for a table without a mapping. It does not suggest to begin behind the version that sets
    the mapping, since the columns of later files would be NULL.
    """
    mode = configuration.get(_MAPPING) or "none"
    if mode == "none":
        return ""
    return (
        f"{what} maps its columns to different names; got {_MAPPING}={mode!r}; expected a table "
        "without column mapping, because its files are read by the names of their columns; write "
        "its rows into a table without column mapping, and read that table under a new topology "
        "id"
    )


def _digest(entry: bytes) -> str:
    return hashlib.blake2b(entry, digest_size=_DIGEST_BYTES).hexdigest()


def _file(found: Mapping[str, Any], change: RowChange) -> ChangedFile:
    partition = found.get("partitionValues") or {}
    stats = _ROWS_IN_STATS.match(str(found.get("stats")))
    rows = None if stats is None else int(stats[1])
    return ChangedFile(unquote(found["path"]), found.get("size") or 0, partition, change, rows)


@dataclass(frozen=True, slots=True)
class DeltaLimits:
    """The limits of a batch. It has at least one file; if it reads changes, a whole version.

    Attributes:
        versions: Maximum versions that changed something.
        files: Maximum files.
        bytes: Maximum bytes of files.
    """

    versions: int
    files: int
    bytes: int

    def __post_init__(self) -> None:
        for name in ("versions", "files", "bytes"):
            value = getattr(self, name)
            if type(value) is not int or value < 1:
                raise ConfigError(
                    f"batch_{name}_max of a Delta spout is wrong; got {value!r}; expected a whole "
                    "number of at least 1",
                    setting=f"batch_{name}_max",
                )


@dataclass(frozen=True, slots=True)
class _VersionsCut:
    """A batch that may be planned.

    Attributes:
        end: Where it ends.
        files: How many files it has.
        rows: How many rows they have; None if they were not counted, or cannot be.
        full: Whether there are more files behind it.
    """

    end: Position
    files: int
    rows: int | None
    full: bool


class DeltaCoordinator(TransactionalCoordinator):
    """Plans the batches of a table in the driver.

    Args:
        log: The log of the table.
        limits: The limits of a batch.
        first: The position of the first batch.
        table: The table.
        gathers_rows: How many rows a batch may wait for: a full one does not.
    """

    def __init__(
        self,
        log: DeltaLog,
        limits: DeltaLimits,
        first: Position,
        table: DeltaTable,
        gathers_rows: int = 0,
    ) -> None:
        self._gathers_rows = gathers_rows
        self._rows: int | None = None
        self._newest: int = table.version()
        self._log = log
        self._limits = limits
        self._first = first
        self._table = table
        # From the first position to the second one there is nothing to read.
        self._empty: tuple[Position, Position] = first, first
        # The last version at which the identity of the table was checked.
        self._compared: int | None = None

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a version after the last batch has a file to read."""
        position = self._position(last.metadata)
        latest = self._latest(last.metadata)
        for version, _, _ in files_between(self._log, position, (latest + 1, 0)):
            assert version <= latest
            return True
        # Versions without files are not examined again.
        self._empty = self._end(last.metadata), max(self._empty[1], (latest + 1, 0))
        return False

    def initialize_transaction(
        self, txid: int, previous_metadata: Json, *, rows_max: int | None = None
    ) -> Json:
        """Return the metadata of the batch: its start and end.

        With *rows_max* it has no more rows, or one file; of changes, one version.
        """
        start = self._position(previous_metadata)
        cut = self._cut(
            start, self._latest(previous_metadata), rows_max, counts=rows_max is not None
        )
        self._rows, end = cut.rows, cut.end
        planned: dict[str, Json] = {"start": list(start), "end": list(end)}
        if cut.files:
            planned["entry"] = self._log.digest(end[0])
            planned["whole"] = end[1] == len(self._log.files(end[0]))
        return planned

    def planned_rows(self, metadata: Json) -> int | None:
        """Return how many rows the batch has that was planned last."""
        return self._rows

    def unread(self, last: LastBatch) -> Mapping[str, int] | None:
        """Return how many rows a batch would have; None if they cannot be counted.

        A batch that is full by another limit has nothing to wait for.
        """
        cut = self._cut(self._position(last.metadata), self._newest, None, counts=True)
        if cut.rows is None:
            return None
        # It is ready, so there is a file. Its batch reads it, even if it has no row.
        return {"rows": max(1, cut.rows, self._gathers_rows if cut.full else 0)}

    def lag(self, metadata: Json) -> Mapping[str, int]:
        """Return how many ``versions`` are behind the batch, as of the last look at the table."""
        end, (empty_from, empty_before) = self._end(metadata or None), self._empty
        if end >= empty_from:
            end = max(end, empty_before)
        return {"versions": max(0, self._newest + 1 - end[0])}

    def _cut(
        self, start: Position, latest: int, rows_max: int | None, *, counts: bool
    ) -> _VersionsCut:
        end, files, size, limits = start, 0, 0, self._limits
        rows: int | None = 0 if counts else None
        versions: set[int] = set()
        if rows_max == 0:
            return _VersionsCut(start, 0, 0, full=True)
        for version, at, file in files_between(self._log, start, (latest + 1, 0)):
            full = files == limits.files or size + file.bytes > limits.bytes
            full |= version not in versions and len(versions) == limits.versions
            count = self._log.rows(file) if rows is not None else None
            if rows_max is not None:
                full |= rows is None or count is None or rows + count > rows_max
            if full and files and (version not in versions or not self._log.changes):
                return _VersionsCut(end, files, rows, full=True)
            rows = None if rows is None or count is None else rows + count
            versions.add(version)
            files, size, end = files + 1, size + file.bytes, (version, at + 1)
        return _VersionsCut(end, files, rows, full=False)

    def ended(self, last: LastBatch) -> bool:
        """Return whether no version that exists has a file to read."""
        return not self.is_ready(last.txid + 1, last)

    def _position(self, metadata: Json) -> Position:
        return max(self._end(metadata), self._empty[1])

    def _end(self, metadata: Json) -> Position:
        last = self._first if metadata is None else positions(metadata)[1]
        match metadata:
            case {"whole": True}:
                last = (last[0] + 1, 0)
        return last

    def _latest(self, metadata: Json) -> int:
        """Return the latest version, after a check that the table is still the same."""
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise failure(f"read {self._log.uri!r}", error) from error
        version: int = self._table.version()
        self._newest = version
        if metadata is not None and version != self._compared:
            self._log.check(metadata, version)
        self._compared = version
        return version


def files_between(
    log: DeltaLog, start: Position, end: Position
) -> Iterator[tuple[int, int, ChangedFile]]:
    """Yield (version, number, file) from *start* (included) to *end* (excluded)."""
    for version in range(start[0], end[0] + 1):
        if (version, 0) >= end:
            return
        for at, file in enumerate(log.files(version)):
            if start <= (version, at) < end:
                yield version, at, file


def positions(metadata: Json) -> tuple[Position, Position]:
    """Return the start and the end of a batch from its metadata.

    Raises:
        TopologyChanged: Another spout planned it.
    """
    match metadata:
        case {"start": [int(first), int(at)], "end": [int(last), int(before)]}:
            return (first, at), (last, before)
    raise other_position("a Delta spout", metadata)


def _digest_of(metadata: Json) -> str | None:
    match metadata:
        case {"entry": str(digest)}:
            return digest
    return None
