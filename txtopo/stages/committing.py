"""Committing: the commit chain of one batch in the driver, without a job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from txtopo.stages.outcome import BatchOutcome, CommitOutcome, judge_commit
from txtopo.stages.program import Program
from txtopo.stages.run import Run
from txtopo.stages.stages import run_stage
from txtopo.stages.states import StateOpener


def commit_in_driver(
    program: Program, batch: BatchOutcome, run: Run, states: StateOpener
) -> CommitOutcome:
    """Run the commit chain of a processed batch here.

    Args:
        program: The topology, whose commit phase runs in the driver.
        batch: The batch, as its run left it.
        run: The run of this batch alone: ``run.only(attempt)``.
        states: Opens the states of the committers.
    """
    assert program.commit_in_driver
    if not program.commit:
        return CommitOutcome(None, {}, {}, {})
    records: Iterable[bytes] = batch.cut
    for level in range(len(program.commit)):
        records = _records(program, run, level, records, states)
    return judge_commit(program, batch, run, records)


def _records(
    program: Program, run: Run, level: int, records: Iterable[bytes], states: StateOpener
) -> Iterator[bytes]:
    # Nothing is computed twice here, so one task id does.
    stage = run_stage(program, "commit", run, level, 0, 0, list(records), states)
    return (record for _, record in stage)
