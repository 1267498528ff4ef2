"""Failures: exceptions of user code, as data.

They never fail a Spark task, which Spark would run again: they travel with their txid to the
driver, which knows what to do. An exception that cannot be pickled, or is too large, keeps what it
means to the coordinator and its text.
"""

from __future__ import annotations

import traceback

from txtopo.errors import (
    BoltError,
    FailedException,
    InfrastructureError,
    TopologyError,
    shortened,
)
from txtopo.stages.envelopes import TaskFailure
from txtopo.stages.mailboxes import StageContext
from txtopo.stages.pickling import dumps, loads

PICKLED_BYTES_MAX = 100_000
"""A larger exception keeps what it means and the ends of its text. Each attempt brings it again to
the driver, which passes it on to the log and to every listener."""
# Too large, or compiled, to be shipped as a file: they belong to the workers' installation.
_INSTALLED = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "txtopo", "zmq"})


def failure_of(
    error: BaseException, site: StageContext, component: str, *, txid: int, task: int
) -> TaskFailure:
    """Return an exception of a task as data."""
    note = (
        f"in task {task} of {component!r} of topology {site.program.topology_id!r}, "
        f"txid {txid}, {site.chain} phase:\n{traceback_of(error)}"
    )
    return TaskFailure(txid, site.level, component, task, pickled_error(error, component), note)


def error_of(failure: TaskFailure) -> Exception:
    """Return the exception, with a note that says where it happened."""
    return unpickled_error(failure.error, failure.component, failure.note)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception, of a length that a person reads."""
    return shortened("".join(traceback.format_exception(error)))


def missing_module(name: str) -> TopologyError:
    """Return what to say about a module that workers cannot import."""
    if name.partition(".")[0] in _INSTALLED:
        return TopologyError(
            f"a worker cannot import {name!r}, which txtopo needs there; install txtopo and what "
            "it depends on in the Python of every executor (spark.pyspark.python, "
            "PYSPARK_PYTHON), or ship an environment with spark.archives",
            module=name,
        )
    return TopologyError(
        f"a worker cannot import the module {name!r}; put it on every executor with --py-files, "
        "spark.archives or an image, or define the class in the main script",
        module=name,
    )


def pickled_error(error: BaseException, component: str) -> bytes:
    """Pickle an exception, in words if it cannot be pickled as it is."""
    if isinstance(error, ModuleNotFoundError):
        return dumps(missing_module(error.name or str(error)))
    if isinstance(error, Exception):
        try:
            pickled = dumps(error)
            same = type(loads(pickled)).__name__ == type(error).__name__
            if same and len(pickled) <= PICKLED_BYTES_MAX:
                return pickled
        except Exception:  # noqa: BLE001 - a class of the user's may raise anything
            pass
    return dumps(_in_words(error, component))


def unpickled_error(pickled: bytes, component: str, note: str) -> Exception:
    """Read what :func:`pickled_error` made, and add a note to it."""
    try:
        error = loads(pickled)
        error.add_note(note)
    except Exception as unreadable:  # noqa: BLE001 - a class of the user's may raise anything
        error = BoltError(f"{component!r} failed, unreadable here: {unreadable}")
        error.add_note(note)
    assert isinstance(error, Exception)
    return error


def _in_words(error: BaseException, component: str) -> Exception:
    for kind in (FailedException, InfrastructureError):
        if isinstance(error, kind):
            return kind(_text(error))
    return BoltError(f"{component!r} raised {type(error).__name__}: {_text(error)}")


def _text(error: BaseException) -> str:
    try:
        return shortened(str(error))
    except Exception:  # noqa: BLE001 - a class of the user's may raise anything
        return "(it cannot be printed)"
