"""Acker: which trees of tuples are complete or failed. No I/O, no clock.

What it is told, in any order and from anybody who makes edges:

* ``init(roots, xors)``: these trees have begun; the XOR of the edges that the spout made.
* ``ack(xors)``: inputs were acked; for each root the XOR of their ids and of the edges made below.
* ``fail(roots)``: a bolt failed a tuple of these trees.
* ``reset(roots)``: a bolt asks for more time.

Who tells may be overtaken, so a tree may be acked or failed before its init: it is known then, but
ends only when its init has come. Each tree ends once: *completed* when its value is 0 (even if it
was failed as well, as Storm does), else *failed*. A tree that is done is forgotten, and what comes
for it later makes an entry without an init, which never ends and expires.

``rotate`` is called every message timeout; a tree that was begun, failed or reset more than two
timeouts ago is forgotten silently: its spout has long given it up. Acks do not make it younger.

Tuple trees: 64-bit ids in columns, and one XOR that says when all of them were seen twice.

A spout tuple with a message id is the *root* of a tree. Each copy of a tuple that is delivered to a
task is an *edge* with a random id, one for each tree that it hangs in. An id is XORed into the
tree's value twice: when the edge is made and when the task acks it. So the value is 0 when every
edge was acked, whatever the order, and else it is 0 by chance once in 2^64.

Who makes edges tells the acker of them only when the input that they hang on is acked: an input's
ack is *its own id XOR the ids of all edges that were anchored to it*. Therefore the value cannot
get to 0 before the last edge is acked, even when acks overtake each other.

Nothing here is per tuple: ids are drawn for a whole column (8 ns each), and what goes to an acker
is merged to one XOR per root first (:func:`merged`, 10 ns each). In Python, an id per tuple costs
more than counting a word does.

RotatingMap: entries that expire by cohort (Storm ``RotatingMap``), in columns.

Entries lie in *buckets* by age: a put moves its key to the newest bucket, ``rotate`` drops the
oldest one and starts a new one. With n buckets and a rotation every T seconds an entry lives for
more than (n - 1) T and at most n T seconds after its last put.

Storm has one hash map a bucket; here is one table for all of them, with the bucket as a column. A
million trees as Python objects would take some 300 bytes each, as columns they take about a
hundred, with the free places of the table, and a call handles thousands of keys at once. The table
is one array of keys with linear probing: a key is sought from its hash on until a free place comes.
A place whose entry is gone stays marked, so that those behind it are still found; when free places
get scarce all entries are laid out anew.

Pending trees: what the spouts wait for, and the ackers that know when it has come. No I/O.

A tree is pending from its begin until it is complete, failed, or timed out: between one and two
timeouts after it was begun or given more time, since the list is rotated once a timeout. Whichever
comes first ends it, once; what comes later finds nothing. The ackers share the trees by *root mod
number of ackers*; one that is lost takes what it knew with it, and its trees time out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.uint64]

NONE: Column = np.empty(0, dtype=np.uint64)

Rows = npt.NDArray[np.int64]

NONE.setflags(write=False)

Places = Rows
"""Where entries lie; good until the next ``put`` or ``rotate``."""

ACKER_BUCKETS = 3

SPOUT_BUCKETS = 2

_BEGUN = np.uint8(1)

_FAILED = np.uint8(2)

# The states of a place; from _FIRST_BUCKET on it holds an entry of that bucket.
_FREE = 0

_GONE = 1

_FIRST_BUCKET = 2

# Longer tables are fuller of free places, and fuller ones longer to search.
_FULL_SHARE = 0.6

_PLACES_MIN = 64

_SPREAD = np.uint64(0x9E3779B97F4A7C15)

_SHIFT = np.uint64(32)


class PendingTrees:
    """All pending trees of a topology. Used on one thread.

    Args:
        owners: How many spout tasks there are.
        ackers: How many ackers.
        ended: Called with trees that were completed and trees that failed.
    """

    def __init__(
        self, owners: int, ackers: int, ended: Callable[[EndedTrees, EndedTrees], None]
    ) -> None:
        self._pending = RotatingMap(
            SPOUT_BUCKETS, {"owner": np.int32, "message": object, "started_s": np.float64}
        )
        self._ackers = [Acker() for _ in range(ackers)]
        self._ended = ended
        self.by_owner: npt.NDArray[np.int64] = np.zeros(owners, dtype=np.int64)
        """How many trees of each owner are pending."""

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def nbytes(self) -> int:
        """Bytes that the trees take, without the message ids themselves."""
        return self._pending.nbytes + sum(acker.nbytes for acker in self._ackers)

    def begin(self, owner: int, begun: Xors, messages: Sequence[Any], now_s: float) -> None:
        """Begin trees of an owner."""
        places = self._pending.put(begun.roots)
        self._column("owner")[places] = owner
        # Message ids may be tuples, which numpy would else take for rows.
        self._column("message")[places] = np.fromiter(messages, object, len(messages))
        self._column("started_s")[places] = now_s
        self.by_owner[owner] += len(places)
        for acker, (roots, values) in self._shared(*begun):
            self._end(acker.init(Xors(roots, values)))

    def ack(self, acked: Xors) -> None:
        """Take note of acks, one XOR per root."""
        for acker, (roots, values) in self._shared(*acked):
            self._end(acker.ack(Xors(roots, values)))

    def fail(self, roots: Column) -> None:
        """Take note of failed trees."""
        for acker, (failed,) in self._shared(roots):
            self._end(acker.fail(failed))

    def renew(self, roots: Column) -> None:
        """Give trees that are still pending a new timeout."""
        for acker, (renewed,) in self._shared(roots):
            acker.reset(renewed)
        wanted = np.unique(roots)
        self._pending.put(wanted[self._pending.find(wanted) >= 0])

    def rotate(self) -> EndedTrees:
        """Go on by one timeout; return the trees whose time is up."""
        for acker in self._ackers:
            acker.rotate()
        return self._take(self._pending.rotate())

    def forget(self, owner: int) -> int:
        """Forget the trees of an owner that is lost; return how many there were."""
        roots = np.array(list(self._pending), dtype=np.uint64)
        places = self._pending.find(roots)
        return len(self._take(places[self._column("owner")[places] == owner]))

    def lose_acker(self, acker: int) -> None:
        """Put an acker that knows nothing in place of one."""
        self._ackers[acker] = Acker()

    def _end(self, ended: Ended) -> None:
        if len(ended.completed) or len(ended.failed):
            taken = []
            for roots in ended:
                places = self._pending.find(roots)
                taken.append(self._take(places[places >= 0]))
            self._ended(*taken)

    def _take(self, places: Places) -> EndedTrees:
        owners = self._column("owner")[places]
        messages = self._column("message")[places].tolist()
        taken = EndedTrees(owners, messages, self._column("started_s")[places])
        self.by_owner -= np.bincount(owners, minlength=len(self.by_owner))
        self._pending.remove(places)
        return taken

    def _shared(self, roots: Column, *more: Column) -> list[tuple[Acker, tuple[Column, ...]]]:
        """Return for each acker its share of some columns, the roots first."""
        if not len(roots):
            return []
        if len(self._ackers) == 1:
            return [(self._ackers[0], (roots, *more))]
        which = roots % np.uint64(len(self._ackers))
        shares = []
        for at, acker in enumerate(self._ackers):
            mine = which == at
            if mine.any():
                shares.append((acker, tuple(column[mine] for column in (roots, *more))))
        return shares

    def _column(self, name: str) -> npt.NDArray[Any]:
        return cast("npt.NDArray[Any]", self._pending.column(name))


@dataclass(frozen=True, slots=True)
class EndedTrees:
    """Trees that have ended, in no order.

    Attributes:
        owners: Whose each was.
        messages: Its message id.
        started_s: When it began.
    """

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
        """Return how many trees it knows of."""
        return len(self._trees)

    @property
    def nbytes(self) -> int:
        """Bytes that they take."""
        return self._trees.nbytes

    def init(self, begun: Xors) -> Ended:
        """Begin trees, each once.

        Args:
            begun: The roots with the XOR of the edges that the spout made; 0 if the tuple reached
                no task, which completes the tree.
        """
        places = self._trees.put(begun.roots)
        self._value[places] ^= begun.values
        self._flags[places] |= _BEGUN
        return self._end(places)

    def ack(self, acked: Xors) -> Ended:
        """Take note of acks, one XOR per root."""
        places = self._trees.find(acked.roots)
        unknown = places < 0
        if unknown.any():
            self._trees.put(acked.roots[unknown])
            places = self._trees.find(acked.roots)
        self._value[places] ^= acked.values
        return self._end(places)

    def fail(self, roots: Column) -> Ended:
        """Take note that tuples of these trees were failed."""
        places = self._trees.put(distinct(roots))
        self._flags[places] |= _FAILED
        return self._end(places)

    def reset(self, roots: Column) -> None:
        """Give trees a new timeout."""
        self._trees.put(distinct(roots))

    def rotate(self) -> None:
        """Forget the trees of the oldest cohort."""
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


class Xors(NamedTuple):
    """One XOR for each of some distinct roots.

    Attributes:
        roots: The roots.
        values: What is to be XORed into the value of each.
    """

    roots: Column = NONE
    values: Column = NONE


class Ids:
    """Draws random ids, never 0, which would be an edge that nobody misses.

    Args:
        seed: What the ids follow from; two makers of ids must not share one.
    """

    def __init__(self, seed: int) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def draw(self, count: int) -> Column:
        """Return so many ids."""
        ids: Column = self._generator.integers(0, 1 << 64, count, dtype=np.uint64)
        ids[ids == 0] = 1
        return ids


def merged(roots: Column, values: Column) -> Xors:
    """Return one XOR per root of values that belong to roots in any order, doubled ones too."""
    # Most values of a root stand side by side, and to sort them costs more than all the rest.
    runs = _runs(roots, values)
    order = np.argsort(runs.roots)
    ordered = _runs(runs.roots[order], runs.values[order])
    return runs if len(ordered.roots) == len(runs.roots) else ordered


def joined(parts: Iterable[Xors]) -> Xors:
    """Return one XOR per root of several such lists."""
    listed = [part for part in parts if len(part.roots)]
    if not listed:
        return Xors()
    if len(listed) == 1:
        return listed[0]
    return merged(
        np.concatenate([part.roots for part in listed]),
        np.concatenate([part.values for part in listed]),
    )


def _runs(roots: Column, values: Column) -> Xors:
    """Return one XOR for each run of equal roots."""
    if len(roots) < 2:
        return Xors(roots, values)
    starts = np.flatnonzero(np.concatenate(([True], roots[1:] != roots[:-1])))
    if len(starts) == len(roots):
        return Xors(roots, values)
    return Xors(roots[starts], np.bitwise_xor.reduceat(values, starts))


def distinct(roots: Column) -> Column:
    """Return roots once each."""
    return roots if len(roots) < 2 else np.unique(roots)


def spans(starts: Rows, rows: Rows) -> tuple[Rows, Rows]:
    """Return the links of some rows, where row r has the links ``starts[r]`` to ``starts[r + 1]``.

    Returns:
        (position in *rows*, link) of each link, in the order of *rows*.
    """
    counts = starts[rows + 1] - starts[rows]
    position = np.repeat(np.arange(len(rows)), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    return position, starts[rows][position] + np.arange(len(position)) - first
