"""The numbers of MariaDB's and MySQL's errors, as the SQLSTATEs that other databases have.

Their own SQLSTATEs are mostly the one of a general error, HY000.
"""

from __future__ import annotations

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
    1290: "25006",  # --read-only
    1792: "25006",  # a read-only transaction
    1836: "25006",
}


def state_of(cause: BaseException | None) -> str:
    """Return the SQLSTATE of a driver's error, or nothing where there is none."""
    number = cause.args[0] if cause is not None and cause.args else None
    if isinstance(number, int) and type(cause).__module__.startswith("pymysql"):
        return _STATES.get(number, "")
    return getattr(cause, "sqlstate", None) or ""
