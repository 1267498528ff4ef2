"""What each error of PostgreSQL, MariaDB, MySQL and SQLite means: pass, last, or what it refuses.

Stores and spouts share the table, so that an outage is waited for by both, and a statement that is
refused each time ends the run in both.

Rules
-----
1. A code decides if there is one. SQLSTATEs are looked up by their longest prefix in
   :data:`SQLSTATES`, SQLite's codes as they are and then by their last byte. Numbers of MariaDB and
   MySQL become SQLSTATEs, since the SQLSTATE of their own is mostly HY000, a general error.
2. Words decide only if there is no code: libpq has none for a connection that was not made.
3. An error that nothing decides passes: it is tried again, with a WARNING each time, and nothing is
   lost. Tests compare the tables with the codes that the installed drivers know.

A server that is starting, stopping, failed over (then it says read-only), or out of memory,
connections or disk space, passes. Missing rights and wrong passwords last, though somebody may be
changing them: continuing would look like a run that works, and afterwards a start is all it takes.
A failing disk and a read-only file system last as well.
"""

from __future__ import annotations

import re
import sqlite3

from txtopo.errors import ErrorMeaning

_P, _C, _V, _R, _L = (
    ErrorMeaning.PASSES,
    ErrorMeaning.CONTENDED,
    ErrorMeaning.VALUE,
    ErrorMeaning.REFUSED,
    ErrorMeaning.LASTS,
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
    "23505": ErrorMeaning.DUPLICATE,
    "24": _L,  # cursor state
    "25": _L,  # transaction state
    "25006": ErrorMeaning.READ_ONLY,
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
    "42703": ErrorMeaning.DRIFT,  # no such column
    "42804": ErrorMeaning.DRIFT,  # another type
    "42P01": ErrorMeaning.DRIFT,  # no such table
    "42P10": ErrorMeaning.DRIFT,  # no such index
    "44": _V,  # WITH CHECK OPTION
    "45": _L,  # an exception of a user's, as of a trigger
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
    "XX001": ErrorMeaning.DAMAGED,
    "XX002": ErrorMeaning.DAMAGED,
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
    "SQLITE_IOERR_CORRUPTFS": ErrorMeaning.DAMAGED,
    "SQLITE_IOERR_DATA": ErrorMeaning.DAMAGED,
    "SQLITE_IOERR_NOMEM": _P,
    "SQLITE_CORRUPT": ErrorMeaning.DAMAGED,
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
    "SQLITE_NOTADB": ErrorMeaning.DRIFT,
    "SQLITE_NOTICE": _P,
    "SQLITE_WARNING": _P,
}
"""The meaning of SQLite's result codes, by their names."""

NOT_UTF8 = "Could not decode to UTF-8"
"""What the driver of SQLite says, without a code, of a text that is not UTF-8."""

