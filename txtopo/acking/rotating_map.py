"""RotatingMap: entries that expire by cohort (Storm ``RotatingMap``), in columns.

Entries lie in *buckets* by age: a put moves its key to the newest bucket, ``rotate`` drops the
oldest one and starts a new one. With n buckets and a rotation every T seconds an entry lives for
more than (n - 1) T and at most n T seconds after its last put.

Storm has one hash map a bucket; here is one table for all of them, with the bucket as a column. A
million trees as Python objects would take some 300 bytes each, as columns they take about a
hundred, with the free places of the table, and a call handles thousands of keys at once. The table
is one array of keys with linear probing: a key is sought from its hash on until a free place comes.
A place whose entry is gone stays marked, so that those behind it are still found; when free places
get scarce all entries are laid out anew.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from txtopo.acking.tuple_tree import Column, Rows

# The states of a place; from _FIRST_BUCKET on it holds an entry of that bucket.
_FREE = 0
_GONE = 1
_FIRST_BUCKET = 2
# Longer tables are fuller of free places, and fuller ones longer to search.
_FULL_SHARE = 0.6
_PLACES_MIN = 64
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(32)

Places = Rows
"""Where entries lie; good until the next ``put`` or ``rotate``."""


class RotatingMap:
    """Entries by 64-bit key, in columns, that expire by cohort. Used by one thread.

    Args:
        buckets: How many cohorts there are; two at the least.
        columns: The columns of an entry with their types.

    Raises:
        ValueError: There are fewer than two buckets.
    """

    def __init__(self, buckets: int, columns: Mapping[str, npt.DTypeLike] | None = None) -> None:
        if not 2 <= buckets <= 250:
            raise ValueError(f"a rotating map has from 2 to 250 buckets; got {buckets}")
        self._buckets = buckets
        self._newest = 0
        self._entries = 0
        self._used = 0
        self._allocate(
            _PLACES_MIN, {name: np.dtype(kind) for name, kind in (columns or {}).items()}
        )

    def __len__(self) -> int:
        return self._entries

    def __iter__(self) -> Iterator[int]:
        """Yield all keys."""
        return iter(self._keys[self._state >= _FIRST_BUCKET].tolist())

    @property
    def nbytes(self) -> int:
        """Bytes that the table takes, without the objects that it refers to."""
        columns = sum(column.nbytes for column in self._columns.values())
        return columns + self._keys.nbytes + self._state.nbytes

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """Return a column, to be read and written at places; another one after a ``put``."""
        return self._columns[name]

    def find(self, keys: Column) -> Places:
        """Return the place of each key, -1 for one that is not there."""
        found = np.full(len(keys), -1, dtype=np.int64)
        at = self._first(keys)
        seeking = np.arange(len(keys))
        while len(seeking):
            state, here = self._state[at], self._keys[at]
            hit = (state >= _FIRST_BUCKET) & (here == keys[seeking])
            found[seeking[hit]] = at[hit]
            more = ~hit & (state != _FREE)
            seeking, at = seeking[more], (at[more] + 1) & self._mask
        return found

    def put(self, keys: Column) -> Places:
        """Move keys to the newest bucket, those that are new with zeros in their columns.

        Args:
            keys: Distinct keys.

        Returns:
            The place of each.
        """
        places = self.find(keys)
        new = places < 0
        missing = int(np.count_nonzero(new))
        if missing:
            if self._used + missing > _FULL_SHARE * len(self._keys):
                self._lay_out(self._entries + missing)
                places = self.find(keys)
            places[new] = self._add(keys[new])
        self._state[places] = _FIRST_BUCKET + self._newest
        return places

    def remove(self, places: Places) -> None:
        """Remove the entries at distinct places."""
        self._state[places] = _GONE
        self._entries -= len(places)
        for column in self._columns.values():
            # So that a new entry finds zeros, and no object outlives its entry.
            column[places] = None if column.dtype.hasobject else 0

    def rotate(self) -> Places:
        """Start a new bucket in place of the oldest one.

        Returns:
            The places of the entries of the oldest one. Read what you need of them, and remove
            them: they are in the newest bucket else.
        """
        self._newest = (self._newest + 1) % self._buckets
        return np.flatnonzero(self._state == _FIRST_BUCKET + self._newest)

    def buckets(self) -> list[dict[int, int]]:
        """Return what lies where: for each bucket, newest first, its keys with their places."""
        found = []
        for age in range(self._buckets):
            bucket = (self._newest - age) % self._buckets
            places = np.flatnonzero(self._state == _FIRST_BUCKET + bucket)
            found.append(dict(zip(self._keys[places].tolist(), places.tolist(), strict=True)))
        return found

    def keys_at(self, places: Places) -> Column:
        """Return the keys at places."""
        return self._keys[places]

    def _first(self, keys: Column) -> Rows:
        return ((keys * _SPREAD) >> _SHIFT).astype(np.int64) & self._mask

    def _add(self, keys: Column) -> Places:
        """Add distinct keys that are not there; who meets another on a place goes on."""
        places = np.empty(len(keys), dtype=np.int64)
        at = self._first(keys)
        seeking = np.arange(len(keys))
        while len(seeking):
            open_ = self._state[at] < _FIRST_BUCKET
            # The last one who writes its key to a place gets it.
            self._keys[at[open_]] = keys[seeking[open_]]
            got = open_ & (self._keys[at] == keys[seeking])
            won = at[got]
            self._used += int(np.count_nonzero(self._state[won] == _FREE))
            self._state[won] = _FIRST_BUCKET + self._newest
            places[seeking[got]] = won
            seeking, at = seeking[~got], (at[~got] + 1) & self._mask
        self._entries += len(keys)
        return places

    def _lay_out(self, entries: int) -> None:
        """Move all entries to a table that has room for so many and as many again by half."""
        size = len(self._keys)
        while entries * 1.2 > _FULL_SHARE * size:
            size *= 2
        full = np.flatnonzero(self._state >= _FIRST_BUCKET)
        keys, state = self._keys[full], self._state[full]
        kept = {name: column[full] for name, column in self._columns.items()}
        self._allocate(size, {name: column.dtype for name, column in self._columns.items()})
        self._used = self._entries = 0
        places = self._add(keys)
        self._state[places] = state
        for name, column in kept.items():
            self._columns[name][places] = column

    def _allocate(self, size: int, columns: Mapping[str, np.dtype[np.generic]]) -> None:
        self._mask = size - 1
        self._keys: Column = np.zeros(size, dtype=np.uint64)
        self._state = np.zeros(size, dtype=np.uint8)
        self._columns = {
            name: np.full(size, None) if kind.hasobject else np.zeros(size, dtype=kind)
            for name, kind in columns.items()
        }
