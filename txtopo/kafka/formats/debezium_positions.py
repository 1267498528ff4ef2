"""Where in a database's log a change is: a position, and the timeline that it counts in.

A position is a text. Of two positions of one timeline, the text that is larger by code points is
that of the later change; numbers are padded with zeros for this. Equal texts mean the same place,
so a record of the same key at the same position is a repetition. Positions of different timelines
cannot be compared.

PostgreSQL
----------
``max(last commit, lsn) . lsn . rank``. Logical decoding sends whole transactions, in the order of
their commits; a record with a smaller LSN may follow one with a larger LSN. The envelope has
``source.sequence``, the LSN of the last commit before the record's transaction, which is unknown
(null) in the first transaction after a snapshot. The larger one of it and the LSN orders all
records as the log does: each LSN of a transaction is below its own commit, and that is at most the
"last commit" of the next. It is also right where only the LSN is known.

A row of a snapshot (``op`` r) is at ``0 . lsn . 0``, before all changes that are streamed. Its LSN
is that of the moment of the snapshot; a transaction that was open then has changes with smaller
LSNs, which the snapshot lacks, so the LSN would sort them wrongly. Hence rows of a later snapshot
(blocking, or since the slot was lost) count only for keys that no streamed change has named. They
could not repair a replica in any case, since no snapshot tells what was deleted.

The timeline is the connector, its ``name`` (``topic.prefix``) and the database. The envelope does
not say which server it was. If LSNs begin again (a restored or upgraded server), give the connector
another name.

MySQL and MariaDB
-----------------
``number of the binlog file . pos . row . rank``. The binlog has the order of commits. A row of a
snapshot has the position at which the snapshot was consistent, and streaming continues there.

The timeline is the connector, its ``name`` and the base name of the binlog files. The envelope does
not say whose binlog it was: ``source.server_id`` is the server on which a change was first made,
and 0 in a snapshot. So the format is told which servers write into the one binlog that the
connector reads. A change of any other server has a timeline of its own: after a failover the
numbers of files begin anew. The rows of a new snapshot do not have that timeline, so a connector
that takes one then needs another name. GTIDs do not help, since they name the server of a change as
well, and are not ordered within a transaction.

Incremental snapshots
---------------------
A row of one (``snapshot`` is ``incremental``) carries the position of the record during which its
window closed. Changes of its key up to there are in it or have removed it from the window; but the
record itself, if it is of the same key, is sent after it. Hence the rank: 0 for rows of snapshots,
1 for changes. The first column of the position is ``source.sequence`` as for changes.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

_POSTGRESQL = ("postgresql",)
_MYSQL = ("mysql", "mariadb")

# The values of source.snapshot; older versions write booleans, and null for false.
_SNAPSHOT = ("true", "first", "first_in_data_collection", "last_in_data_collection", "last")
_NO_SNAPSHOT = ("false", "none")
_INCREMENTAL = "incremental"


def place_of(source: Mapping[str, Any], op: str, server_ids: Collection[int]) -> tuple[str, str]:
    """Return the position of a change, and its timeline.

    Args:
        source: The ``source`` of the envelope.
        op: Its ``op``.
        server_ids: The servers that write into the binlog that a connector of MySQL reads.

    Raises:
        ValueError: The source says no position, or is of another database.
    """
    snapshot = _snapshot(source, op)
    rank = 0 if snapshot else 1
    connector = source.get("connector")
    if connector in _POSTGRESQL:
        commit, lsn = _lsns(source)
        first = 0 if snapshot and snapshot != _INCREMENTAL else max(commit, lsn)
        timeline = f"{connector}/{_text(source, 'name')}/{_text(source, 'db')}"
        return f"{first:020d}.{lsn:020d}.{rank}", timeline
    if connector in _MYSQL:
        base, number = _binlog(source)
        pos, row = _number(source, "pos"), _number(source, "row", 0)
        position = f"{number:010d}.{pos:020d}.{row:010d}.{rank}"
        server = _server(source, server_ids)
        return position, f"{connector}/{_text(source, 'name')}/{base}{server}"
    raise ValueError(
        f"its source has the connector {connector!r}; expected postgresql, mysql or mariadb"
    )


def _snapshot(source: Mapping[str, Any], op: str) -> str | None:
    """Return the kind of snapshot that a record is part of; None if it is a change."""
    given = source.get("snapshot")
    said = "false" if given is None else str(given).lower()
    if said == _INCREMENTAL or said in _SNAPSHOT:
        return said
    if said not in _NO_SNAPSHOT:
        known = ", ".join((*_SNAPSHOT, _INCREMENTAL, *_NO_SNAPSHOT))
        raise ValueError(f"its source has the snapshot {given!r:.100}; expected {known}")
    return "true" if op == "r" else None


def _lsns(source: Mapping[str, Any]) -> tuple[int, int]:
    """Return the LSN of the last commit, 0 if it is unknown, and that of the record."""
    text = source.get("sequence")
    if text is None:
        return 0, _number(source, "lsn")
    try:
        commit, own = (None if each is None else int(each) for each in json.loads(text))
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"its source has the sequence {text!r:.100}; expected two LSNs in a JSON array"
        ) from error
    lsn = own if source.get("lsn") is None else _number(source, "lsn")
    if lsn is None or lsn < 0 or (commit or 0) < 0:
        raise ValueError(f"its source has the sequence {text!r:.100} but no LSN; expected one")
    return commit or 0, lsn


def _binlog(source: Mapping[str, Any]) -> tuple[str, int]:
    """Return the base name and the number of a binlog file."""
    base, dot, number = _text(source, "file").rpartition(".")
    if not dot or not number.isascii() or not number.isdecimal():
        raise ValueError(
            f"its source has the file {source['file']!r:.100}; expected one such as binlog.000001"
        )
    return base, int(number)


def _server(source: Mapping[str, Any], server_ids: Collection[int]) -> str:
    """Return what a server adds to the timeline: nothing if it writes into the same binlog."""
    server = _number(source, "server_id")
    if not server or server in server_ids:
        return ""
    if not server_ids:
        raise ValueError(
            f"it is a change of the server with the id {server}, but the format was not told "
            f"whose binlog the connector reads; expected Debezium(…, server_ids=[{server}])"
        )
    return f"/{server}"


def _number(source: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = source.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < 0:
        raise ValueError(f"its source has the {name} {value!r:.100}; expected a number")
    return value


def _text(source: Mapping[str, Any], name: str) -> str:
    value = source.get(name)
    if not isinstance(value, str) or not value:
        raise ValueError(f"its source has the {name} {value!r:.100}; expected a string")
    return value
