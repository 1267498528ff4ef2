"""Which errors of a database pass, for whoever only reads.

Passing is what a server, a network or a lock is the cause of. What the database says of the query,
of rights or of its disk lasts. Errors without a code of the server's are those of connections, and
pass, but for what the words of the last rows say.
"""

from __future__ import annotations

PASSING_SQLSTATES = ("08", "25006", "25P", "26", "40", "53", "55", "57", "72", "F0", "HV", "XX000")
"""Beginnings of SQLSTATEs: connection, pooler, rolled back, resources, locks, stopped or starting,
snapshot too old. PostgreSQL's."""

PASSING_SQLITE = frozenset({4, 5, 6, 7, 9, 13, 15, 17})
"""SQLite's primary codes: ABORT, BUSY, LOCKED, NOMEM, INTERRUPT, FULL, PROTOCOL, SCHEMA."""

LASTING_MYSQL = frozenset(
    {
        *(1044, 1045, 1049, 1130, 1131, 1142, 1143, 1227, 1251, 1370, 1698, 1820, 1862, 3118, 4151),
        *(1051, 1052, 1054, 1064, 1072, 1109, 1146, 1176, 1193, 1305, 1356),
        *(1015, 1016, 1017, 1024, 1030, 1034, 1035, 1194, 1195, 1712, 1877, 1932),
        *(2049, 2059, 2061),
    }
)
"""Numbers of MariaDB and MySQL: rights, statements and what they name, disks and damaged tables.
All others pass: locks, limits, servers that stop, start or are full."""

LASTING_TEXTS = (
    *("authentication failed", "no password supplied", "no pg_hba.conf entry", "does not exist"),
    *("certificate verify failed", "does not match host name", "server does not support SSL"),
)
"""What libpq says without a code."""


def passes(cause: BaseException | None) -> bool:
    """Return whether an error of a driver is worth another try."""
    state = getattr(cause, "sqlstate", None)
    if state:
        return str(state).startswith(PASSING_SQLSTATES)
    code = getattr(cause, "sqlite_errorcode", None)
    if isinstance(code, int):
        return code & 0xFF in PASSING_SQLITE
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int) and type(cause).__module__.startswith("pymysql"):
        return number not in LASTING_MYSQL
    return not any(part in str(cause) for part in LASTING_TEXTS)
