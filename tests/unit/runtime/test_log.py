"""Every event of a listener is logged, each record with the same attributes."""

from __future__ import annotations

import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import Changes
from tests.unit.runtime.kept_records import Kept, kept
from tests.unit.runtime.loop_world import (
    BATCHES,
    Total,
    memory_state,
    running,
    topology_of,
)
from tests.unit.runtime.test_outages import FlakyBackend, flaky
from txtopo import FailedException
from txtopo.attempt import TransactionAttempt
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble, MemoryTransactionalState
from txtopo.errors import PoisonBatchError, ProcessEnds, StoreUnavailable
from txtopo.log_records import CAUSE_CHARACTERS_MAX, one_line
from txtopo.retries import LOGGER, warn_of_retry
from txtopo.runtime.listeners import EventLog
from txtopo.runtime.progress import (
    BatchCommitted,
    BatchesAbandoned,
    BatchesProcessed,
    BatchFailed,
    BatchPlanned,
    CommitStarted,
    ErrorReported,
    Leading,
    ProcessingStarted,
    Progress,
    Progressed,
    ReliableProgress,
    Restarting,
    SlotLost,
    Standby,
    Started,
    Stopped,
    TopologyEvent,
    TreesFailed,
)
from txtopo.state import State, open_state
from txtopo.tuples import Tuple

__all__ = ["flaky", "kept"]

ROOT = Path(__file__).parents[3]
ATTEMPT = TransactionAttempt(7, 2, 3)


def progress(txid: int = 7, failures: int = 0) -> Progress:
    attempt = TransactionAttempt(txid, 2, 3)
    return Progress(attempt, 0.0, 10, 20, 1.0, failures, failures, processing_s=2, commit_s=0.1)


def reliable(timestamp_s: float, *, acked: int = 0, failed: int = 0) -> ReliableProgress:
    return ReliableProgress(timestamp_s, 10, acked, failed, 0, 0, 0, 0, 0)


OF_ATTEMPT = {"txid": 7, "attempt": 2, "epoch": 3}

SAMPLES: list[tuple[TopologyEvent, int, dict[str, Any]]] = [
    (Started("t"), logging.INFO, {}),
    (Standby("t", {"epoch": 3}), logging.WARNING, {}),
    (Leading("t", 3, 8, 7), logging.INFO, {"txid": 7, "epoch": 3}),
    (BatchPlanned(ATTEMPT, 0.5), logging.DEBUG, OF_ATTEMPT),
    (ProcessingStarted((ATTEMPT,), "tag"), logging.DEBUG, OF_ATTEMPT),
    (BatchesProcessed((ATTEMPT,)), logging.DEBUG, OF_ATTEMPT),
    (CommitStarted(ATTEMPT), logging.DEBUG, OF_ATTEMPT),
    (BatchesAbandoned((ATTEMPT,), TransactionAttempt(6, 2, 3)), logging.DEBUG, OF_ATTEMPT),
    (BatchCommitted(progress()), logging.DEBUG, OF_ATTEMPT),
    (
        BatchFailed(ATTEMPT, "counted", ValueError("odd"), "bolt", 4, 0.5),
        logging.WARNING,
        {**OF_ATTEMPT, "component": "bolt", "failures": 4, "pause_s": 0.5},
    ),
    (
        Restarting("t", ValueError("odd"), 2, 0.5),
        logging.WARNING,
        {"cause": "ValueError: odd", "failures": 2, "pause_s": 0.5},
    ),
    (Stopped("t", None), logging.INFO, {"cause": None}),
    (Progressed(reliable(0.0)), logging.DEBUG, {}),
    (TreesFailed("spout", 0, ("a", "b"), "failed"), logging.DEBUG, {"component": "spout"}),
    (SlotLost(3, "its worker died"), logging.INFO, {"slot": 3, "cause": "its worker died"}),
    (
        ErrorReported("bolt", 1, ValueError("odd")),
        logging.WARNING,
        {"component": "bolt", "cause": "ValueError: odd"},
    ),
]


def test_no_kind_of_event_is_without_a_sample() -> None:
    assert {type(each) for each, _, _ in SAMPLES} == set(get_args(TopologyEvent))


