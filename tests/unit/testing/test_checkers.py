"""Each checker objects to a history in which its promise is broken, and to nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from tests.unit.testing.scenarios import clean
from txtopo.ensemble.nodes import encode
from txtopo.errors import FencedError, StoreUnavailable
from txtopo.state.row_backend import Contents
from txtopo.testing.checkers import Evidence, TraceReplay
from txtopo.testing.simulation.campaign import CHECKERS, Simulator
from txtopo.testing.simulation.history import History, NodesWrite, RunEnding, StoreWrite
from txtopo.testing.simulation.topologies import Shape

SHAPE = Shape("opaque", "opaque", ("totals", "logs"), relay=False, parallelism=1)
Tamper = Callable[[Evidence], None]


@cache
def untouched() -> Evidence:
    simulator = Simulator()
    try:
        return simulator.evidence(clean(shape=SHAPE, records=8, batch_rows_max=2))[1]
    finally:
        simulator.close()


def copied() -> Evidence:
    evidence = untouched()
    history = evidence.history
    copy = History(
        writes=list(history.writes),
        emissions={attempt: list(each) for attempt, each in history.emissions.items()},
        endings=list(history.endings),
        trace=list(history.trace),
        stores=dict(history.stores),
    )
    return replace(evidence, history=copy, leftovers=list(evidence.leftovers))


def objections(evidence: Evidence) -> set[str]:
    return {each.checker for checker in CHECKERS for each in checker.check(evidence)}


def at_txid(evidence: Evidence, table: str, txid: int) -> int:
    """Return where in the history a table gets a txid."""
    for at, write in enumerate(evidence.history.writes):
        if isinstance(write, StoreWrite) and write.table == table:
            ledger = write.after.ledger
            if ledger is not None and ledger.txid == txid:
                return at
    raise AssertionError(f"{table} never holds txid {txid}")


def change(evidence: Evidence, at: int, **contents: Any) -> None:
    """Change what a version of a table holds."""
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    evidence.history.writes[at] = replace(write, after=replace(write.after, **contents))


def ledger_at(evidence: Evidence, at: int) -> Any:
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    return write.after.ledger


def lose_a_record(evidence: Evidence) -> None:
    emissions = next(iter(evidence.history.emissions.values()))
    emissions[0] = replace(emissions[0], records=emissions[0].records[:-1])


def change_the_end(evidence: Evidence) -> None:
    contents = evidence.history.stores["logs"]
    evidence.history.stores["logs"] = Contents(contents.ledger, {})


def change_a_version(evidence: Evidence) -> None:
    change(evidence, at_txid(evidence, "logs", 2), rows={})


def skip_a_txid(evidence: Evidence) -> None:
    at = at_txid(evidence, "totals", 2)
    ledger = ledger_at(evidence, at)
    change(evidence, at, ledger=replace(ledger, txid=4))


def forget_what_was_before(evidence: Evidence) -> None:
    at = at_txid(evidence, "totals", 3)
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    rows = {key: replace(row, previous=(0,)) for key, row in write.after.rows.items()}
    change(evidence, at, rows=rows)


def expire(evidence: Evidence, writer: str = "", **contents: Any) -> None:
    """Add a version of a table that has other rows under the ledger that it has."""
    at = at_txid(evidence, "logs", 2)
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    after = replace(write.after, **contents)
    new = replace(write, before=write.after, after=after, writer=writer or write.writer)
    evidence.history.writes.insert(at + 1, new)


def expire_what_the_last_txid_wrote(evidence: Evidence) -> None:
    expire(evidence, rows={})


def change_a_row_while_others_expire(evidence: Evidence) -> None:
    at = at_txid(evidence, "logs", 2)
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    expire(evidence, rows={key: replace(row, txid=1) for key, row in write.after.rows.items()})


def expire_though_deposed(evidence: Evidence) -> None:
    expire(evidence, "a stranger")


def advance_too_early(evidence: Evidence) -> None:
    for at, write in enumerate(evidence.history.writes):
        if isinstance(write, NodesWrite) and "/simulated/current" in write.after:
            early = (encode("/current", {"current": 2}, "early"), 1)
            nodes = {**write.after, "/simulated/current": early}
            evidence.history.writes[at] = replace(write, after=nodes)
            return


def commit_without_metadata(evidence: Evidence) -> None:
    writes = evidence.history.writes
    writes[:] = [
        write
        if not isinstance(write, NodesWrite)
        else replace(
            write, after={path: node for path, node in write.after.items() if "batches" not in path}
        )
        for write in writes
    ]


def write_as_a_zombie(evidence: Evidence) -> None:
    at = at_txid(evidence, "totals", 2)
    change(evidence, at, ledger=replace(ledger_at(evidence, at), epoch=7))


def write_nodes_as_a_zombie(evidence: Evidence) -> None:
    last = max(at for at, w in enumerate(evidence.history.writes) if isinstance(w, NodesWrite))
    evidence.history.writes[last] = replace(evidence.history.writes[last], writer="Z.1")


def forget_a_store(evidence: Evidence) -> None:
    writes = evidence.history.writes
    writes[:] = [w for w in writes if not (isinstance(w, StoreWrite) and w.table == "logs")]


def redo_without_undo(evidence: Evidence) -> None:
    """Let another attempt of txid 2 build on what the first one wrote."""
    at = at_txid(evidence, "totals", 2)
    write = evidence.history.writes[at]
    assert isinstance(write, StoreWrite)
    assert write.after.ledger is not None
    rows = {
        key: replace(row, previous=row.current, previous_txid=2)
        for key, row in write.after.rows.items()
    }
    again = Contents(replace(write.after.ledger, attempt=1), rows)
    evidence.history.writes.insert(at + 1, replace(write, before=write.after, after=again))


def be_stuck(evidence: Evidence) -> None:
    assert isinstance(evidence.leftovers, list)
    evidence.leftovers.append("a run did not stop")


def end_for_no_reason(evidence: Evidence) -> None:
    evidence.history.endings.append(RunEnding(1.0, "A.1", KeyError("no reason")))


@pytest.mark.parametrize(
    ("tamper", "checker"),
    [
        (lose_a_record, "C1"),
        (change_the_end, "C1"),
        (change_a_version, "C2"),
        (skip_a_txid, "C3"),
        (forget_what_was_before, "C3"),
        (advance_too_early, "C3"),
        (commit_without_metadata, "C3"),
        (lose_a_record, "C4"),
        (write_as_a_zombie, "C5"),
        (write_nodes_as_a_zombie, "C5"),
        (expire_what_the_last_txid_wrote, "C3"),
        (change_a_row_while_others_expire, "C3"),
        (expire_though_deposed, "C5"),
        (forget_a_store, "C6"),
        (redo_without_undo, "C7"),
        (be_stuck, "C8"),
        (end_for_no_reason, "C8"),
    ],
)
def test_a_broken_promise_is_seen_by_its_checker(tamper: Tamper, checker: str) -> None:
    evidence = copied()

    tamper(evidence)

    assert checker in objections(evidence)


def test_nobody_objects_to_a_history_without_faults() -> None:
    assert objections(copied()) == set()


@pytest.mark.parametrize("error", [FencedError("deposed"), StoreUnavailable("away"), None])
def test_a_run_may_be_deposed_or_unable_to_start(error: Exception | None) -> None:
    evidence = copied()

    evidence.history.endings.append(RunEnding(1.0, "A.1", error))

    assert objections(evidence) == set()


def test_a_trace_that_differs_is_seen() -> None:
    first, again = copied().history, copied().history

    assert list(TraceReplay().compare(first, again)) == []

    again.note(1.0, "A.1", "something else")

    assert [each.checker for each in TraceReplay().compare(first, again)] == ["C10"]
