"""Bolts that break a rule while they run: the first time is an error, and nothing is written.

What is wrong with a definition is found before anything runs, by the tests of
``tests/unit/builders``.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.bad_inputs.evidence import KEPT, ends_at, held
from tests.faults.bad_inputs.numbers import bad_input
from tests.faults.bad_inputs.topologies import ROWS, Keep
from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes, Storage, running
from tests.services.integration.bolts import Gathering
from txtopo import Topology, TransactionalTopologyBuilder
from txtopo.collector import BatchOutputCollector
from txtopo.errors import EmitError
from txtopo.spouts import MemoryTransactionalSpout

WRONG_AT = 3


class Wrong(Gathering):
    """Passes its tuples on; does in one batch what it may not."""

    output_fields = ROWS

    def __init__(self, values: list[Any], stream: str = "default") -> None:
        self.values, self.stream = values, stream

    def finish_batch(self) -> None:
        for each in self.tuples:
            self.collector.emit(each.values)
        if self.attempt.txid == WRONG_AT:
            self.collector.emit(self.values, self.stream)


class Late(Wrong):
    """Emits into a batch that is finished, through a collector that outlived its bolt."""

    last: BatchOutputCollector

    def finish_batch(self) -> None:
        if self.attempt.txid == WRONG_AT:
            Late.last.emit(self.values)
        Late.last = self.collector
        for each in self.tuples:
            self.collector.emit(each.values)


WRONGS = {
    "16 another number of values": (Wrong(["c"]), "emitted 1 value to stream 'default'; got"),
    "17 an undeclared stream": (
        Wrong(["c", 3], "errors"),
        "emitted to undeclared stream 'errors'; the declared streams are default",
    ),
    "18 after finish_batch": (
        Late(["c", 3]),
        "emitted after its batch was finished; emit in finish_batch",
    ),
    "20 another type": (
        Wrong(["c", "3"]),
        r"emitted a value that does not fit column 'value' .*; got '3' \(str\); expected long",
    ),
}


def passing(storage: Storage, wrong: Wrong) -> Topology:
    rows = [["a", 1], ["b", 2], ["c", 3], ["d", 4]]
    builder = TransactionalTopologyBuilder(
        "wrong", "spout", MemoryTransactionalSpout({0: rows}, ROWS, 1)
    )
    builder.set_bolt("wrong", wrong).global_grouping("spout")
    keep = builder.set_bolt("keep", Keep()).global_grouping("wrong")
    keep.with_state(KEPT, storage.state(KEPT))
    return builder.build_topology()


@bad_input(16, 17, 18, 20)
@pytest.mark.parametrize(("wrong", "message"), WRONGS.values(), ids=WRONGS)
def test_what_was_not_declared_ends_the_run_before_its_batch_is_written(
    wrong: Wrong, message: str
) -> None:
    storage = Storage.in_memory()

    ends_at(WRONG_AT, passing(storage, wrong), storage, EmitError, f"(?s)'wrong' {message}")
    assert held(storage).rows == {"a": 1, "b": 2}


@bad_input(16, 17, 18, 20)
def test_it_is_not_tried_again_since_that_cannot_help() -> None:
    storage = Storage.in_memory()
    changes = Changes()

    with (
        running(passing(storage, Wrong(["c"])), storage, listeners=[changes]) as run,
        pytest.raises(EmitError),
    ):
        run.await_termination(LIMIT_S)

    assert [(each.attempt.txid, each.kind) for each in changes.failures] == [(WRONG_AT, "fatal")]