@pytest.mark.parametrize(
    ("change", "level", "facts"), SAMPLES, ids=[type(each).__name__ for each, _, _ in SAMPLES]
)
def test_a_listener_gets_nothing_that_the_log_does_not_tell(
    change: TopologyEvent, level: int, facts: dict[str, Any], kept: Kept
) -> None:
    EventLog("t").on_change(change)

    record = kept.records[0]
    assert record.name == "txtopo.runtime"
    assert record.levelno == level
    assert {name: vars(record)[name] for name in facts} == facts
    assert {vars(each)["topology"] for each in kept.records} == {"t"}
    assert kept.lacking == []


def test_a_run_that_ends_with_an_error_says_so_once_and_why(kept: Kept) -> None:
    EventLog("t").on_change(Stopped("t", ValueError("odd")))

    assert kept.at(logging.ERROR) == ["topology 't': has ended with an error; got ValueError: odd"]
    assert vars(kept.records[0])["cause"] == "ValueError: odd"


class Unlucky(Total):
    """Fails the batch that holds the amount 13, twice or as often as *times* says."""

    times = 2

    def execute(self, tuple: Tuple) -> None:
        if tuple["amount"] == 13 and self.attempt.attempt < self.times:
            raise FailedException("13 brings bad luck")
        super().execute(tuple)


class Hopeless(Unlucky):
    times = 10**9


def test_every_record_of_a_run_with_trouble_has_every_attribute(flaky: State, kept: Kept) -> None:
    """Of stores, bolts, sessions, takeovers and listeners."""
    FlakyBackend.script = {3: ["before"] * 2}
    ensemble = MemoryEnsemble()

    def trouble(change: TopologyEvent) -> None:
        if isinstance(change, BatchCommitted) and change.progress.txid == 7:
            ensemble.expire_leader("totals")
            raise ValueError("a listener fails")

    topology = topology_of(flaky, Unlucky())
    with running(topology, ensemble, Changes(trouble), max_spout_pending=2) as run:
        run.process_all_available(LIMIT_S)

    assert kept.lacking == []
    assert {vars(each)["topology"] for each in kept.records} == {"totals"}
    started, *_, stopped = kept.at(logging.INFO)
    assert started == "topology 'totals': starts"
    assert stopped == "topology 'totals': has stopped"
    assert "topology 'totals': leads with epoch 1 and resumes at txid 1" in kept.at(logging.INFO)
    takes = [each for each in kept.at(logging.INFO) if "takes over" in each]
    leads = [each for each in kept.at(logging.INFO) if "leads with epoch" in each]
    assert len(takes) == len(leads) == 2
    warnings = kept.at(logging.WARNING)
    assert sum("attempt" in each and "of txid" in each for each in warnings) == 4
    assert sum("a listener failed on BatchCommitted" in each for each in warnings) == 1
    assert sum("holds the leadership" in each for each in warnings) == 1
    committed = [each for each in kept.records if "is committed" in each.getMessage()]
    assert [vars(each)["txid"] for each in committed] == list(range(1, BATCHES + 1))
    assert {each.levelno for each in committed} == {logging.DEBUG}


