"""What each error of a database means: by SQLSTATE, by SQLite's result code, by the driver's words.

Rules
-----
1. What the server says by a code decides. SQLSTATEs are looked up by their longest beginning that
   is in :data:`SQLSTATES`, SQLite's codes as they are and then by their last byte; the numbers of
   MariaDB and MySQL become SQLSTATEs in :mod:`state_backends.sql.mariadb_failures`.
2. Words decide only where there is no code: libpq gives none for a connection that was not made.
3. What nothing decides passes: it is tried again, with a WARNING each time, and loses nothing.
   Tests compare the tables with what the installed drivers know.

A server that is starting, stopping, failed over (which says read-only too), out of memory,
connections or room on its disk passes. Rights and passwords do not, though somebody may be changing
them: to go on trying would look like a run that works, and a start is all it takes afterwards. Nor
does a disk that fails, or a file system that is read-only.
"""

from __future__ import annotations

import sqlite3
from enum import Enum

from state_backends.sql.mariadb_failures import state_of


class Meaning(Enum):
    """What an error leads to."""

    PASSES = "passes"
    """Tried again, for as long as it takes."""
    READ_ONLY = "read-only"
    """The same; it may be a replica for good, so the message asks."""
    CONTENDED = "contended"
    """The whole transaction is tried again at once, a few times; then it passes."""
    DUPLICATE = "duplicate"
    """The same, since two who make a row at the same time see it; what stays ends the run."""
    VALUE = "value"
    """The database takes no such value."""
    DRIFT = "drift"
    """A table or a column is not as it was made."""
    REFUSED = "refused"
    """User, password, rights, or a file that may not be written."""
    DAMAGED = "damaged"
    """What is stored is not what was written."""
    LASTS = "lasts"
    """A statement, a setting or a disk that will fail each time."""


_P, _C, _V, _R, _L = (
    Meaning.PASSES,
    Meaning.CONTENDED,
    Meaning.VALUE,
    Meaning.REFUSED,
    Meaning.LASTS,
)
SQLSTATES = {
    "02": _L,  # no data
    "03": _L,  # statement not yet complete
    "08": _P,  # connection
    "09": _L,  # triggered action
    "0A": _L,  # feature not supported
    "0B": _L,  # transaction initiation
    "0F": _L,  # locator
    "0L": _R,  # grantor
    "0P": _R,  # role
    "0Z": _L,  # diagnostics
    "10": _L,  # XQuery
    "20": _L,  # case not found
    "21": _V,  # a row merged twice
    "22": _V,  # data
    "23": _V,  # integrity: NULL, a key of no other table, what a CHECK or an exclusion forbids
    "23505": Meaning.DUPLICATE,
    "24": _L,  # cursor state
    "25": _L,  # transaction state
    "25006": Meaning.READ_ONLY,
    "25P02": _P,  # failed transaction
    "25P03": _P,  # idle for too long
    "25P04": _P,  # took too long
    "26": _P,  # statement name: a pooler has changed the server
    "27": _L,  # triggered data change
    "28": _R,  # authorization
    "2B": _L,  # dependent privileges
    "2D": _L,  # transaction termination
    "2F": _L,  # SQL routine
    "34": _L,  # cursor name
    "38": _L,  # external routine
    "39": _L,  # external routine invocation
    "3B": _L,  # savepoint
    "3D": _R,  # no such database
    "3F": _R,  # no such schema
    "40": _C,  # rolled back: deadlock, serialization failure
    "40002": _V,  # by a constraint
    "40003": _P,  # completion unknown
    "42": _L,  # a statement that is not understood
    "42501": _R,
    "42703": Meaning.DRIFT,  # no such column
    "42804": Meaning.DRIFT,  # another type
    "42P01": Meaning.DRIFT,  # no such table
    "42P10": Meaning.DRIFT,  # no such index
    "44": _V,  # WITH CHECK OPTION
    "53": _P,  # disk full, out of memory, too many connections
    "54": _V,  # what no page or index has room for
    "55": _P,  # object not in the state that is needed
    "55P02": _L,  # parameter cannot be changed
    "55P03": _C,  # lock not available
    "57": _P,  # stopped, starting, cancelled
    "57P04": _R,  # database dropped
    "58": _L,  # the disk or the system failed; a full one is 53
    "72": _P,  # snapshot too old
    "F0": _P,  # configuration file
    "HV": _P,  # foreign data wrapper: another server
    "P0": _L,  # PL/pgSQL, as of a trigger
    "XX": _P,  # internal error
    "XX001": Meaning.DAMAGED,
    "XX002": Meaning.DAMAGED,
}
"""The meaning of SQLSTATEs, by their beginnings."""

