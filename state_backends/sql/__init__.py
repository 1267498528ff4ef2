"""States in SQLite, PostgreSQL, MariaDB and MySQL, through SQLAlchemy Core.

Delivery: exactly once, fenced, and atomic for readers: ledger and rows are written in one database
transaction. A user reads plain columns: the key columns and the value columns, then the bookkeeping
(``txid``, and for an opaque state the previous values, ``prev_txid`` and ``deleted``). The view
``<table>_view`` leaves the bookkeeping and deleted rows out. What else stands beside the table has
names that ``names.py`` gives, and that nothing else may have.

A state may live in a table of the user's own (``create=False``, ``add_columns=True``): see
``existing.py``. While its topology runs nobody else may change rows that the topology writes, and
whoever reads the table itself, not the view, sees a deleted row until the next txid.
"""

from __future__ import annotations

from state_backends.sql.factory import open_backend

__all__ = ["open_backend"]