def test_who_waits_and_who_was_adopted_is_told(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("txtopo.runtime.candidacy.LEAD_TIMEOUT_S", 0.05)
    ensemble, changes = MemoryEnsemble(), Changes()
    other = MemoryTransactionalState("totals", ensemble)
    leads = other.lead({"host": "a\nb", "pid": 7}, timeout_s=1, on_lost=lambda: None)
    assert leads is not None
    Journal(other).claim_epoch({"host": "a\nb", "pid": 7}, token="ensemble")
    with running(topology_of(memory_state()), ensemble, changes) as run:
        changes.wait_for(Standby)
        leads.release()
        run.process_all_available(LIMIT_S)
    EventLog("t").on_change(Leading("t", 2, 8, 7))
    EventLog("t").on_change(Leading("t", 2, 8, 7, adopted_first=5))

    (waits,) = [each for each in kept.at(logging.WARNING) if "stands by" in each]
    assert waits == r"topology 'totals': process 7 on a\nb leads (epoch 1); this one stands by"
    told = kept.at(logging.INFO)
    assert "topology 't': adopts txid 7, which every state already holds" in told
    assert "topology 't': adopts txids 5 to 7, which every state already holds" in told
    assert kept.lacking == []


def test_a_batch_behind_one_that_failed_has_a_later_attempt_but_no_failure(kept: Kept) -> None:
    """Its attempt was abandoned, and has not failed."""
    changes = Changes()
    state = open_state("memory:", kind="opaque")
    topology = topology_of(state, Unlucky(), opaque=True)
    with running(topology, MemoryEnsemble(), changes, group_txids_max=1) as run:
        run.process_all_available(LIMIT_S)

    told = {each.progress.txid: each.progress for each in changes.of(BatchCommitted)}
    assert (told[5].attempt.attempt, told[5].failures) == (2, 2)
    assert (told[6].attempt.attempt, told[6].failures) == (2, 0)
    assert {each.failures_total for each in told.values()} == {0, 2}
    assert [(each.failures, each.pause_s) for each in changes.failures] == [(1, 0.01), (2, 0.02)]


def test_the_failure_of_a_run_is_told_once_with_all_its_txids(kept: Kept) -> None:
    EventLog("t").on_change(
        BatchFailed(ATTEMPT, "infrastructure", StoreUnavailable("away"), None, 1, 0.1, batches=4)
    )

    assert kept.at(logging.WARNING) == [
        "topology 't': attempt 2 of the run of txids 7 to 10 failed; got StoreUnavailable: away; "
        "failures in a row: 1; tried again in 0.1 s"
    ]


@pytest.mark.integration
def test_ten_failed_attempts_are_ten_lines_for_who_has_not_set_up_logging(tmp_path: Path) -> None:
    """Python prints what nobody handles, if it is a warning or worse."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program],
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
    )

    lines = [line for line in done.stderr.splitlines() if line.startswith("topology 'words': ")]
    failed = [line for line in lines if "of txid 1, in 'bolt', failed; got" in line]
    assert len(failed) == 10, done.stderr
    assert [int(re.findall(r"failures in a row: (\d+)", line)[0]) for line in failed] == [
        *range(1, 11)
    ]
    assert "has ended with an error; got PoisonBatchError" in lines[-1]
    assert len(lines) == 11


PROGRAM = """
from txtopo import *
from txtopo.spouts import MemoryTransactionalSpout

class Fails(BasicBolt):
    def execute(self, tuple, collector):
        raise FailedException("no luck")

spout = MemoryTransactionalSpout({0: [["a"]]}, Fields("word string"), 1)
builder = TransactionalTopologyBuilder("words", "spout", spout)
builder.set_bolt("bolt", Fails()).global_grouping("spout")
config = Config(carrier="local", zookeeper="memory", attempts_max=10, backoff_s=0.001)
run = builder.build_topology().start(config=config)
try:
    run.await_termination(60)
except Exception as error:
    print(type(error).__name__)
"""


def test_a_cause_cannot_forge_a_line_or_move_the_cursor(kept: Kept) -> None:
    evil = "a\nWARNING txtopo: forged\r\x1b[2J\x07\u2028b\x00\x9b1m\ud800"
    line = one_line(FailedException(evil))

    assert line.isprintable()
    assert line.startswith("FailedException: a; WARNING txtopo: forged\\r\\x1b[2J\\x07\\u2028b")
    EventLog("t").on_change(BatchFailed(ATTEMPT, "counted", FailedException(evil), "bolt"))
    EventLog("t").on_change(SlotLost(1, evil))
    EventLog("t").on_change(Stopped("t", FailedException(evil)))
    assert all(each.getMessage().isprintable() for each in kept.records)


def test_a_cause_is_short_whatever_it_is_made_of() -> None:
    assert len(one_line(ValueError("\0" * 10**6))) < CAUSE_CHARACTERS_MAX + 10


def test_an_error_that_cannot_be_printed_is_told_all_the_same(kept: Kept) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError("not me")

    EventLog("t").on_change(BatchFailed(ATTEMPT, "counted", Mute(), "bolt"))

    assert "got Mute: (it cannot be printed)" in kept.at(logging.WARNING)[0]


def test_the_end_of_the_process_is_not_a_failure_that_an_operator_must_see(kept: Kept) -> None:
    error = ProcessEnds("the process ends")
    EventLog("t").on_change(BatchFailed(ATTEMPT, "infrastructure", error, None, 1, 0.1))

    assert [each.levelno for each in kept.records] == [logging.DEBUG]


def test_a_thousand_reported_errors_are_two_warnings(kept: Kept) -> None:
    log = EventLog("t")
    log.on_change(Progressed(reliable(0.0)))
    for number in range(1000):
        log.on_change(ErrorReported("bolt", 0, ValueError(f"odd {number}")))
    log.on_change(Progressed(reliable(0.5)))
    log.on_change(Progressed(reliable(1.0)))
    log.on_change(Progressed(reliable(2.0)))
    log.on_change(ErrorReported("bolt", 0, ValueError("odd again")))

    assert kept.at(logging.WARNING) == [
        "topology 't': 'bolt', task 0, reports an error; got ValueError: odd 0",
        "topology 't': 'bolt', task 0, reports 999 more errors; the last is ValueError: odd 999",
        "topology 't': 'bolt', task 0, reports an error; got ValueError: odd again",
    ]


def test_an_error_that_a_spout_reports_and_retries_is_one_warning(kept: Kept) -> None:
    """That of the retry, which says when it is tried again."""
    error = StoreUnavailable("the broker is away")
    warn_of_retry("spout 'queue', task 0,", error, topology="t", failures=1, pause_s=0.1)
    EventLog("t").on_change(ErrorReported("queue", 0, error))

    assert len(kept.at(logging.WARNING)) == 1
    assert len(kept.at(logging.DEBUG)) == 1


def test_failed_trees_are_counted_once_a_second_and_again_after_an_ack(kept: Kept) -> None:
    log = EventLog("t")
    log.on_change(Progressed(reliable(0.0)))
    for second, acked in ((1.0, 0), (2.0, 0), (3.0, 5)):
        for _ in range(100):
            log.on_change(TreesFailed("spout", 0, ("a", "b"), "timed out"))
        log.on_change(Progressed(reliable(second, acked=acked)))
    log.on_change(TreesFailed("spout", 0, ("a",), "timed out"))
    log.on_change(Stopped("t", None))

    warned = [vars(each) for each in kept.records if each.levelno == logging.WARNING]
    assert [each["failures"] for each in warned] == [200, 400, 200, 201]
    assert "200 trees of spout 'spout', task 0, timed out" in kept.at(logging.WARNING)[0]
    assert "1 trees of spout" in kept.at(logging.WARNING)[3]


def test_a_run_that_ends_of_one_batch_tells_each_attempt_and_the_end(kept: Kept) -> None:
    topology = topology_of(memory_state(), Hopeless())
    with (
        running(topology, MemoryEnsemble(), attempts_max=3) as run,
        pytest.raises(PoisonBatchError) as caught,
    ):
        run.process_all_available(LIMIT_S)

    assert caught.value.failures == 3
    assert len(kept.at(logging.WARNING)) == 3
    assert len(kept.at(logging.ERROR)) == 1
    assert kept.lacking == []


def test_every_logger_of_the_package_completes_its_records() -> None:
    """Modules take theirs from one place; a bare ``getLogger`` would lack the attributes."""
    bare = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for folder in ("txtopo", "state_backends")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line in path.read_text().splitlines()
        if "= logging.getLogger(" in line and "testing" not in path.parts
    ]

    assert bare == ["txtopo/log_records.py: logger = logging.getLogger(package)"]


def test_the_page_names_each_logger() -> None:
    sources = "".join(
        path.read_text()
        for package in ("txtopo", "state_backends")
        for path in (ROOT / package).rglob("*.py")
    )
    page = (ROOT / "docs" / "reference" / "logging.md").read_text()

    others = set(re.findall(r'logger_of\("(.+?)"\)', sources))
    rows = set(re.findall(r"^\| `(txtopo[\w.]*)` \|", page, re.MULTILINE))
    assert LOGGER not in others
    assert rows == {"txtopo", LOGGER, *others}