SQLITE = {
    "SQLITE_ERROR": _L,
    "SQLITE_ERROR_RETRY": _C,
    "SQLITE_ERROR_SNAPSHOT": _C,
    "SQLITE_INTERNAL": _L,
    "SQLITE_PERM": _R,
    "SQLITE_ABORT": _P,
    "SQLITE_BUSY": _C,
    "SQLITE_LOCKED": _C,
    "SQLITE_NOMEM": _P,
    "SQLITE_READONLY": _R,
    "SQLITE_INTERRUPT": _P,
    "SQLITE_IOERR": _L,
    "SQLITE_IOERR_BLOCKED": _P,
    "SQLITE_IOERR_CORRUPTFS": Meaning.DAMAGED,
    "SQLITE_IOERR_DATA": Meaning.DAMAGED,
    "SQLITE_IOERR_NOMEM": _P,
    "SQLITE_CORRUPT": Meaning.DAMAGED,
    "SQLITE_NOTFOUND": _L,
    "SQLITE_FULL": _P,
    # No folder, no right, a folder of this name. Also a process with too many open files, which
    # would pass; SQLite does not tell them apart.
    "SQLITE_CANTOPEN": _L,
    "SQLITE_PROTOCOL": _C,
    "SQLITE_EMPTY": _L,
    "SQLITE_SCHEMA": _C,
    "SQLITE_TOOBIG": _V,
    "SQLITE_CONSTRAINT": _V,
    "SQLITE_MISMATCH": _V,
    "SQLITE_MISUSE": _L,
    "SQLITE_NOLFS": _L,
    "SQLITE_AUTH": _R,
    "SQLITE_FORMAT": _L,
    "SQLITE_RANGE": _L,
    "SQLITE_NOTADB": Meaning.DRIFT,
    "SQLITE_NOTICE": _P,
    "SQLITE_WARNING": _P,
}
"""The meaning of SQLite's result codes, by their names."""

TEXTS = {
    "no such table": Meaning.DRIFT,
    "no such column": Meaning.DRIFT,
    "has no column named": Meaning.DRIFT,
    "not a database": Meaning.DRIFT,
    "is malformed": Meaning.DAMAGED,
    "cannot store": _V,
    "user-defined function raised exception": _V,
    "integer overflow": _V,
    "constraint failed": _V,
    "database is locked": _C,
    "database table is locked": _C,
    "authentication failed": _R,
    "no password supplied": _R,
    "no pg_hba.conf entry": _R,
    "permission denied": _R,
    "readonly database": _R,
    "does not exist": _R,
    "certificate verify failed": _R,
    "does not match host name": _R,
    "server does not support SSL": _R,
}
"""The meaning of words, where there is no code, or one that says little (SQLITE_ERROR)."""

CLASSES = {
    "DataError": _V,
    "IntegrityError": _V,
    "NotSupportedError": _L,
    "ProgrammingError": _L,
    "UnicodeDecodeError": _V,
    "UnicodeEncodeError": _V,
    "UnicodeError": _V,
    "OverflowError": _V,
}
"""The meaning of classes of exceptions, where neither a code nor a word tells."""

_CODES = {
    code: name for name, code in vars(sqlite3).items() if isinstance(code, int) and name in SQLITE
}


def meaning_of(cause: BaseException | None, text: str) -> Meaning:
    """Return what an error of a driver means; one that nothing is known of passes."""
    state = state_of(cause)
    found = _by_sqlstate(state) if state else _by_sqlite(cause)
    # What a message says may be a value of the user's, so it does not decide against a code.
    if found is None or (not state and found is Meaning.LASTS):
        found = next((each for part, each in TEXTS.items() if part in text), found)
    if found is None and cause is not None:
        kinds = (kind.__name__ for kind in type(cause).__mro__)
        found = next((CLASSES[kind] for kind in kinds if kind in CLASSES), None)
    return found or Meaning.PASSES


def _by_sqlstate(state: str) -> Meaning | None:
    for length in (5, 2):
        if state[:length] in SQLSTATES:
            return SQLSTATES[state[:length]]
    return None


def _by_sqlite(cause: BaseException | None) -> Meaning | None:
    code = getattr(cause, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    name = _CODES.get(code) or _CODES.get(code & 0xFF)
    return SQLITE[name] if name is not None else None
