"""Change the database of a state by hand, as an operator might."""

from __future__ import annotations

import sqlalchemy as sa

from tests.faults.bad_inputs.evidence import KEPT
from tests.harness.runs import Storage

COLUMNS = "value {whole}, txid {whole} NOT NULL, prev_value {whole}, prev_txid {whole}, {flag}"


def statements(storage: Storage, *texts: str) -> None:
    """Change a database by hand."""
    engine = sa.create_engine(storage.url)
    with engine.begin() as connection:
        for text in texts:
            connection.exec_driver_sql(text)
    engine.dispose()


def table_of(storage: Storage, key: str = "PRIMARY KEY (key)") -> str:
    """Return the statement that makes a table with the columns of the state, and this key."""
    sqlite = storage.url.startswith("sqlite")
    whole, flag = ("INTEGER", "deleted INTEGER") if sqlite else ("BIGINT", "deleted BOOLEAN")
    columns = COLUMNS.format(whole=whole, flag=f"{flag} NOT NULL")
    comma = ", " if key else ""
    if storage.url.startswith("mariadb"):
        name = "`key` VARCHAR(768) CHARACTER SET utf8mb4 COLLATE utf8mb4_nopad_bin"
        key = key.replace("(key)", "(`key`)")
    else:
        name = "key TEXT" if sqlite else 'key TEXT COLLATE "C"'
    return f"CREATE TABLE {KEPT} ({name} NOT NULL, {columns}{comma}{key})"
