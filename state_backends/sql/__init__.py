"""States in SQLite and PostgreSQL, through SQLAlchemy Core.

Delivery: exactly once, fenced, and atomic for readers: ledger and rows are written in one database
transaction. A user reads plain columns: the key columns and the value columns, then the bookkeeping
(``txid``, and for an opaque state the previous values, ``prev_txid`` and ``deleted``). The view
``<table>_view`` leaves the bookkeeping and deleted rows out.
"""

from __future__ import annotations

from state_backends.sql.factory import open_backend

__all__ = ["open_backend"]
