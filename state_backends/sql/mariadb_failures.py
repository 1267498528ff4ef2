"""The numbers of MariaDB's and MySQL's errors, as the SQLSTATEs that other databases have.

Their own SQLSTATEs are mostly the one of a general error, HY000.
"""

from __future__ import annotations

import re

_NULL, _RANGE, _DENIED = "22004", "22003", "42501"
_STATES = {
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
    1054: "42703",  # unknown column
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
    """Return the SQLSTATE of a driver's error, or nothing where there is none."""
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int) and type(cause).__module__.startswith("pymysql"):
        text = str(cause)
        if number == 1290 and "read-only" not in text and "read_only" not in text:
            return "42000"  # another option of the server forbids the statement
        if _STATES.get(number) == "58030" and _FULL.search(text):
            return "53100"
        return _STATES.get(number, "")
    return getattr(cause, "sqlstate", None) or ""
