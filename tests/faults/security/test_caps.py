"""What somebody may make too large is cut short or refused before it fills a log or the driver.

The caps of metadata and of what waits in the driver are among the bad inputs (45 and 35), that of a
chunk of tuples is shown with the envelopes.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from tests.faults.bad_inputs.topologies import ROWS
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Changes, Storage, running
from txtopo import BatchBolt, Committer, FailedException, TransactionalTopologyBuilder
from txtopo.ensemble.nodes import decode, encode
from txtopo.errors import (
    TEXT_CHARACTERS_MAX,
    BoltError,
    CorruptNodeError,
    EmitError,
    PoisonBatchError,
    StoreUnavailable,
)
from txtopo.metadata import json_flaw
from txtopo.runtime.progress import BatchFailed
from txtopo.spouts import MemoryTransactionalSpout

HUGE = 10_000_000
SHORT = TEXT_CHARACTERS_MAX + 100
DEPTH = 100_000


class Loud(BatchBolt):
    """Fails with a text of ten megabytes."""

    output_fields = ROWS

    def __init__(self, kind: type[Exception]) -> None:
        self.kind = kind

    def prepare(self, config: Any, context: Any, collector: Any, attempt: Any) -> None: ...

    def execute(self, tuple: Any) -> None:
        raise self.kind("x" * HUGE)

    def finish_batch(self) -> None: ...


class LoudCommitter(Loud, Committer):
    """The same, in the commit phase."""


@pytest.mark.parametrize("bolt", [Loud, LoudCommitter])
@pytest.mark.parametrize(
    ("kind", "ends_with"),
    [(FailedException, PoisonBatchError), (ValueError, BoltError), (StoreUnavailable, None)],
)
def test_an_error_of_ten_megabytes_is_short_wherever_it_goes(
    caplog: pytest.LogCaptureFixture, bolt: Any, kind: Any, ends_with: Any
) -> None:
    """To listeners, the log, ZooKeeper, and the user; what it means stays."""
    caplog.set_level(logging.DEBUG)
    storage, changes = Storage.in_memory(), Changes()
    builder = TransactionalTopologyBuilder(
        "loud", "spout", MemoryTransactionalSpout({0: [["a", 1]]}, ROWS, 1)
    )
    builder.set_bolt("loud", bolt(kind)).global_grouping("spout")
    config = replace(LOCAL, attempts_max=3)
    with running(builder.build_topology(), storage, config, None, [changes]) as run:
        if ends_with is None:
            # It is tried for ever.
            changes.wait_for(BatchFailed)
            with pytest.raises(TimeoutError):
                run.process_all_available(0.1)
        else:
            with pytest.raises(ends_with) as caught:
                run.process_all_available(LIMIT_S)
            assert len(str(caught.value)) < SHORT
            assert "xxx" in str(caught.value)

    assert changes.failures
    assert max(len(str(each.error)) for each in changes.failures) < SHORT
    assert max(len(note) for each in changes.failures for note in notes(each.error)) < SHORT
    assert len(caplog.text) < len(changes.failures) * 4 * SHORT
    assert max(len(data) for data, _ in storage.ensemble.nodes.values()) < 1_000


def notes(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [""])


def test_an_error_of_txtopo_that_repeats_a_large_value_is_short() -> None:
    error = StoreUnavailable(f"cannot write {'x' * HUGE}; nothing was written", txid=7)

    assert len(str(error)) < SHORT
    assert str(error).startswith("cannot write xxx")
    assert str(error).endswith("xxx; nothing was written")
    assert error.txid == 7


def test_metadata_that_is_nested_too_deep_is_no_json() -> None:
    value: Any = []
    for _ in range(DEPTH):
        value = [value]

    assert json_flaw(value) == "it is nested too deep"
    with pytest.raises(EmitError, match=r"got a list \(it is nested too deep\)"):
        encode("/t/batches/1", value, "write")


@pytest.mark.parametrize("data", [b"[" * DEPTH, b'{"schema":1,"value":' * DEPTH])
def test_a_node_that_is_nested_too_deep_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptNodeError, match="cannot be read") as caught:
        decode("/t/current", data)
    assert len(str(caught.value)) < 1_000
