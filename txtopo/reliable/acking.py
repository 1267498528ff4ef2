"""Acking: whether each tree of tuples is complete, failed or timed out. No I/O, no clock.

Theory of operation
-------------------
A spout tuple with a message id is the *root* of a tree. Each copy of a tuple that is delivered to a
task is an *edge* with a random 64-bit id, one for each tree that the tuple belongs to. An id is
XORed into the tree's value twice: when the edge is made, and when the task acks it. So the value is
0 once every edge was acked, in any order. Before that it is 0 with a probability of 1 in 2^64.

New edges are reported to the acker together with the ack of their input: the ack of an input is
*its own id XOR the ids of all edges anchored to it*. So the value cannot reach 0 before the last
edge is acked, even when acks overtake each other.

Nothing here is done per tuple: ids are drawn for a whole column (8 ns each), and messages to an
acker are first merged to one XOR per root (:func:`merged`, 10 ns each). In Python, an id per tuple
would cost more than counting a word does.

Rules
-----
1. A tree ends only after its ``init``, though acks and fails may come before it.
2. A tree ends once. It is *completed* when its value is 0, even if a bolt failed it as well;
   otherwise it is *failed* when a bolt failed it.
3. A tree times out between one and two timeouts after it began or was given more time. Acks do not
   give it more time.
4. An acker forgets a tree that is not given more time, whether it began or not. So messages that
   arrive after the end of a tree do not fill the memory.
5. The root alone determines the slot of its spout, its acker, and the slot of that acker
   (:class:`Ackers`).

So every slot knows where to send an ack. A spout's list of pending trees and its acker may be in
two slots. If the slot of the spout is lost, the sources deliver their messages again. If only the
acker is lost, its trees time out.

``rotate`` is called once every message timeout. :class:`PendingTrees` has two buckets, and an
:class:`Acker` three, as in Storm.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.uint64]

NONE: Column = np.empty(0, dtype=np.uint64)
NONE.setflags(write=False)

Rows = npt.NDArray[np.int64]

Places = Rows
"""Positions of entries in a table; valid until the next ``put`` or ``rotate``."""

ACKER_BUCKETS = 3

SPOUT_BUCKETS = 2

_BEGUN = np.uint8(1)

_FAILED = np.uint8(2)

# The states of a place in a table; from _FIRST_BUCKET on it holds an entry of that bucket.
_FREE = 0

_GONE = 1

_FIRST_BUCKET = 2

# A longer table wastes more places; a fuller one takes longer to search.
_FULL_SHARE = 0.6

_PLACES_MIN = 64

_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_SHIFT = np.uint64(32)


@dataclass(frozen=True, slots=True)
class Ackers:
    """The ackers of a topology: which of them follows a tree, and in which slot.

    Roots are drawn so that *root mod slots* is the slot of their spout. The rest of a root is
    random and determines its acker. Acker *a* is in slot *a mod spout slots*.

    Attributes:
        slots: The number of slots.
        spout_slots: The number of slots with spouts: 0 to *spout_slots* - 1.
        wanted: ``AtLeastOnceConfig.ackers``. None: each slot with spouts has the acker of their
            trees.
    """

    slots: int
    spout_slots: int
    wanted: int | None = None

    @property
    def count(self) -> int:
        """The number of ackers, which are numbered from 0."""
        return self.spout_slots if self.wanted is None else self.wanted

    def in_slot(self, slot: int) -> range:
        """Return the numbers of the ackers in a slot."""
        return range(slot if slot < self.spout_slots else self.count, self.count, self.spout_slots)

    def slot_of(self, acker: int) -> int:
        """Return the slot of an acker."""
        return acker % self.spout_slots

    def spouts_of(self, roots: Column) -> Column:
        """Return the slot of the spout of each tree."""
        return roots % np.uint64(self.slots)

    def of(self, roots: Column) -> Column:
        """Return the number of the acker of each tree."""
        if self.wanted is None:
            return self.spouts_of(roots)
        return roots // np.uint64(self.slots) % np.uint64(self.wanted)

    def slots_of(self, roots: Column) -> Column:
        """Return the slot of the acker of each tree."""
        return self.of(roots) % np.uint64(self.spout_slots)


class PendingTrees:
    """The pending trees of the spout tasks of a slot. Used by one thread.

    Args:
        owners: The number of spout tasks; a tree is owned by the task that emitted its root.
    """

    def __init__(self, owners: int) -> None:
        self._pending = RotatingMap(
            SPOUT_BUCKETS, {"owner": np.int32, "message": object, "started_s": np.float64}
        )
        self.by_owner: npt.NDArray[np.int64] = np.zeros(owners, dtype=np.int64)
        """The number of pending trees of each owner."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def nbytes(self) -> int:
        """The size of the trees in bytes, without the message ids themselves."""
        return self._pending.nbytes

    def begin(self, owner: int, roots: Column, messages: Sequence[Any], now_s: float) -> None:
        """Begin trees of an owner."""
        places = self._pending.put(roots)
        self._column("owner")[places] = owner
        # Message ids may be tuples, which numpy would otherwise take for rows.
        self._column("message")[places] = np.fromiter(messages, object, len(messages))
        self._column("started_s")[places] = now_s
        self.by_owner[owner] += len(places)

    def end(self, roots: Column) -> EndedTrees:
        """Remove and return the trees of distinct roots; ignore roots that are not pending."""
        places = self._pending.find(roots)
        return self._take(places[places >= 0])

    def renew(self, roots: Column) -> None:
        """Give trees that are still pending a new timeout."""
        wanted = np.unique(roots)
        self._pending.put(wanted[self._pending.find(wanted) >= 0])

    def rotate(self) -> EndedTrees:
        """Advance by one timeout; return the trees that timed out."""
        return self._take(self._pending.rotate())

    def _take(self, places: Places) -> EndedTrees:
        roots = self._pending.keys_at(places)
        owners = self._column("owner")[places]
        messages = self._column("message")[places].tolist()
        taken = EndedTrees(roots, owners, messages, self._column("started_s")[places])
        self.by_owner -= np.bincount(owners, minlength=len(self.by_owner))
        self._pending.remove(places)
        return taken

    def _column(self, name: str) -> npt.NDArray[Any]:
        return cast("npt.NDArray[Any]", self._pending.column(name))


