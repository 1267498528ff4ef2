"""Deaths: a piece of work is done in a separate process, which is killed in the middle.

A suite cannot die itself, and raising an exception instead would be different: ``except`` and
``finally`` run after an exception, and nothing runs after a death. So the work is done in a fork,
which is ended by SIGKILL at a step (:mod:`~txtopo.testing.conformance.steps`), or by a timer in the
middle of one call. The plug-in's author does not have to do anything.

A process with threads and open clients should not be forked: the clients of some stores refuse to
work there. So each piece of work is done in a fork of a fresh process, the *nursery*, which opens
nothing. Work that cannot be pickled or unpickled there, such as a function that holds a server, is
done in a fork of this process.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from typing import NoReturn, Protocol

import pytest

from txtopo.stages.pickling import dumps, loads, pack
from txtopo.testing.conformance.steps import Steps, counted, dying

_LIMIT_S = 120.0
"""How long a piece of work may take; one that takes longer counts as hanging."""

_TIMED = 8
"""How many writers are killed by a timer."""


class Work(Protocol):
    """The work of a process that dies."""

    def prepare(self) -> Callable[[], object]:
        """Open all resources, and return the rest of the work, in which the process may die."""
        ...


@dataclass(frozen=True, slots=True)
class _Ending:
    """How a process ended: with a value or an error, or killed after some seconds by a signal."""

    value: object = None
    error: str = ""
    killed_by: int = 0
    seconds: float = 0.0
    modules: tuple[str, ...] = ()


class _Failure(Enum):
    """The nursery's answer instead of a value."""

    NOT_LOADED = "the job could not be unpickled there"


def done(work: Work) -> float:
    """Do the work to its end in a separate process, which then closes nothing.

    Call it before :func:`steps_of`, so that imports of the work are done and count no steps.

    Returns:
        How many seconds it took.

    Raises:
        AssertionError: The work raised, here and in the other functions.
    """
    seconds = _in_a_process(partial(_time, work)).value
    assert isinstance(seconds, float)
    return seconds


def steps_of(work: Work) -> Steps:
    """Do the work to its end in a separate process, and return its steps."""
    found = _in_a_process(partial(_count, work)).value
    assert isinstance(found, Steps)
    return found


def dies_at(work: Work, step: int) -> bool:
    """Begin the work in a separate process, and kill that at a step; return whether it got there.

    It may not, if the work takes a different path than when its steps were counted.
    """
    return bool(_in_a_process(partial(_die, work, step)).killed_by)


def dies_after(work: Work, after_s: float) -> bool:
    """Begin the work in a separate process, and kill it by a timer, unless it ends first.

    It may die in the middle of a call, where there is no step.
    """
    return bool(_in_a_process(partial(_die_later, work, after_s)).killed_by)


@dataclass(frozen=True)
class Deaths:
    """Lets processes die in one kind of write, one after the other.

    Attributes:
        work: Returns the next work, which begins with what the previous one left. It takes the same
            steps each time.
        landed: Given a description of a death, checks what it has left. Returns whether the whole
            write took effect.
        ended: Checks what a process has left after finishing its work.
    """

    work: Callable[[], Work]
    landed: Callable[[str], bool]
    ended: Callable[[], object]

    def at_each_step(self, most: int) -> None:
        """Let a writer die before and after the step where its write takes effect, and elsewhere.

        An atomic write has one such step: before it there is nothing of the write, and after it the
        whole. So it is found by binary search, first among the calls, of which nearly always one
        writes. If there is a part of the write for some steps, the search ends there. Up to *most*
        further deaths are spread over all calls.
        """
        done(self.work())
        self.ended()
        steps = steps_of(self.work())
        self.ended()
        landed = cache(partial(self._landed_at, steps))
        below, above = _halved(steps.calls, -1, len(steps.places), landed)
        if above < len(steps.places) and above - below > 1 and not landed(above - 1):
            below = above - 1  # the call itself has written
        _halved(range(below + 1, above), below, above, landed)
        for step in spread(steps.calls, most):
            landed(step)

    def at_any_time(self) -> None:
        """Let writers die closer and closer to the moment at which the write takes effect.

        The moments are times since the beginning. On a busy machine they shift; any will do.
        """
        done(self.work())
        self.ended()
        below, above = 0.0, 1.5 * done(self.work())
        self.ended()
        for _ in range(_TIMED):
            after_s = (below + above) / 2
            died = dies_after(self.work(), after_s)
            landed = self._is_there(died, f"a writer died {1000 * after_s:.1f} ms after its start")
            below, above = (below, after_s) if landed else (after_s, above)

    def _landed_at(self, steps: Steps, step: int) -> bool:
        place = f"step {step + 1} of {len(steps.places)}, {steps.places[step]}"
        return self._is_there(dies_at(self.work(), step), f"a writer died at {place}")

    def _is_there(self, died: bool, death: str) -> bool:
        if died:
            return self.landed(death)
        self.ended()
        return True


