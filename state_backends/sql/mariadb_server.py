"""What a session with MariaDB or MySQL must be, and what a server must be that keeps a promise."""

from __future__ import annotations

import sqlalchemy as sa

from txtopo.errors import TopologyError

# JSON_TABLE came with MariaDB 10.6, the collation utf8mb4_0900_bin with MySQL 8.0.17.
_OLDEST = {True: (10, 6), False: (8, 0, 19)}
_MODES = (
    "STRICT_ALL_TABLES",
    "NO_ZERO_DATE",
    "NO_ZERO_IN_DATE",
    "ERROR_FOR_DIVISION_BY_ZERO",
    "NO_ENGINE_SUBSTITUTION",
    # Text has quotes to be doubled, and nothing else.
    "NO_BACKSLASH_ESCAPES",
)
# A writer that hangs (SIGSTOP) keeps the row of the ledger locked: others give up waiting after the
# first time and try again; MariaDB ends an idle transaction that writes after the second. MySQL
# knows nothing of the kind.
_LOCK_TIMEOUT_S = 5
_IDLE_TIMEOUT_S = 10
_DURABLE = (
    ("innodb_flush_log_at_trx_commit", "1", "a crash of the machine may lose the last commits"),
    ("innodb_doublewrite", "ON", "a crash of the machine may leave half a page"),
)
# These leave to the operating system what the settings above say is on disk; made for measuring.
_CARELESS_METHODS = ("nosync", "littlesync")


def session() -> str:
    """Return the statement with which each session begins, before anything else."""
    return (
        f"SET SESSION sql_mode = '{','.join(_MODES)}', time_zone = '+00:00', "
        f"innodb_lock_wait_timeout = {_LOCK_TIMEOUT_S}"
    )


def check_server(connection: sa.Connection) -> int:
    """Check the server, make a session one that writes, and return ``max_allowed_packet``.

    Raises:
        TopologyError: The server is too old, or set up so that it may lose a commit.
    """
    is_mariadb = bool(getattr(connection.dialect, "is_mariadb", False))
    name, version = "MariaDB" if is_mariadb else "MySQL", connection.dialect.server_version_info
    if version is not None and tuple(version) < _OLDEST[is_mariadb]:
        raise TopologyError(
            f"{name} {'.'.join(map(str, version))} is too old for a state; expected "
            f"{'.'.join(map(str, _OLDEST[is_mariadb]))} or later"
        )
    connection.exec_driver_sql("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
    if is_mariadb:
        connection.exec_driver_sql(
            f"SET SESSION idle_write_transaction_timeout = {_IDLE_TIMEOUT_S}"
        )
    found = _variables(connection)
    connection.rollback()
    faults = [
        f"{variable} is {found[variable]!r}, so {what}; expected {wanted!r}"
        for variable, wanted, what in _DURABLE
        if found.get(variable, wanted) not in (wanted, "1")
    ]
    if found.get("log_bin") == "ON" and found.get("sync_binlog") != "1":
        # A restart takes back what its binary log does not have.
        faults.append(
            "log_bin is on, but sync_binlog is not 1, so a crash may lose the last commits"
        )
    method = found.get("innodb_flush_method", "")
    if method.lower() in _CARELESS_METHODS:
        faults.append(
            f"innodb_flush_method is {method!r}, so a crash of the machine may lose the last "
            "commits; expected 'O_DIRECT' or 'fsync'"
        )
    if found.get("autocommit") != "OFF":
        faults.append("autocommit is on, so a batch would be written in parts")
    if faults:
        raise TopologyError(
            f"{name} cannot keep a state: {'; '.join(faults)}; set it in the server"
        )
    return int(found["max_allowed_packet"])


def _variables(connection: sa.Connection) -> dict[str, str]:
    wanted = ["log_bin", "sync_binlog", "autocommit", "max_allowed_packet", "innodb_flush_method"]
    wanted += [variable for variable, _, _ in _DURABLE]
    names = ", ".join(f"'{name}'" for name in wanted)
    rows = connection.exec_driver_sql(f"SHOW VARIABLES WHERE Variable_name IN ({names})")
    return {name.lower(): str(value) for name, value in rows}
