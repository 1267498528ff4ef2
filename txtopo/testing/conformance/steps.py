"""Steps: the places in somebody's code at which a process may die, counted as the code runs.

Anything outside a process changes only while Python calls something that is not Python. So a *step*
is the moment before each line of running code, and the moment after each call of such a function
that may change something: ``execute`` of a database's client, ``write`` of a file, but
not ``len``. Lines of txtopo itself do not count, since it writes only through a plug-in.

The steps of two runs of the same code have the same numbers. So one run counts them
(:func:`counted`), and others die at one of them (:func:`dying`).
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

# Functions and methods of these change nothing outside the process.
_INSIDE = frozenset(
    {
        *("__future__", "_abc", "_bisect", "_codecs", "_collections", "_collections_abc"),
        *("_contextvars", "_csv", "_datetime", "_decimal", "_functools", "_hashlib", "_heapq"),
        *("_json", "_operator", "_random", "_sha2", "_sre", "_stat", "_string", "_struct"),
        *("_thread", "_warnings", "_weakref", "array", "atexit", "binascii", "builtins"),
        *("collections", "contextvars", "datetime", "decimal", "functools", "gc", "greenlet"),
        *("itertools", "json", "math", "marshal", "operator", "random", "re", "string"),
        *("struct", "sys", "threading", "time", "types", "unicodedata", "uuid", "warnings"),
        *("weakref", "zlib"),
    }
)
# Neither do these, whatever they belong to, nor methods of containers and texts.
_READS = frozenset(
    {
        *("cursor", "fetchall", "fetchmany", "fetchone", "fileno", "fspath"),
        *("get", "getcwd", "getpid", "getvalue", "isatty", "items", "keys", "listdir", "lstat"),
        *("read", "readable", "readall", "readinto", "readline", "recv", "recv_into", "scandir"),
        *("seek", "seekable", "stat", "tell", "values", "writable", "_path_normpath"),
    }
)
_VALUES = (bytes, bytearray, dict, frozenset, list, set, str, tuple)
_NO_STEPS = frozenset({"txtopo", "importlib", "pytest", "_pytest"})


@dataclass(slots=True)
class Steps:
    """The steps of a run; they are numbered from 0.

    Attributes:
        places: The place of each: the next line, or the call that has returned.
        calls: The numbers of the steps that follow a call.
    """

    places: list[str] = field(default_factory=list)
    calls: list[int] = field(default_factory=list)

    @property
    def calls_apart(self) -> list[int]:
        """The numbers of the calls, of each place in the code only the first."""
        first = {self.places[number]: number for number in reversed(self.calls)}
        return sorted(first.values())


class _Tracer:
    """Counts steps, and kills the process at one of them."""

    def __init__(self, dies_at: int | None = None) -> None:
        self.steps = Steps()
        self._dies_at = dies_at
        self._number = -1

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Count what runs inside, including threads that begin there."""
        threading.settrace(self._called)
        threading.setprofile(self._returned)
        sys.settrace(self._called)
        sys.setprofile(self._returned)
        try:
            yield
        finally:
            sys.setprofile(None)
            sys.settrace(None)

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return None if _has_no_steps(frame) else self._line

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            self._reached(frame, None)
        return self._line

    def _returned(self, frame: FrameType, event: str, function: Any) -> None:
        if event in ("c_return", "c_exception") and _may_change_something(function):
            self._reached(frame, function)

    def _reached(self, frame: FrameType, function: Any) -> None:
        self._number += 1
        if self._dies_at is None:
            # Interned, so that each is pickled once.
            self.steps.places.append(sys.intern(_place(frame, function)))
            if function is not None:
                self.steps.calls.append(self._number)
        elif self._number == self._dies_at:
            os.kill(os.getpid(), signal.SIGKILL)


def counted(work: Callable[[], object]) -> Steps:
    """Do the work to its end and return its steps."""
    tracer = _Tracer()
    with tracer.installed():
        work()
    return tracer.steps


def dying(work: Callable[[], object], step: int) -> None:
    """Do the work, and kill this process with SIGKILL at a step; return if it has fewer steps."""
    with _Tracer(step).installed():
        work()


def _has_no_steps(frame: FrameType) -> bool:
    code: CodeType = frame.f_code
    if code.co_name == "<module>" or code.co_filename.startswith("<frozen"):
        return True  # an import, which later runs may not repeat
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in _NO_STEPS


def _may_change_something(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    if isinstance(owner, _VALUES) or getattr(function, "__name__", "") in _READS:
        return False
    if owner is None or isinstance(owner, ModuleType):
        name = getattr(function, "__module__", None) or getattr(owner, "__name__", "")
    else:
        name = (owner if isinstance(owner, type) else type(owner)).__module__
    return str(name).partition(".")[0] not in _INSIDE


def _place(frame: FrameType, function: Any) -> str:
    code = frame.f_code
    place = f"{os.path.basename(code.co_filename)}:{frame.f_lineno} in {code.co_name}"
    if function is None:
        return f"before {place}"
    return f"after {getattr(function, '__qualname__', function)}() at {place}"
