"""Pickling of user code; the only file of the planning that does it.

A bolt may be defined in ``__main__`` or in a notebook cell, so it travels by value where its
module cannot be imported: that is what cloudpickle is for, and PySpark ships one. What is pickled
here goes from the driver to its own workers and back, never into a store or ZooKeeper.
"""

from __future__ import annotations

import pickle
from typing import Any


def dumps(value: object) -> bytes:
    """Pickle an object, its class too if that cannot be imported elsewhere."""
    from pyspark import cloudpickle

    pickled: bytes = cloudpickle.dumps(value)  # type: ignore[no-untyped-call]
    return pickled


def loads(pickled: bytes) -> Any:
    """Return a fresh copy of what :func:`dumps` took."""
    return pickle.loads(pickled)  # noqa: S301 - made by this program's own driver or workers


def pack(value: object) -> bytes:
    """Pickle an object of txtopo's own; ten times faster than :func:`dumps`."""
    return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