def spread(items: Sequence[int], most: int) -> Sequence[int]:
    """Return at most this many items, spread evenly, including the first and the last."""
    if len(items) <= most:
        return items
    return [items[at * (len(items) - 1) // max(1, most - 1)] for at in range(most)]


def _halved(
    steps: Sequence[int], below: int, above: int, landed: Callable[[int], bool]
) -> tuple[int, int]:
    """Return the steps, or the bounds, between which the write takes effect."""
    low, high = -1, len(steps)
    while high - low > 1:
        middle = (low + high) // 2
        if landed(steps[middle]):
            high = middle
        else:
            low = middle
    return (below if low < 0 else steps[low]), (above if high == len(steps) else steps[high])


def _time(work: Work) -> float:
    write = work.prepare()
    begun = time.perf_counter()
    write()
    return time.perf_counter() - begun


def _count(work: Work) -> Steps:
    return counted(work.prepare())


def _die(work: Work, step: int) -> None:
    dying(work.prepare(), step)


def _die_later(work: Work, after_s: float) -> None:
    write = work.prepare()
    signal.setitimer(signal.ITIMER_REAL, max(after_s, 1e-6))
    write()


def _in_a_process(job: Callable[[], object]) -> _Ending:
    if not hasattr(os, "fork"):
        pytest.skip("no process can be forked here, so none dies; run the suite on Linux or macOS")
    try:
        pickled = dumps(job)
    except Exception:  # noqa: BLE001 - whatever a pickler raises for what it cannot pickle
        ending = _forked(job)
    else:
        ending = _nursery().run(pickled)
        if ending.value is _Failure.NOT_LOADED:
            ending = _forked(job)
    if ending.error:
        raise AssertionError(f"a process that was to die in a write raised:\n{ending.error}")
    if ending.killed_by == signal.SIGALRM and ending.seconds >= _LIMIT_S:
        raise AssertionError(
            f"a process that was to die in a write hung for {_LIMIT_S:g} s; it is a fork, which "
            "opens the store again; does the client of the store keep locks or threads?"
        )
    return ending


def _forked(job: Callable[[], object]) -> _Ending:
    """Do the job in a fork of this process."""
    reading, writing = os.pipe()
    begun = time.perf_counter()
    with warnings.catch_warnings():
        # Python warns of threads; the fork uses nothing of theirs.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = os.fork()
    if not process:
        _live(job, writing)
    os.close(writing)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read()
    status = os.waitpid(process, 0)[1]
    if os.WIFSIGNALED(status):
        return _Ending(killed_by=os.WTERMSIG(status), seconds=time.perf_counter() - begun)
    ending = loads(answer) if answer else _Ending(error=f"it exited with status {status}")
    assert isinstance(ending, _Ending)
    return ending


def _live(job: Callable[[], object], writing: int) -> NoReturn:
    """Do the job, and end this process without closing anything."""
    gc.disable()  # the parent's objects are not finalised here
    for each in (signal.SIGALRM, signal.SIGINT):
        signal.signal(each, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, _LIMIT_S)
    before = set(sys.modules)
    try:
        value = job()
        signal.setitimer(signal.ITIMER_REAL, 0)
        ending = _Ending(value, modules=tuple(sorted(set(sys.modules) - before)))
    except BaseException:  # noqa: BLE001 - reported to the parent
        ending = _Ending(error=traceback.format_exc())
    with os.fdopen(writing, "wb") as answers:
        answers.write(pack(ending))
    os._exit(0)


class _Nursery:
    """A process that opens nothing and is forked for each job."""

    def __init__(self) -> None:
        born = f"from {__name__} import nurse; nurse()"
        command = [sys.executable, "-c", f"import sys; sys.path[:] = {sys.path!r}; {born}"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        atexit.register(self.close)

    def run(self, job: bytes) -> _Ending:
        """Do a pickled job in a fork of the nursery."""
        requests, answers = self._process.stdin, self._process.stdout
        assert requests is not None
        assert answers is not None
        pickle.dump((sys.path, os.getcwd(), job), requests)
        requests.flush()
        ending = pickle.load(answers)  # noqa: S301 - made by a process of ours
        assert isinstance(ending, _Ending)
        return ending

    def close(self) -> None:
        """End the process that forks the others."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@cache
def _nursery() -> _Nursery:
    return _Nursery()


def nurse() -> None:
    """Be the nursery: fork for each job that arrives, until no more can arrive."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    with suppress(EOFError):
        while True:
            path, folder, job = pickle.load(requests)  # noqa: S301 - made by a process of ours
            sys.path[:] = path
            os.chdir(folder)
            ending = _forked(partial(_unpickled, job))
            for module in ending.modules:
                with suppress(Exception):  # it was imported as part of another module
                    importlib.import_module(module)
            pickle.dump(ending, answers)
            answers.flush()


def _unpickled(pickled: bytes) -> object:
    try:
        job = loads(pickled)
    except Exception:  # noqa: BLE001 - such as a module that only pytest can import
        return _Failure.NOT_LOADED
    return job()
