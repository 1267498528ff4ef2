"""What acking costs on the wire, and that each answer gets to the acker of its tree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.reliable.bolts import WORD, ByHand, Forward, rows
from txtopo import BasicBolt, Bolt, Config, OutputCollector, TopologyBuilder, Tuple
from txtopo.collector import BatchOutputCollector
from txtopo.reliable.acking import Ackers, Column, RootXors
from txtopo.reliable.anchoring.answers import TreeAnswers, is_of_trees, open_told
from txtopo.reliable.anchoring.envelope import FailedTrees, SlotReport, SpoutReport
from txtopo.reliable.anchoring.sending import Sealed
from txtopo.resident.wire import WireReport, pack_report, unpack_report
from txtopo.spouts import MemorySpout
from txtopo.testing import SimulatedCluster

IDS = st.integers(0, (1 << 64) - 1)
LIVES_BYTES = 16
"""The lives of sender and receiver go before each record on Spark."""


@given(
    st.dictionaries(IDS, IDS),
    st.lists(IDS),
    st.lists(IDS),
    st.integers(1, 5),
    st.sampled_from([None, 1, 3]),
)
def test_each_answer_gets_to_the_slot_of_its_acker(
    acked: dict[int, int], failed: list[int], renewed: list[int], slots: int, wanted: int | None
) -> None:
    ackers = Ackers(slots, slots, wanted)
    answers = TreeAnswers(
        RootXors(_column(acked), _column(acked.values())), *map(_column, (failed, renewed))
    )

    sealed = list(answers.seal(ackers))

    assert len({each.to_slot for each in sealed}) == len(sealed)
    assert all(is_of_trees(each.record) and not each.tuples for each in sealed)
    got: tuple[dict[int, int], list[int], list[int]] = ({}, [], [])
    for each in sealed:
        opened = open_told(each.record)
        assert isinstance(opened, TreeAnswers)
        of_acked, *others = opened.acked.roots.tolist(), opened.failed, opened.renewed
        got[0].update(zip(of_acked, opened.acked.values.tolist(), strict=True))
        for kept, roots in zip(got[1:], others, strict=True):
            kept += roots.tolist()
        for root in (*of_acked, *opened.failed.tolist(), *opened.renewed.tolist()):
            assert ackers.slots_of(_column([root])) == each.to_slot
    assert got[0] == acked
    assert (sorted(got[1]), sorted(got[2])) == (sorted(failed), sorted(renewed))


def _column(values: Iterable[int]) -> Column:
    return np.array(list(values), np.uint64)


class Split(BasicBolt):
    """Emits each word three times."""

    output_fields = WORD

    def execute(self, tuple: Tuple, collector: BatchOutputCollector) -> None:
        for _ in range(3):
            collector.emit([tuple["word"]])


def by_hand(collector: OutputCollector, tuple: Tuple) -> None:
    for _ in range(3):
        collector.emit([tuple["word"]], tuple)
    collector.ack(tuple)


TREES = 4_000


@pytest.mark.parametrize("split", [Split(), ByHand(by_hand)])
def test_acks_take_at_most_20_bytes_for_each_edge(
    split: Bolt | BasicBolt, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    seal = TreeAnswers.seal

    def counted(answers: TreeAnswers, ackers: Ackers) -> Iterator[Sealed]:
        for each in seal(answers, ackers):
            sizes.append(len(each.record) + LIVES_BYTES)
            yield each

    monkeypatch.setattr(TreeAnswers, "seal", counted)
    builder = TopologyBuilder()
    builder.set_spout("words", MemorySpout(rows(*map(str, range(TREES))), WORD), 2)
    builder.set_bolt("split", split, 2).shuffle_grouping("words")
    builder.set_bolt("end", Forward(), 3).fields_grouping("split", "word")
    cluster = SimulatedCluster()
    cluster.start(builder.build_topology(), Config(slots=3))
    cluster.process_all_available()

    progress = cluster.progress
    edges = sum(progress.acked_by.values())
    assert (progress.acked, edges) == (TREES, 4 * TREES)
    print(f"{sum(sizes) / edges:.1f} bytes an edge, in {len(sizes)} messages")
    assert sum(sizes) <= 20 * edges


def test_a_report_to_the_driver_has_four_bytes_for_a_tree() -> None:
    """So the driver's work is that of a report, not that of a tree."""
    report = SpoutReport(used=7, emitted=10_000)
    few = pack_report(WireReport(SlotReport(spouts=report), {}, {}))
    full = replace(report, latencies_s=np.zeros(10_000, np.float32))
    many = pack_report(WireReport(SlotReport(spouts=full), {}, {}))

    assert len(many) - len(few) == pytest.approx(40_000, abs=50)


class Unpicklable:
    """A message id that cannot travel."""

    def __reduce__(self) -> str:
        raise TypeError("no")

    def __repr__(self) -> str:
        return "it"


def test_a_message_id_that_cannot_travel_is_told_as_text() -> None:
    trees = FailedTrees("words", 0, [Unpicklable()], timed_out=True)
    said = WireReport(SlotReport(spouts=SpoutReport(failed=[trees])), {}, {})

    told = unpack_report(pack_report(said)).report.spouts

    assert told is not None
    assert told.failed == [trees._replace(messages=["it"])]