@dataclass(frozen=True, slots=True)
class EndedTrees:
    """Trees that have ended, in no particular order.

    Attributes:
        roots: The root of each.
        owners: The spout task of each.
        messages: The message id of each.
        started_s: When each began.
    """

    roots: Column
    owners: npt.NDArray[np.int32]
    messages: list[Any]
    started_s: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.messages)


class Acker:
    """Keeps one XOR for each pending tree (Storm's ``__acker``). Used by one thread."""

    def __init__(self) -> None:
        self._trees = RotatingMap(ACKER_BUCKETS, {"value": np.uint64, "flags": np.uint8})

    def __len__(self) -> int:
        """Return the number of trees that the acker follows."""
        return len(self._trees)

    def roots(self) -> list[int]:
        """Return the roots of the trees that the acker follows."""
        return list(self._trees)

    @property
    def nbytes(self) -> int:
        """The size of the trees in bytes."""
        return self._trees.nbytes

    def init(self, begun: RootXors) -> Ended:
        """Begin trees. Trees that began earlier are left as they are.

        Args:
            begun: The roots with the XOR of the edges that the spout made; 0 if the tuple reached
                no task, which completes the tree.
        """
        places = self._trees.put(begun.roots)
        # The same XOR twice would be 0, which is a complete tree.
        new = self._flags[places] & _BEGUN == 0
        self._value[places] ^= np.where(new, begun.values, np.uint64(0))
        self._flags[places] |= _BEGUN
        return self._end(places)

    def ack(self, acked: RootXors) -> Ended:
        """Process acks, one XOR per root."""
        places = self._trees.find(acked.roots)
        unknown = places < 0
        if unknown.any():
            self._trees.put(acked.roots[unknown])
            places = self._trees.find(acked.roots)
        self._value[places] ^= acked.values
        return self._end(places)

    def fail(self, roots: Column) -> Ended:
        """Mark trees as failed."""
        places = self._trees.put(distinct(roots))
        self._flags[places] |= _FAILED
        return self._end(places)

    def reset(self, roots: Column) -> None:
        """Give trees a new timeout."""
        self._trees.put(distinct(roots))

    def rotate(self) -> None:
        """Forget the trees of the oldest bucket."""
        self._trees.remove(self._trees.rotate())

    @property
    def _value(self) -> npt.NDArray[np.uint64]:
        return cast("npt.NDArray[np.uint64]", self._trees.column("value"))

    @property
    def _flags(self) -> npt.NDArray[np.uint8]:
        return cast("npt.NDArray[np.uint8]", self._trees.column("flags"))

    def _end(self, places: Places) -> Ended:
        flags = self._flags[places]
        begun = flags & _BEGUN != 0
        complete = begun & (self._value[places] == 0)
        failed = begun & ~complete & (flags & _FAILED != 0)
        ended = Ended(self._trees.keys_at(places[complete]), self._trees.keys_at(places[failed]))
        self._trees.remove(places[complete | failed])
        return ended


