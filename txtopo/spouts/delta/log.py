"""DeltaLog: which files a version of a Delta table added, from its log.

A version's entry in the log never changes, so the same version always names the same files. What
rewrites rows without changing them (OPTIMIZE) says so, and is passed over.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from txtopo.errors import InfrastructureError, SourceDataLost

if TYPE_CHECKING:
    from pyarrow import fs

# Entries are small, and a batch looks at the same few again and again.
_KEPT_MAX = 256


@dataclass(frozen=True, slots=True)
class AddedFile:
    """A file that a version added.

    Attributes:
        path: Below the folder of the table.
        bytes: Its size.
        partition: The values of the partition columns, as texts; None for NULL.
    """

    path: str
    bytes: int
    partition: Mapping[str, str | None]


@dataclass(slots=True)
class DeltaLog:
    """The log of one table; picklable.

    Attributes:
        uri: Where the table is.
        options: Storage options for deltalake.
    """

    uri: str
    options: Mapping[str, str] = field(default_factory=dict)
    _known: dict[int, tuple[AddedFile, ...]] = field(default_factory=dict, repr=False)

    def filesystem(self) -> fs.FileSystem:
        """Return the folder of the table as a filesystem."""
        from pyarrow import fs

        if "://" not in self.uri:
            return fs.SubTreeFileSystem(self.uri, fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        return fs.PyFileSystem(DeltaStorageHandler(self.uri, dict(self.options)))

    def added(self, version: int) -> tuple[AddedFile, ...]:
        """Return the files that a version added, in the order of the log.

        Raises:
            SourceDataLost: The log does not go back so far, or the version took rows away.
            InfrastructureError: The table cannot be reached; try again.
        """
        if version not in self._known:
            if len(self._known) >= _KEPT_MAX:
                self._known.clear()
            self._known[version] = self._read(version)
        return self._known[version]

    def _read(self, version: int) -> tuple[AddedFile, ...]:
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
            raise InfrastructureError(f"cannot read the log of {self.uri!r}: {error}") from error
        files = []
        for action in map(json.loads, filter(None, lines)):
            self._check(version, action)
            added = action.get("add")
            if added is not None and added.get("dataChange", True):
                partition = added.get("partitionValues") or {}
                files.append(AddedFile(unquote(added["path"]), added["size"], partition))
        return tuple(files)

    def _check(self, version: int, action: dict[str, Any]) -> None:
        removed, added = action.get("remove"), action.get("add") or {}
        settings = (action.get("metaData") or {}).get("configuration") or {}
        what = None
        if removed is not None and removed.get("dataChange", True):
            what = "took rows away (a delete, update, merge or overwrite)"
        elif added.get("deletionVector"):
            what = "has deletion vectors"
        elif settings.get("delta.columnMapping.mode", "none") != "none":
            what = "maps its columns to other names"
        if what is not None:
            raise SourceDataLost(
                f"version {version} of {self.uri!r} {what}; expected appended rows alone, since "
                "what was emitted cannot be taken back; begin behind it with starting_version="
                f"{version + 1}, under a new topology id",
                version=version,
            )
