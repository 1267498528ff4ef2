"""Various topologies, each with a fold in plain Python of the states that it must leave."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.harness.runs import Contents, Storage
from tests.services.integration.bolts import (
    WORDS,
    AddUp,
    ArrowMultiply,
    ArrowSumByKey,
    BatchCount,
    CountUnder,
    Multiply,
    OddToBothEnds,
    PageBolt,
    PageCommitter,
    Router,
    SumByKey,
    Tell,
)
from txtopo import PersistentAggregate, Topology, TransactionalTopologyBuilder
from txtopo.builders import BoltDeclarer
from txtopo.spouts import (
    MemoryTransactionalSpout,
    OpaqueMemoryTransactionalSpout,
    Outage,
    Recut,
)
from txtopo.state import Count, Max, Min, Sum

TAKE = 4
BATCHES = 5
Row = tuple[str, int]


def _rows(seed: int, number: int) -> list[Row]:
    chance = Random(seed)
    return [(chance.choice("abcdefg"), chance.randrange(10)) for _ in range(number)]


# Partitions of different lengths; the second one is used up before the others.
DATA: dict[int, list[Row]] = {0: _rows(1, 20), 1: _rows(2, 7), 2: _rows(3, 17)}
ROWS = [row for rows in DATA.values() for row in rows]


@dataclass(frozen=True, slots=True)
class Story:
    """A topology and what it must leave behind.

    Attributes:
        build: Makes it in a storage, with a parallelism.
        fold: What its states must hold then, for that parallelism.
        opaque: Whether its spout is opaque, so that its states must be.
        in_tasks: Whether its commit phase runs in tasks when the parallelism is above 1.
    """

    build: Callable[[Storage, int], Topology]
    fold: Callable[[int], Contents]
    opaque: bool = False
    in_tasks: bool = False


def builder(id: str, parallelism: int) -> TransactionalTopologyBuilder:
    """Begin a topology over the words."""
    spout = MemoryTransactionalSpout(DATA, WORDS, TAKE)
    return TransactionalTopologyBuilder(id, "spout", spout, parallelism)


def sums(rows: list[Row], factor: int = 1) -> dict[Any, Any]:
    """Return the sum of the amounts by word."""
    found: Counter[str] = Counter()
    for word, amount in rows:
        found[word] += amount * factor
    return dict(found)


def global_count(storage: Storage, parallelism: int) -> Topology:
    """The example of Storm's transactional topologies."""
    topology = builder("global-count", parallelism)
    topology.set_bolt("partial", BatchCount(), parallelism).shuffle_grouping("spout")
    topology.set_bolt("sum", AddUp()).global_grouping("partial").with_state(
        "totals", storage.state("totals")
    )
    return topology.build_topology()


def keyed_aggregates(storage: Storage, parallelism: int) -> Topology:
    """All four aggregates by key, and a count over everything."""
    aggregates = {
        "rows": Count(),
        "total": Sum("amount"),
        "least": Min("amount"),
        "most": Max("amount"),
    }
    topology = builder("keyed-aggregates", parallelism)
    keyed = PersistentAggregate(storage.state("keyed"), "word", aggregates)
    topology.set_bolt("keyed", keyed, parallelism).fields_grouping("spout", "word")
    overall = PersistentAggregate(storage.state("overall"), (), Count())
    topology.set_bolt("overall", overall).shuffle_grouping("spout")
    return topology.build_topology()


def keyed_fold() -> Contents:
    """Return the fold of :func:`keyed_aggregates`."""
    amounts: dict[Any, list[int]] = {}
    for word, amount in ROWS:
        amounts.setdefault(word, []).append(amount)
    keyed = {
        word: {"rows": len(all), "total": sum(all), "least": min(all), "most": max(all)}
        for word, all in amounts.items()
    }
    return {"keyed": keyed, "overall": {"global": len(ROWS)}}


def own_committer(storage: Storage, parallelism: int) -> Topology:
    """A committer of the user's whose tasks write different keys."""
    topology = builder("own-committer", parallelism)
    topology.set_bolt("sums", SumByKey(), parallelism).fields_grouping("spout", "word").with_state(
        "sums", storage.state("sums")
    )
    return topology.build_topology()


def diamond(storage: Storage, parallelism: int) -> Topology:
    """Three ways of different lengths that meet: what is sent further passes through."""
    topology = builder("diamond", parallelism)
    topology.set_bolt("double", Multiply(2), parallelism).shuffle_grouping("spout")
    topology.set_bolt("six", Multiply(3), parallelism).fields_grouping("double", "word")
    joined = topology.set_bolt("sums", SumByKey(), parallelism)
    for source in ("spout", "double", "six"):
        joined.fields_grouping(source, "word")
    joined.with_state("sums", storage.state("sums"))
    return topology.build_topology()


def eight_groupings(storage: Storage, parallelism: int) -> Topology:
    """One bolt behind each grouping; the ninth, direct, is in :func:`streams`."""
    topology = builder("eight-groupings", parallelism)

    def count(name: str, *, words: bool = False) -> BoltDeclarer:
        return topology.set_bolt(name, CountUnder(name, words=words), parallelism)

    count("shuffle").shuffle_grouping("spout")
    count("fields", words=True).fields_grouping("spout", "word")
    count("global", words=True).global_grouping("spout")
    count("all", words=True).all_grouping("spout")
    count("none").none_grouping("spout")
    count("local").local_or_shuffle_grouping("spout")
    count("partial-key").partial_key_grouping("spout", "word")
    count("custom").custom_grouping("spout", OddToBothEnds())
    committer = topology.set_bolt("sums", SumByKey())
    for name in ("shuffle", "fields", "global", "all", "none", "local", "partial-key", "custom"):
        committer.global_grouping(name)
    committer.with_state("sums", storage.state("sums"))
    return topology.build_topology()


