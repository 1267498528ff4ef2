"""Reads the log of a Delta table in a local folder with pyarrow, for machines without delta-rs.

It reads what the states of txtopo need: entries in JSON, checkpoints in one or several Parquet
files, metadata, transactions and files. A table with a feature that changes how its files are to be
read, such as deletion vectors or column mapping, is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

LOG = "_delta_log"

_ENTRY = re.compile(r"(\d{20})\.json")

_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10}))?\.parquet")

_READABLE = frozenset({"timestampNtz", "vacuumProtocolCheck", "deletionVectors"})
"""Features of a table that do not change how its files are read; of deletion vectors each file says
whether it has one."""

_TYPES: Mapping[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}

_DECIMAL = re.compile(r"decimal\((\d+),\s*(\d+)\)")


class NoTableError(Exception):
    """There is no table, or its log does not go back to the version that is wanted."""


class UnreadableTableError(Exception):
    """The table has a feature that is not read here."""


def is_table(folder: str) -> bool:
    """Return whether a folder has the log of a Delta table, with a version."""
    return bool(_names(folder))


@dataclass
class LogState:
    """What the log of a table says as of one version.

    Attributes:
        version: The version; -1 before the first entry.
        configuration: The properties of the table.
        schema: Its columns, as the log has them.
        transactions: The version of the last transaction of each application.
        files: The files of the table, by path.
    """

    version: int = -1
    configuration: dict[str, str] = field(default_factory=dict)
    schema: dict[str, Any] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    files: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: str, version: int | None = None) -> LogState:
        """Return the state of a table at a version, by default its newest one.

        Raises:
            NoTableError: There is no such version.
            UnreadableTableError: It has a feature that is not read here.
        """
        state = cls()
        names = _names(folder)
        for at, parts in reversed(_checkpoints(names)):
            if version is None or at <= version:
                for part in parts:
                    rows = pq.read_table(Path(folder, LOG, part)).to_pylist()
                    state._apply(each for row in rows for each in _actions(row))
                state.version = at
                break
        state.follow(folder, version)
        if state.version < 0 or version not in (None, state.version):
            raise NoTableError(f"no version {'' if version is None else version} in {folder!r}")
        return state

    def follow(self, folder: str, version: int | None = None) -> None:
        """Apply the entries that were added since, up to a version."""
        while version is None or self.version < version:
            path = Path(folder, LOG, f"{self.version + 1:020}.json")
            try:
                text = path.read_text(encoding="utf-8")
            except FileNotFoundError:
                return
            lines = [json.loads(line) for line in text.split("\n") if line.strip()]
            self._apply(each for line in lines for each in line.items())
            self.version += 1

    def arrow_schema(self) -> pa.Schema:
        """Return the columns of the table."""
        return pa.schema([(f["name"], _type(f["type"])) for f in self.schema["fields"]])

    def _apply(self, actions: Iterable[tuple[str, Any]]) -> None:
        for kind, action in actions:
            match kind:
                case "add":
                    if action.get("deletionVector"):
                        raise UnreadableTableError("a file of the table has a deletion vector")
                    self.files[unquote(action["path"])] = action
                case "remove":
                    self.files.pop(unquote(action["path"]), None)
                case "txn":
                    self.transactions[action["appId"]] = action["version"]
                case "metaData":
                    self.configuration = dict(action["configuration"] or {})
                    self.schema = json.loads(action["schemaString"])
                case "protocol":
                    _check(action)


def history(folder: str, version: int, limit: int | None) -> list[dict[str, Any]]:
    """Return what is noted of the commits up to a version, newest first, while there are any."""
    found: list[dict[str, Any]] = []
    while version >= 0 and (limit is None or len(found) < limit):
        try:
            text = Path(folder, LOG, f"{version:020}.json").read_text(encoding="utf-8")
        except FileNotFoundError:
            break
        lines = [json.loads(line) for line in text.split("\n") if line.strip()]
        info: dict[str, Any] = next(
            (line["commitInfo"] for line in lines if "commitInfo" in line), {}
        )
        found.append({**info, "version": version})
        version -= 1
    return found


def _names(folder: str) -> list[str]:
    try:
        names = sorted(path.name for path in Path(folder, LOG).iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [each for each in names if _ENTRY.fullmatch(each) or _CHECKPOINT.fullmatch(each)]


def _checkpoints(names: Iterable[str]) -> list[tuple[int, list[str]]]:
    """Return the complete checkpoints, oldest first, with the names of their files."""
    found: dict[tuple[int, int], list[str]] = {}
    for name in names:
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault((int(match[1]), int(match[3] or 1)), []).append(name)
    return [(at, parts) for (at, count), parts in sorted(found.items()) if len(parts) == count]


def _actions(row: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the action of a row of a checkpoint, whose maps are lists of pairs."""
    for kind, action in row.items():
        if action is not None:
            yield kind, action


def _check(protocol: Mapping[str, Any]) -> None:
    features = set(protocol.get("readerFeatures") or ()) - _READABLE
    if features or (protocol["minReaderVersion"] == 2 and not protocol.get("readerFeatures")):
        # Version 2 is column mapping, which the properties may or may not use.
        features = features or {"columnMapping"}
        raise UnreadableTableError(f"the table has the features {sorted(features)}")


def _type(name: object) -> pa.DataType:
    if isinstance(name, str):
        if name in _TYPES:
            return _TYPES[name]
        if match := _DECIMAL.fullmatch(name):
            return pa.decimal128(int(match[1]), int(match[2]))
    raise UnreadableTableError(f"the table has a column of type {name!r:.100}")
