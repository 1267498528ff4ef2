"""States in Delta tables, written from the driver with delta-rs; ``pip install txtopo[delta]``.

Delivery: exactly once, fenced, and atomic for readers: each commit of a txid is one version of the
table, with the ledger in it as an application transaction. ``delta:///folder`` names a folder with
one Delta table for each state; ``s3://…`` and other URLs that delta-rs opens work as well. Readers
see plain columns: key, value, then the bookkeeping.

With ``?writer=spark`` a state also accepts DataFrames, which Spark merges; either writer fences the
other, and can redo what it wrote. All other commits are still made from the driver.

Not guaranteed on a local disk: delta-rs does not sync what it writes. A commit is synced here
before it counts. A power cut in between may leave a version with torn files, which causes an error
and never a wrong value. A crash of processes does no harm.
"""

from __future__ import annotations

from state_backends.delta.factory import open_backend
from state_backends.delta.spark_session import session_conf

__all__ = ["open_backend", "session_conf"]
