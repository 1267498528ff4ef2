"""DeltaCoordinator: cuts the versions of a table into bounded batches, in the driver.

The metadata of a batch is ``{"start": [version, file], "end": [version, file]}``: the files from
the first position on and before the second one. Both lie in versions that are there when the batch
is planned, so a replay finds the same files. Appended files may be in another batch than others of
their version; changes are not parted, since a row that went may be one that another file brings.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from txtopo.errors import ConfigError
from txtopo.metadata import Json
from txtopo.spouts.delta.log import ChangedFile, DeltaLog
from txtopo.spouts.transactional import LastBatch, TransactionalCoordinator
from txtopo.state.disk_errors import failure

if TYPE_CHECKING:
    from deltalake import DeltaTable

Position = tuple[int, int]
"""(version, number of a file in it): what is read next."""


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
