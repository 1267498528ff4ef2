"""The events of NEXMark: persons who register, auctions that they open, bids on these.

Events have numbers from 0, and each event follows from its number and the seed alone. So any range
of them can be made at any time, in any process, and is the same again: a replay needs nothing that
was stored.

What is as in the original (the generator of Apache Beam, which github.com/nexmark/nexmark has for
Flink), with its defaults:

* Of 50 events that follow each other the first is a person, three are auctions, 46 are bids. Ids
  count from 1000.
* Event times follow from the number and a rate, in whole milliseconds, from 2015-07-15 on.
* Three of four auctions are of a *hot* seller, the first of the last 100 persons; every other bid
  is on a hot auction, the first of the last 100; three of four are by a hot bidder, the second of
  the last 100 persons. The others choose among the last 1,000 persons and 100 auctions, or one of
  the 10 that come next, so a bid may come before its auction, and an auction before its seller.
* An auction is open for as long as about 100 more need to open, at random up to twice of that.
* Prices are 100 to 100,000,000 cents, evenly on a logarithmic scale. Rows are filled up with
  ``extra``, to about 200, 500 and 100 bytes.

What is not:

* Random numbers are a hash of seed, number of the event and column, made for a whole range at once;
  the original draws them one after the other, and without a seed.
* A share of the events is *delayed*: its time is up to some seconds before its turn. Beam had that
  in its settings; the generator for Flink permutes groups of events instead.
* A bid has an ``id``, the number of its event, since a table needs a key.
* Columns are named in the way of SQL: ``date_time`` is ``dateTime`` there.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo import Fields

Kind = Literal["persons", "auctions", "bids"]
Numbers = Any
"""A numpy array of whole numbers."""

FIELDS: Mapping[Kind, Fields] = {
    "persons": Fields(
        "id long, name string, email string, credit_card string, city string, state string, "
        "date_time timestamp, extra string"
    ),
    "auctions": Fields(
        "id long, item_name string, description string, initial_bid long, reserve long, "
        "date_time timestamp, expires timestamp, seller long, category long, extra string"
    ),
    "bids": Fields(
        "id long, auction long, bidder long, price long, channel string, url string, "
        "date_time timestamp, extra string"
    ),
}
"""The columns of each kind of event."""

PERSONS, AUCTIONS, TOTAL = 1, 3, 50
"""How many of ``TOTAL`` consecutive events are persons and auctions; the rest are bids."""

FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT, HOT_SELLERS, HOT_AUCTIONS, HOT_BIDDERS = 100, 4, 2, 4
ACTIVE_PERSONS, OPEN_AUCTIONS, LEAD = 1000, 100, 10

START = datetime.datetime(2015, 7, 15, tzinfo=datetime.UTC)
START_MS = int(START.timestamp() * 1000)

STATES = pa.array(["AZ", "CA", "ID", "OR", "WA", "WY"])
CITIES = pa.array(
    [
        "Phoenix",
        "Los Angeles",
        "San Francisco",
        "Boise",
        "Portland",
        "Bend",
        "Redmond",
        "Seattle",
        "Kent",
        "Cheyenne",
    ]
)
FIRST_NAMES = pa.array(
    ["Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"]
)
LAST_NAMES = pa.array(
    ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
)
CHANNELS = pa.array(
    ["Google", "Facebook", "Baidu", "Apple"] * 2500 + [f"channel-{at}" for at in range(10_000)]
)
URLS = pa.array(
    [f"https://www.nexmark.com/item.htm?query=1&channel_id={at}" for at in range(10_000)]
)
DIGITS = pa.array([f"{number:04}" for number in range(10_000)])


@dataclass(frozen=True, slots=True)
class Generator:
    """Makes the events of a range of numbers.

    Attributes:
        events: How many there are.
        rate: Events a second of event time.
        seed: What all random numbers follow from.
        delayed: The share of the events whose time is before its turn.
        delayed_by_ms: By how much at most.

    Raises:
        ValueError: An argument is out of its range.
    """

    events: int
    rate: float = 10_000
    seed: int = 0
    delayed: float = 0.1
    delayed_by_ms: int = 3000

    def __post_init__(self) -> None:
        if self.events < 1 or self.rate <= 0:
            raise ValueError(
                f"no events to generate; got {self.events} events, {self.rate} a second; expected "
                "at least one event, and a rate above 0"
            )
        if not 0 <= self.delayed <= 1 or self.delayed_by_ms < 0:
            raise ValueError(
                f"delays are out of range; got {self.delayed} of the events by "
                f"{self.delayed_by_ms} ms; expected a share from 0 to 1, and 0 ms or more"
            )

    def rows(self, kind: Kind, numbers: Numbers) -> pa.RecordBatch:
        """Return those of some events that are of a kind.

        Args:
            kind: Persons, auctions or bids.
            numbers: The numbers of the events; those that do not exist are left out.
        """
        numbers = np.asarray(numbers, dtype=np.int64)
        numbers = numbers[(numbers >= 0) & (numbers < self.events)]
        place = numbers % TOTAL
        first, last = _PLACES[kind]
        numbers = numbers[(place >= first) & (place < last)]
        columns = _COLUMNS[kind](self, numbers)
        schema = FIELDS[kind].arrow_schema()
        arrays = [
            column.cast(type) if isinstance(column, pa.Array) else pa.array(column).cast(type)
            for column, type in zip(columns, schema.types, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def all(self, kind: Kind) -> pa.Table:
        """Return all events of a kind."""
        return pa.Table.from_batches([self.rows(kind, np.arange(self.events))])

    @property
    def longest_auction(self) -> datetime.timedelta:
        """How long an auction is open at most."""
        return datetime.timedelta(milliseconds=2 * self._horizon_ms + 1)

    @property
    def longest_wait(self) -> datetime.timedelta:
        """How far the times of a bid and its auction are apart at most."""
        events = (HOT + OPEN_AUCTIONS) * TOTAL // AUCTIONS + TOTAL
        return datetime.timedelta(milliseconds=events * 1000 / self.rate + self.delayed_by_ms + 1)

    @property
    def _horizon_ms(self) -> int:
        return max(int(OPEN_AUCTIONS * TOTAL / AUCTIONS * 1000 / self.rate), 1)

    def _persons(self, numbers: Numbers) -> Sequence[Any]:
        chance = self._chance
        named = [
            FIRST_NAMES.take(pa.array(chance(numbers, 0, len(FIRST_NAMES)))),
            LAST_NAMES.take(pa.array(chance(numbers, 1, len(LAST_NAMES)))),
        ]
        mailed = [self._text(numbers, 2, 7), self._text(numbers, 3, 5)]
        card = [DIGITS.take(pa.array(chance(numbers, at, 10_000))) for at in (4, 5, 6, 7)]
        return (
            _last_person(numbers) + FIRST_ID,
            pc.binary_join_element_wise(*named, " "),
            pc.binary_join_element_wise(
                pc.binary_join_element_wise(*mailed, "@"), pa.scalar(".com"), ""
            ),
            pc.binary_join_element_wise(*card, " "),
            CITIES.take(pa.array(chance(numbers, 8, len(CITIES)))),
            STATES.take(pa.array(chance(numbers, 9, len(STATES)))),
            self._times(numbers),
            self._text(numbers, 10, 110),
        )

    def _auctions(self, numbers: Numbers) -> Sequence[Any]:
        chance = self._chance
        times, initial = self._times(numbers), self._prices(numbers, 0)
        last = _last_person(numbers)
        hot = chance(numbers, 1, HOT_SELLERS) > 0
        seller = np.where(hot, last // HOT * HOT, self._person(numbers, 2))
        return (
            _last_auction(numbers) + FIRST_ID,
            self._text(numbers, 3, 20),
            self._text(numbers, 4, 100),
            initial,
            initial + self._prices(numbers, 5),
            times,
            _shifted(times, 1 + chance(numbers, 6, 2 * self._horizon_ms)),
            seller + FIRST_ID,
            chance(numbers, 7, CATEGORIES) + FIRST_CATEGORY,
            self._text(numbers, 8, 330),
        )

    def _bids(self, numbers: Numbers) -> Sequence[Any]:
        chance = self._chance
        last = _last_auction(numbers)
        hot = chance(numbers, 0, HOT_AUCTIONS) > 0
        oldest = np.maximum(last - OPEN_AUCTIONS, 0)
        other = oldest + chance(numbers, 1, last - oldest + 1 + LEAD)
        auction = np.where(hot, last // HOT * HOT, other)
        hot = chance(numbers, 2, HOT_BIDDERS) > 0
        famous = _last_person(numbers) // HOT * HOT + 1
        bidder = np.where(hot, famous, self._person(numbers, 3))
        channel = chance(numbers, 4, len(CHANNELS))
        return (
            numbers,
            auction + FIRST_ID,
            bidder + FIRST_ID,
            self._prices(numbers, 5),
            CHANNELS.take(pa.array(channel)),
            URLS.take(pa.array(channel % len(URLS))),
            self._times(numbers),
            self._text(numbers, 6, 30),
        )

    def _times(self, numbers: Numbers) -> pa.Array:
        """Return event times; some are before their turn."""
        turn = (numbers * 1000 / self.rate).astype(np.int64)
        late = self._chance(numbers, 90, 1_000_000) < self.delayed * 1_000_000
        back = self._chance(numbers, 91, self.delayed_by_ms) + 1 if self.delayed_by_ms else 0
        return _times(START_MS + turn - np.where(late, back, 0))

    def _person(self, numbers: Numbers, column: int) -> Numbers:
        known = _last_person(numbers) + 1
        active = np.minimum(known, ACTIVE_PERSONS)
        return known - active + self._chance(numbers, column, active + LEAD)

    def _prices(self, numbers: Numbers, column: int) -> Numbers:
        exponent = self._chance(numbers, column, 1 << 53) / (1 << 53) * 6
        return np.round(10.0**exponent * 100).astype(np.int64)

    def _text(self, numbers: Numbers, column: int, length: int) -> pa.Array:
        """Return one of a thousand texts of about a length for each event."""
        pool = _texts(length)
        return pool.take(pa.array(self._chance(numbers, column, len(pool))))

    def _chance(self, numbers: Numbers, column: int, below: Any) -> Numbers:
        """Return random whole numbers from 0 on, the same ones for the same event and column."""
        with np.errstate(over="ignore"):
            mixed = numbers.astype(np.uint64) + np.uint64(1)
            mixed *= np.uint64(0x9E3779B97F4A7C15)
            mixed += np.uint64(
                (self.seed * 0x632BE59BD9B4E019 + column * 0xD1342543DE82EF95) % 2**64
            )
            # The finishing steps of SplitMix64.
            mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            mixed ^= mixed >> np.uint64(31)
        return (mixed % np.asarray(below, dtype=np.uint64)).astype(np.int64)


def _last_person(numbers: Numbers) -> Numbers:
    """Return the newest person when an event happens, counted from 0."""
    return numbers // TOTAL


def _last_auction(numbers: Numbers) -> Numbers:
    """Return the newest auction when an event happens, counted from 0."""
    round, place = numbers // TOTAL, numbers % TOTAL
    return round * AUCTIONS + np.clip(place - PERSONS, -1, AUCTIONS - 1)


def _times(milliseconds: Numbers) -> pa.Array:
    return pa.array(milliseconds, pa.int64()).cast(pa.timestamp("ms", tz="UTC"))


def _shifted(times: pa.Array, by_ms: Numbers) -> pa.Array:
    return _times(times.cast(pa.int64()).to_numpy() + by_ms)


def _texts(length: int) -> pa.Array:
    if length not in _POOLS:
        letters = np.random.default_rng(length)
        sizes = letters.integers(round(length * 0.8), round(length * 1.2) + 1, 1000)
        _POOLS[length] = pa.array(
            [bytes(letters.integers(97, 123, size, dtype=np.uint8)).decode() for size in sizes]
        )
    return _POOLS[length]


_POOLS: dict[int, pa.Array] = {}
_PLACES: Mapping[Kind, tuple[int, int]] = {
    "persons": (0, PERSONS),
    "auctions": (PERSONS, PERSONS + AUCTIONS),
    "bids": (PERSONS + AUCTIONS, TOTAL),
}
_COLUMNS: Mapping[Kind, Callable[[Generator, Numbers], Sequence[Any]]] = {
    "persons": Generator._persons,
    "auctions": Generator._auctions,
    "bids": Generator._bids,
}
