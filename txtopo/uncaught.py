"""uncaught: what Python prints of an error of txtopo that a program does not catch.

An error of a driver that became one of txtopo has a hundred frames of libraries. So ``import
txtopo`` sets ``sys.excepthook``, unless the program has set its own. It prints the lines of the
program, the message, and the cause if the message does not repeat it. Other exceptions are printed
as always. The error itself is left as it is, so logs, debuggers and test runners show everything;
so does Python if ``TXTOPO_TRACEBACK`` is set.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path
from types import TracebackType

from txtopo.errors import TxtopoError, escaped, shortened, text_of

TRACEBACK = "TXTOPO_TRACEBACK"
"""The variable with which whole tracebacks are printed, also those of the JVM."""

_CAUSE_CHARACTERS_MAX = 500
_OURS = (
    sys.prefix,
    sys.base_prefix,
    str(Path(__file__).parent),
    str(Path(__file__).parents[1] / "state_backends"),
    "<frozen",
)


def is_users(filename: str) -> bool:
    """Return whether a file belongs to the user's program, not to txtopo or another library."""
    return not filename.startswith(_OURS)


def short_text(error: BaseException) -> str:
    """Return the traceback of an error in a few lines; a longer one if no line is the user's."""
    told = traceback.TracebackException.from_exception(error)
    frames = [each for each in told.stack if is_users(each.filename)] or told.stack
    lines = ["Traceback (most recent call last):\n"]
    lines += traceback.StackSummary.from_list(frames).format()
    lines += told.format_exception_only()
    if (cause := cause_line(error)) is not None:
        lines.append(f"  {cause}\n")
    lines.append(f"  {TRACEBACK}=1 shows the whole traceback\n")
    return "".join(lines)


def cause_line(error: BaseException) -> str | None:
    """Return the first cause of an error in one line; None if there is none, or it is repeated."""
    cause, seen = error, {id(error)}
    while (inner := _cause(cause)) is not None and id(inner) not in seen:
        cause = inner
        seen.add(id(cause))
    text = _words(text_of(cause))
    if cause is error or text in _words(text_of(error)):
        return None
    frames = [f for f in traceback.extract_tb(cause.__traceback__) if is_users(f.filename)]
    where = f"; in {frames[-1].filename}, line {frames[-1].lineno}" if frames else ""
    kind = f"{type(cause).__module__}.{type(cause).__qualname__}".removeprefix("builtins.")
    return escaped(f"caused by {kind}: {shortened(text, _CAUSE_CHARACTERS_MAX, ' […] ')}{where}")


def _cause(error: BaseException) -> BaseException | None:
    if error.__cause__ is not None or error.__suppress_context__:
        return error.__cause__
    return error.__context__


def _words(text: str) -> str:
    """Return a text in one line, as messages quote those of drivers."""
    return re.sub(r"[\s;]+", " ", text).strip()


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if isinstance(error, TxtopoError) and TRACEBACK not in os.environ:
        print(short_text(error), end="", file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, trace)


if sys.excepthook is sys.__excepthook__:
    sys.excepthook = _print
