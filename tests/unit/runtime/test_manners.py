"""User code in the driver (spouts, listeners, threads that wait) cannot break or hang a run."""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.runs import Changes
from tests.unit.runtime.loop_world import BATCHES, expected, memory_state, running, stored
from tests.unit.runtime.ranges import ranges
from txtopo import Config
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.errors import BatchMetadataTooLarge, ConfigError, EmitError, StateUsageError
from txtopo.runtime.handle import TopologyRun
from txtopo.runtime.progress import BatchCommitted, TopologyEvent


def test_metadata_that_the_spout_changes_later_stays_what_it_was() -> None:
    """The same object for every txid: each batch has its own copy."""

    def grown(txid: int, previous: Any) -> Any:
        metadata = previous or {"start": -3}
        metadata["start"] += 3
        return metadata

    state = memory_state()
    with running(ranges(state, initialize_transaction=grown), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected())


@pytest.mark.parametrize(
    ("metadata", "error"),
    [({1: object()}, EmitError), ({"big": "x" * 1_000_000}, BatchMetadataTooLarge)],
    ids=["not-json", "too-large"],
)
def test_metadata_that_cannot_be_kept_ends_the_run_behind_the_batches_before_it(
    metadata: Any, error: type[Exception]
) -> None:
    def odd(txid: int, previous: Any) -> Any:
        return metadata if txid == 5 else {"start": (txid - 1) * 3}

    state = memory_state()
    with (
        running(ranges(state, initialize_transaction=odd), MemoryEnsemble()) as run,
        pytest.raises(error),
    ):
        run.await_termination(LIMIT_S)

    assert stored(state) == (4, expected(4))


def test_a_lag_that_cannot_be_told_and_a_clean_up_that_fails_end_no_run() -> None:
    def fails(argument: Any) -> Any:
        raise ConnectionError("the source is away")

    state = memory_state()
    with running(ranges(state, lag=fails, cleanup_before=fails), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected())


def test_the_emitter_is_told_what_is_done() -> None:
    told: list[int] = []
    TOLD["clean"] = told

    state = memory_state()
    with running(ranges(state, cleanup_before=note_clean), MemoryEnsemble()) as run:
        run.process_all_available(LIMIT_S)

    assert told[-1] == BATCHES + 1
    assert told == sorted(told)


TOLD: dict[str, list[int]] = {}


def note_clean(txid: int) -> None:
    TOLD["clean"].append(txid)


@pytest.mark.row(49)
def test_the_emitter_is_told_only_what_is_durable() -> None:
    """What a source forgets before that is lost, if the process dies in between."""
    ENSEMBLES["durable"] = MemoryEnsemble()
    DURABLE.clear()

    state = memory_state()
    with running(ranges(state, cleanup_before=note_durable), ENSEMBLES["durable"]) as run:
        run.process_all_available(LIMIT_S)

    assert DURABLE
    assert all(durable >= told for told, durable in DURABLE)


ENSEMBLES: dict[str, MemoryEnsemble] = {}
DURABLE: list[tuple[int, int]] = []
"""What the emitter was told, and what ZooKeeper held then."""


def note_durable(txid: int) -> None:
    nodes = ENSEMBLES["durable"].nodes
    (current,) = [json.loads(nodes[p][0])["value"] for p in nodes if p.endswith("/current")]
    DURABLE.append((txid, int(current["current"])))


def test_a_spout_that_hangs_when_it_is_closed_holds_up_no_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("txtopo.runtime.driver.CLOSE_TIMEOUT_S", 0.1)
    state, ensemble = memory_state(), MemoryEnsemble()

    with running(ranges(state, close=hang), ensemble) as run:
        run.process_all_available(LIMIT_S)
    with running(ranges(state), ensemble) as run:
        run.process_all_available(LIMIT_S)

    HANGING.set()
    assert stored(state) == (BATCHES, expected())


HANGING = threading.Event()


def hang() -> None:
    HANGING.wait(LIMIT_S)


def test_a_listener_that_exits_ends_no_run() -> None:
    state = memory_state()

    with running(ranges(state), MemoryEnsemble(), Changes(lambda change: sys.exit(3))) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected())


def test_a_listener_may_stop_the_run_but_not_wait_for_it() -> None:
    runs: list[TopologyRun] = []
    refused: list[Exception] = []

    def stop(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 3:
            runs[0].stop()
            try:
                runs[0].await_termination()
            except StateUsageError as error:
                refused.append(error)

    state = memory_state()
    topology = ranges(state, initialize_transaction=held)
    with running(topology, MemoryEnsemble(), Changes(stop), max_spout_pending=1) as run:
        runs.append(run)
        STARTED.set()
        assert run.await_termination(LIMIT_S)

    assert len(refused) == 1
    assert stored(state)[0] in (3, 4)


STARTED = threading.Event()


def held(txid: int, previous: Any) -> Any:
    STARTED.wait(LIMIT_S)
    return {"start": (txid - 1) * 3}


def test_a_run_stops_while_zookeeper_is_away() -> None:
    """What could not be written there is found in the ledgers by the next start."""
    state, ensemble = memory_state(), MemoryEnsemble()

    def away(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 4:
            ensemble.reachable = False

    with running(ranges(state), ensemble, Changes(away), max_spout_pending=1) as run:
        wait_until(lambda: not ensemble.reachable, "ZooKeeper is away")
        run.stop(LIMIT_S)
        assert not run.is_active
    ensemble.reachable = True
    with running(ranges(state), ensemble) as run:
        run.process_all_available(LIMIT_S)

    assert stored(state) == (BATCHES, expected())


@pytest.mark.parametrize("limit", [float("inf"), float("nan"), 0, True])
def test_limits_are_finite_numbers(limit: float) -> None:
    with pytest.raises(ConfigError, match="batch_timeout_s"):
        Config(batch_timeout_s=limit)