TEXTS = {
    "no such table": ErrorMeaning.DRIFT,
    "no such column": ErrorMeaning.DRIFT,
    "has no column named": ErrorMeaning.DRIFT,
    "not a database": ErrorMeaning.DRIFT,
    "is malformed": ErrorMeaning.DAMAGED,
    NOT_UTF8: ErrorMeaning.DAMAGED,
    "cannot store": _V,
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


def meaning_of(cause: BaseException | None, text: str) -> ErrorMeaning:
    """Return the meaning of a driver's error; an unknown error counts as passing."""
    state = state_of(cause)
    found = _by_sqlstate(state) if state else _by_sqlite(cause)
    # A message may quote a value of the user's, so words do not overrule a code.
    if found is None or (not state and found is ErrorMeaning.LASTS):
        found = next((each for part, each in TEXTS.items() if part in text), found)
    if found is None and cause is not None:
        kinds = (kind.__name__ for kind in type(cause).__mro__)
        found = next((CLASSES[kind] for kind in kinds if kind in CLASSES), None)
    return found or ErrorMeaning.PASSES


def passes(cause: BaseException | None) -> bool:
    """Return whether an error may pass, so that reading is worth another try.

    For a reader a lock is like an outage, and a primary may come back; all else would come again.
    """
    return meaning_of(cause, str(cause)) in (
        ErrorMeaning.PASSES,
        ErrorMeaning.READ_ONLY,
        ErrorMeaning.CONTENDED,
    )


def _by_sqlstate(state: str) -> ErrorMeaning | None:
    for length in (5, 2):
        if state[:length] in SQLSTATES:
            return SQLSTATES[state[:length]]
    return None


def _by_sqlite(cause: BaseException | None) -> ErrorMeaning | None:
    code = getattr(cause, "sqlite_errorcode", None)
    if not isinstance(code, int):
        return None
    name = _CODES.get(code) or _CODES.get(code & 0xFF)
    return SQLITE[name] if name is not None else None


_NULL, _RANGE, _DENIED = "22004", "22003", "42501"

MYSQL_STATES = {
    1020: "40001",  # record has changed since last read
    1205: "55P03",  # lock wait timeout
    1213: "40P01",  # deadlock
    1062: "23505",  # duplicate entry
    1048: _NULL,
    1364: _NULL,  # no default value
    1118: "54000",  # row size too large
    1153: "54000",  # packet too large
    1264: _RANGE,
    1265: _RANGE,  # data truncated
    1292: _RANGE,  # incorrect value
    1366: _RANGE,  # incorrect value, or text that the column's character set lacks
    1406: _RANGE,  # data too long
    1690: _RANGE,
    1452: "22000",  # a foreign key fails
    3819: "22000",  # a check fails (MySQL)
    4025: "22000",  # a check fails (MariaDB)
    1052: "42702",  # a column of several tables
    1054: "42703",  # unknown column
    1064: "42601",  # a statement that is not understood
    1070: "42P17",  # too many key columns: 32, in MySQL 16
    1146: "42P01",  # no such table
    1044: _DENIED,
    1045: "28000",
    1049: "3D000",  # unknown database
    1142: _DENIED,
    1143: _DENIED,
    1227: _DENIED,
    1698: "28000",
    1290: "25006",  # --read-only; another option, see below
    1792: "25006",  # a read-only transaction
    1836: "25006",
    # A second row of a key, by the names of several statements.
    1022: "23505",
    1169: "23505",
    1557: "23505",
    1586: "23505",
    1216: "23503",
    1217: "23503",
    1451: "23503",
    1261: _RANGE,
    1263: _NULL,
    1411: _RANGE,
    1416: _RANGE,
    3140: _RANGE,  # no JSON
    # Rights: of an account, a host, a routine.
    1095: _DENIED,
    1130: "28000",  # the host may not connect
    1131: _DENIED,
    1132: _DENIED,
    1133: _DENIED,
    1211: _DENIED,
    1251: "28000",
    1275: "28000",
    1370: _DENIED,
    1396: _DENIED,
    1410: _DENIED,
    1820: "28000",  # the password has to be changed
    1862: "28000",
    3118: "28000",  # the account is locked
    4151: "28000",
    2049: "28000",
    2059: "28000",
    2061: "28000",
    # What was made is not there, or other.
    1051: "42P01",
    1072: "42703",
    1109: "42P01",
    1136: "42804",
    1176: "42P10",
    # Statements, settings and servers that do not fit.
    1101: "42000",
    1193: "42000",  # unknown variable
    1235: "0A000",
    1286: "0A000",  # unknown engine
    1289: "0A000",
    1305: "42000",
    1139: "42000",  # a regular expression that is not understood
    1222: "42000",  # a UNION of different numbers of columns
    1241: "21000",
    1242: "21000",  # a subquery with several rows
    1253: "42000",
    1288: "42000",  # a view that cannot be changed
    1365: "22012",  # a division by zero
    1442: "42000",  # a trigger that changes its own table
    1526: "23000",  # no partition for the row
    1582: "42000",
    1643: "02000",  # SIGNAL, as of a trigger
    1644: "45000",
    1906: "22000",  # a value for a generated column
    4091: "42P01",  # no such sequence
    1356: "42000",  # a view of what is gone, or without the right to it
    # Disks and files; a full one is told apart below.
    1004: "58030",
    1005: "58030",
    1006: "58030",
    1014: "58030",
    1015: "58030",
    1016: "58030",
    1017: "58P01",
    1024: "58030",
    1025: "58030",
    1026: "58030",
    1030: "58030",
    1036: "42501",  # the files of the table may not be written
    1105: "XX000",
    1021: "53100",
    1114: "53100",  # the table, or the room for temporary ones, is full
    1034: "XX002",
    1035: "XX001",
    1194: "XX001",  # marked as crashed
    1195: "XX001",
    1712: "XX002",
    1877: "XX001",
    1932: "XX001",  # the engine has lost it
    # What passes.
    1037: "53200",
    1038: "53200",
    1041: "53200",
    1040: "53300",
    1203: "53300",
    1226: "53300",
    1042: "08000",
    1043: "08000",
    1047: "57P03",  # a node of Galera that is not ready
    1053: "57P01",
    1077: "57P01",
    1079: "57P01",
    1129: "08004",  # blocked after many errors, until somebody flushes hosts
    1152: "08006",
    1158: "08006",
    1159: "08006",
    1160: "08006",
    1161: "08006",
    1184: "08006",
    1180: "40003",  # an error during COMMIT
    1317: "57014",
    1969: "57014",
    3024: "57014",
    1927: "57P01",
    3101: "40001",  # another member of the group was faster
    3572: "55P03",
}

# Errors of files say which in brackets: "(Errcode: 28 "No space left on device")", and those of
# engines as "Got error 28 from storage engine".
_FULL = re.compile(r"(?:[Ee]rrcode: |[Gg]ot error )(?:28|122|136|135)\b")


def state_of(cause: BaseException | None) -> str:
    """Return the SQLSTATE of a driver's error, or an empty text."""
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int) and type(cause).__module__.startswith("pymysql"):
        text = str(cause)
        if number == 1290 and "read-only" not in text and "read_only" not in text:
            return "42000"  # another option of the server forbids the statement
        if MYSQL_STATES.get(number) == "58030" and _FULL.search(text):
            return "53100"
        return MYSQL_STATES.get(number, "")
    return getattr(cause, "sqlstate", None) or ""