class Ended(NamedTuple):
    """Trees that have ended; each is named once."""

    completed: Column = NONE
    failed: Column = NONE


class RotatingMap:
    """Entries by 64-bit key that expire by age (Storm ``RotatingMap``). Used by one thread.

    Entries are in *buckets* by age: a put moves its key to the newest bucket; ``rotate`` drops the
    oldest bucket and starts a new one. With n buckets and a rotation every T seconds an entry lives
    for more than (n - 1) T and at most n T seconds after its last put.

    Storm has a hash map for each bucket. Here one table holds all entries, in columns, with the
    bucket as a column. A million trees take some 300 bytes each as Python objects; as columns they
    take about a hundred, including the free places of the table, and one call handles thousands of
    keys. The table is an array of keys with linear probing: the search for a key starts at its hash
    and ends at the first free place. The place of a removed entry stays marked, so that the entries
    after it are still found. When free places become scarce, the table is rebuilt.

    Args:
        buckets: The number of buckets, from 2 to 250.
        columns: The columns of an entry with their types.

    Raises:
        ValueError: The number of buckets is outside that range.
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
        """The size of the table in bytes, without the objects that it refers to."""
        columns = sum(column.nbytes for column in self._columns.values())
        return columns + self._keys.nbytes + self._state.nbytes

    def column(self, name: str) -> npt.NDArray[np.generic]:
        """Return a column, to read and write at places; valid until the next ``put``."""
        return self._columns[name]

    def find(self, keys: Column) -> Places:
        """Return the place of each key, -1 for a missing one."""
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
        """Move keys to the newest bucket; a new key gets an entry with zeros in its columns.

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
            # A new entry must start with zeros, and no object may outlive its entry.
            column[places] = None if column.dtype.hasobject else 0

    def rotate(self) -> Places:
        """Start a new bucket in place of the oldest one.

        Returns:
            The places of the entries of the oldest bucket. Read them, then remove them; otherwise
            they become part of the newest bucket.
        """
        self._newest = (self._newest + 1) % self._buckets
        return np.flatnonzero(self._state == _FIRST_BUCKET + self._newest)

    def buckets(self) -> list[dict[int, int]]:
        """Return the keys of each bucket with their places, the newest bucket first."""
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
        """Add distinct new keys. If several reach a place, one takes it, the others move on."""
        places = np.empty(len(keys), dtype=np.int64)
        at = self._first(keys)
        seeking = np.arange(len(keys))
        while len(seeking):
            open_ = self._state[at] < _FIRST_BUCKET
            # The last key that is written to a place gets it.
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
        """Move all entries to a table that has room for more than *entries*."""
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


class RootXors(NamedTuple):
    """Distinct roots, each with one XOR.

    Attributes:
        roots: The roots.
        values: The XOR that is applied to the value of each.
    """

    roots: Column = NONE
    values: Column = NONE


def merged(roots: Column, values: Column) -> RootXors:
    """Return one XOR per root; *roots* may be in any order and repeat a root."""
    # Most values of a root are side by side, and sorting costs more than all the rest.
    runs = _runs(roots, values)
    order = np.argsort(runs.roots)
    ordered = _runs(runs.roots[order], runs.values[order])
    return runs if len(ordered.roots) == len(runs.roots) else ordered


def joined(parts: Iterable[RootXors]) -> RootXors:
    """Merge several lists of XORs into one, with one XOR per root."""
    listed = [part for part in parts if len(part.roots)]
    if not listed:
        return RootXors()
    if len(listed) == 1:
        return listed[0]
    return merged(
        np.concatenate([part.roots for part in listed]),
        np.concatenate([part.values for part in listed]),
    )


def _runs(roots: Column, values: Column) -> RootXors:
    """Return one XOR for each run of equal roots."""
    if len(roots) < 2:
        return RootXors(roots, values)
    starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
    if len(starts) == len(roots):
        return RootXors(roots, values)
    return RootXors(roots[starts], np.bitwise_xor.reduceat(values, starts))


def distinct(roots: Column) -> Column:
    """Return each root once."""
    return roots if len(roots) < 2 else np.unique(roots)


def spans(starts: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Return the links of some rows; row r has the links ``starts[r]`` to ``starts[r + 1]``.

    Returns:
        (position in *rows*, link) of each link, in the order of *rows*.
    """
    counts = starts[rows + 1] - starts[rows]
    position = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return position, starts[rows][position] + np.arange(len(position)) - first
