"""States in SQLite, PostgreSQL, MariaDB and MySQL, through SQLAlchemy Core.

Delivery: exactly once, fenced, and atomic for readers: ledger and rows are written in one database
transaction, which the states of one database share. A user reads plain columns: the key columns,
the value columns, then the bookkeeping (``txid``, and for an opaque state the previous values,
``prev_txid`` and ``deleted``). The view ``<table>_view`` has neither bookkeeping nor deleted rows.
The other objects of a state have names from ``names.py``, which are reserved.

A state may live in a table of the user's own (``create=False``, ``add_columns=True``), see
``creation.py``. While its topology runs, nobody else may change the rows that the topology writes.
A deleted row stays visible in the table, but not in the view, until the next txid.
"""

from __future__ import annotations

from state_backends.sql.factory import open_backend

__all__ = ["open_backend"]
