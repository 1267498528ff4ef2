"""Planning batches of a Delta table from its log: which files hold the changes of each version.

The log entry of a version never changes, so a version always names the same files. Entries that
rewrite rows without changing them (OPTIMIZE) say so, and are skipped.

If a version has files of change data, they hold all of its changes. Otherwise the files that it
added hold inserted rows, and the files that it removed hold deleted rows. Delta's protocol defines
the change data feed like that. It holds where the feed is off as well: a delete then rewrites a
file, so the rows that remain are deleted and inserted again. That is more to read, with the same
total.

The metadata of a batch is ``{"start": [version, file], "end": [version, file]}``: the files from
the first position (included) to the second one (excluded). Both are in versions that exist when the
batch is planned, so a replay finds the same files. The appended files of a version may be divided
between batches. The changes of a version are not, since one file may delete a row that another
inserts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from txtopo.disk_errors import failure
from txtopo.errors import ConfigError, SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator, other_position

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import fs

# Entries are small, and planning a batch needs the same few again and again.
_KEPT_MAX = 256

CHANGE_TYPE = "_change_type"
"""The column of a file of change data that says how a row changed."""

Position = tuple[int, int]
"""(version, number of a file in it) that is read next."""


class RowChange(Enum):
    """How a version changed the rows of a file: inserted, deleted, or as each row says."""

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
    """

    path: str
    bytes: int
    partition: Mapping[str, str | None]
    change: RowChange = RowChange.INSERTED


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
    _known: dict[int, tuple[ChangedFile, ...]] = field(default_factory=dict, repr=False)

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
            SourceDataLost: The log does not reach back so far, or the version cannot be read.
            InfrastructureError: The table cannot be reached; try again.
        """
        if version not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            self._known[version] = self._read(version)
        return self._known[version]

    def _read(self, version: int) -> tuple[ChangedFile, ...]:
        try:
            with self.filesystem().open_input_file(f"_delta_log/{version:020}.json") as opened:
                lines = opened.read().decode().splitlines()
        except FileNotFoundError as error:
            raise SourceDataLost(
                f"the log of {self.uri!r} lacks version {version}, which was to be read; expected "
                "it to go back so far; delta.logRetentionDuration was too short for this topology; "
                "raise it, and begin behind the gap with starting_version, under a new topology id",
                version=version,
            ) from error
        except OSError as error:
            raise failure(f"read the log of {self.uri!r}", error) from error
        actions = [json.loads(line) for line in lines if line]
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
            what = self._unreadable(action)
            if what is not None:
                expected = (
                    "changes without them"
                    if self.changes
                    else (
                        "appended rows alone, since what was emitted cannot be taken back, unless "
                        "changes='…' names a field that says which rows went"
                    )
                )
                raise SourceDataLost(
                    f"version {version} of {self.uri!r} {what}; expected {expected}; begin behind "
                    f"it with starting_version={version + 1}, under a new topology id",
                    version=version,
                )

    def _unreadable(self, action: dict[str, Any]) -> str | None:
        """Return why an action cannot be read, if it cannot."""
        removed, added = action.get("remove") or {}, action.get("add") or {}
        went = bool(removed) and removed.get("dataChange", True)
        settings = (action.get("metaData") or {}).get("configuration") or {}
        if went and not self.changes:
            return "took rows away (a delete, update, merge or overwrite)"
        if added.get("deletionVector") or (went and removed.get("deletionVector")):
            return "has deletion vectors"
        if went and "partitionValues" not in removed:
            return "does not say of which partition the rows were that it took away"
        if settings.get("delta.columnMapping.mode", "none") != "none":
            return "maps its columns to other names"
        return None


def _file(found: Mapping[str, Any], change: RowChange) -> ChangedFile:
    partition = found.get("partitionValues") or {}
    return ChangedFile(unquote(found["path"]), found.get("size") or 0, partition, change)


@dataclass(frozen=True, slots=True)
class DeltaLimits:
    """The most that a batch holds. It has at least one file, and of changes a whole version.

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
                    "number of at least 1"
                )


class DeltaCoordinator(TransactionalCoordinator):
    """Plans the batches of a table in the driver."""

    def __init__(self, log: DeltaLog, limits: DeltaLimits, first: Position, table: DeltaTable):
        self._log = log
        self._limits = limits
        self._first = first
        self._table = table
        self._empty_before: Position = first

    def is_ready(self, txid: int, last: LastBatch) -> bool:
        """Return whether a version after the last batch has a file to read."""
        position = self._position(last.metadata)
        latest = self._latest()
        for version, _, _ in files_between(self._log, position, (latest + 1, 0)):
            assert version <= latest
            return True
        # Versions without files are not looked at again.
        self._empty_before = max(self._empty_before, (latest + 1, 0))
        return False

    def initialize_transaction(self, txid: int, previous_metadata: Json) -> Json:
        """Return the metadata of the batch: its start and end."""
        start = self._position(previous_metadata)
        end, files, size = start, 0, 0
        versions: set[int] = set()
        limits = self._limits
        for version, at, file in files_between(self._log, start, (self._latest() + 1, 0)):
            full = files == limits.files or size + file.bytes > limits.bytes
            full |= version not in versions and len(versions) == limits.versions
            if full and files and (version not in versions or not self._log.changes):
                break
            versions.add(version)
            files, size, end = files + 1, size + file.bytes, (version, at + 1)
        return {"start": list(start), "end": list(end)}

    def _position(self, metadata: Json) -> Position:
        last = self._first if metadata is None else positions(metadata)[1]
        return max(last, self._empty_before)

    def _latest(self) -> int:
        from deltalake.exceptions import DeltaError

        try:
            self._table.update_incremental()
        except (DeltaError, OSError) as error:
            raise failure(f"read {self._log.uri!r}", error) from error
        version: int = self._table.version()
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