def groupings_fold(parallelism: int) -> Contents:
    """Return the fold of :func:`eight_groupings`."""
    rows, odd = len(ROWS), sum(amount % 2 for _, amount in ROWS)
    words = sum(len({word for word, _ in batch}) for batch in batches())
    counts = dict.fromkeys(("shuffle", "fields", "global", "none", "local", "partial-key"), rows)
    counts |= {"all": rows * parallelism, "custom": odd * min(parallelism, 2)}
    counts |= {"words of fields": words, "words of global": words}
    counts |= {"words of all": words * parallelism}
    return {"sums": dict(counts)}


def batches() -> list[list[Row]]:
    """Return the rows of each batch of the memory spout."""
    return [
        [row for rows in DATA.values() for row in rows[at * TAKE : (at + 1) * TAKE]]
        for at in range(BATCHES)
    ]


def streams(storage: Storage, parallelism: int) -> Topology:
    """Several streams of one bolt, one of them direct."""
    topology = builder("streams", parallelism)
    topology.set_bolt("router", Router(), parallelism).shuffle_grouping("spout")
    tell = topology.set_bolt("tell", Tell(), parallelism)
    tell.shuffle_grouping("router").fields_grouping("router", "word", stream="odd")
    tell.direct_grouping("router", stream="picked")
    committer = topology.set_bolt("sums", SumByKey(), parallelism).fields_grouping("tell", "name")
    committer.with_state("sums", storage.state("sums"))
    return topology.build_topology()


def streams_fold() -> Contents:
    """Return the fold of :func:`streams`."""
    odd = sum(amount for _, amount in ROWS if amount % 2)
    total = sum(amount for _, amount in ROWS)
    tally = {"odd": odd, "default": total - odd, "picked": total, "right": len(ROWS)}
    return {"sums": tally}


def arrow(storage: Storage, parallelism: int) -> Topology:
    """Bolts and a committer that work on columns."""
    topology = builder("arrow", parallelism)
    topology.set_bolt("triple", ArrowMultiply(3), parallelism).local_or_shuffle_grouping("spout")
    committer = topology.set_bolt("sums", ArrowSumByKey(), parallelism)
    committer.fields_grouping("triple", "word").with_state("sums", storage.state("sums"))
    return topology.build_topology()


def storms_page(storage: Storage, parallelism: int) -> Topology:
    """Bolts A to D of Storm's page: B and D commit; C and D hang below B."""
    topology = builder("storms-page", parallelism)
    topology.set_bolt("A", PageBolt(), parallelism).shuffle_grouping("spout")
    committer = topology.set_bolt("B", PageCommitter()).global_grouping("A")
    # D hangs below, so what B reads must be the same in a replay.
    committer.with_state("seen", replace(storage, kind="opaque").state("seen_by_b"))
    below = topology.set_bolt("C", PageBolt(), parallelism)
    below.shuffle_grouping("A").shuffle_grouping("B")
    last = topology.set_bolt("D", PageCommitter()).global_grouping("B").global_grouping("C")
    last.with_state("seen", storage.state("seen_by_d"))
    return topology.build_topology()


def opaque(storage: Storage, parallelism: int) -> Topology:
    """A spout with outages and empty batches, counted by word by a committer and an aggregate."""
    script: list[Outage | Recut] = [Outage(0, 2), Outage(1, 1), Recut(3, 0, 0), Recut(4, 0, 9, 2)]
    spout = OpaqueMemoryTransactionalSpout(DATA, WORDS, TAKE, script)
    topology = TransactionalTopologyBuilder("opaque", "spout", spout, parallelism)
    topology.set_bolt("sums", SumByKey(), parallelism).fields_grouping("spout", "word").with_state(
        "sums", storage.state("sums")
    )
    overall = PersistentAggregate(storage.state("overall"), (), Count())
    topology.set_bolt("overall", overall).shuffle_grouping("spout")
    return topology.build_topology()


def page_fold() -> Contents:
    """Return the fold of :func:`storms_page`: each committer was finished once a batch."""
    rows = len(ROWS)
    return {
        "seen_by_b": {"A": rows, "finished": BATCHES},
        "seen_by_d": {"B": rows, "C": 2 * rows, "finished": BATCHES},
    }


ZOO: dict[str, Story] = {
    "global count": Story(global_count, lambda _: {"totals": {"global": len(ROWS)}}),
    "keyed aggregates": Story(keyed_aggregates, lambda _: keyed_fold()),
    "own committer": Story(own_committer, lambda _: {"sums": sums(ROWS)}, in_tasks=True),
    "diamond": Story(diamond, lambda _: {"sums": sums(ROWS, 1 + 2 + 6)}, in_tasks=True),
    "streams": Story(streams, lambda _: streams_fold(), in_tasks=True),
    "groupings": Story(eight_groupings, groupings_fold),
    "storm's page": Story(storms_page, lambda _: page_fold(), in_tasks=True),
    "arrow": Story(arrow, lambda _: {"sums": sums(ROWS, 3)}, in_tasks=True),
    "opaque": Story(
        opaque,
        lambda _: {"sums": sums(ROWS), "overall": {"global": len(ROWS)}},
        opaque=True,
        in_tasks=True,
    ),
}
