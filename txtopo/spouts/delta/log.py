"""DeltaLog: which files hold what a version of a Delta table changed, from its log.

A version's entry in the log never changes, so the same version always names the same files. What
rewrites rows without changing them (OPTIMIZE) says so, and is passed over.

A version that has files of change data says with them all that it changed; else the files that it
added are rows that came, and those that it removed are rows that went. That is how Delta's protocol
defines the change data feed. It also holds where the feed is off: a delete then rewrites a file,
whose remaining rows go and come, which is more to read and the same in total.

DeltaCoordinator: cuts the versions of a table into bounded batches, in the driver.

The metadata of a batch is ``{"start": [version, file], "end": [version, file]}``: the files from
the first position on and before the second one. Both lie in versions that are there when the batch
is planned, so a replay finds the same files. Appended files may be in another batch than others of
their version; changes are not parted, since a row that went may be one that another file brings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import unquote

from txtopo.errors import ConfigError, SourceDataLost
from txtopo.metadata import Json
from txtopo.spouts.spout import LastBatch, TransactionalCoordinator
from txtopo.state.disk_errors import failure

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow import fs

# Entries are small, and a batch looks at the same few again and again.
_KEPT_MAX = 256

CHANGE_TYPE = "_change_type"
"""The column of a file of change data that says what became of a row."""

Position = tuple[int, int]
"""(version, number of a file in it): what is read next."""


class RowChange(Enum):
    """What a file says of its rows."""

    CAME = "came"
    WENT = "went"
    BY_ROW = "by row"


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A file with rows that a version changed.

    Attributes:
        path: Below the folder of the table.
        bytes: Its size; 0 if the log does not say it.
        partition: The values of the partition columns, as texts; None for NULL.
        change: What became of its rows.
    """

    path: str
    bytes: int
    partition: Mapping[str, str | None]
    change: RowChange = RowChange.CAME


@dataclass(slots=True)
class DeltaLog:
    """The log of one table; picklable.

    Attributes:
        uri: Where the table is.
        options: Storage options for deltalake.
        changes: Whether rows may go, too; else a version that takes rows away is an error.
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
        """Return the files with what a version changed, in the order of the log.

        Raises:
            SourceDataLost: The log does not go back so far, or what it says cannot be read.
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
            for name, change in (("remove", RowChange.WENT), ("add", RowChange.CAME)):
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
    """What a batch has at the most; at least one file, and of changes one version.

    Attributes:
        versions: Versions of the table that changed something.
        files: Files.
        bytes: Bytes of files.
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
    """Plans batches of a table."""

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
        """Return where the batch starts and ends."""
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
    """Yield (version, number, file) from one position on and before another."""
    for version in range(start[0], end[0] + 1):
        if (version, 0) >= end:
            return
        for at, file in enumerate(log.files(version)):
            if start <= (version, at) < end:
                yield version, at, file


def positions(metadata: Json) -> tuple[Position, Position]:
    """Return where a batch starts and ends."""
    planned = cast("dict[str, Any]", metadata)
    (first, at), (last, before) = planned["start"], planned["end"]
    return (first, at), (last, before)
