"""Exceptions of user code, as data that travels to the driver.

If they failed their Spark task, Spark would run it again. So they are sent to the driver with their
txid. An exception that cannot be pickled or is too large is replaced by one that has its text and
the same meaning for the coordinator.
"""

from __future__ import annotations

import traceback

from txtopo.errors import (
    BoltError,
    ConfigError,
    FailedException,
    InfrastructureError,
    TopologyError,
    shortened,
    text_of,
)
from txtopo.extras import EXTRAS
from txtopo.stages.envelopes import TaskFailure
from txtopo.stages.pickling import dumps, loads
from txtopo.stages.stage_context import StageContext

PICKLED_BYTES_MAX = 100_000
"""A larger exception is replaced, and its text is shortened. Each attempt sends it to the driver
again, which passes it on to the log and to every listener."""
# These are too large to be shipped as a file, or they are compiled. They have to be installed.
_INSTALLED = frozenset({"numpy", "pandas", "pyarrow", "pyspark", "txtopo"})


def failure_of(
    error: BaseException, stage: StageContext, component: str, *, txid: int, task: int
) -> TaskFailure:
    """Return an exception that a task raised, as data."""
    note = (
        f"in task {task} of {component!r} of topology {stage.compiled.topology_id!r}, "
        f"txid {txid}, {stage.chain} phase:\n{traceback_of(error)}"
    )
    return TaskFailure(txid, stage.level, component, task, pickled_error(error, component), note)


def error_of(failure: TaskFailure) -> Exception:
    """Return the exception of a failure, with a note that says where it was raised."""
    return unpickled_error(failure.error, failure.component, failure.note)


def traceback_of(error: BaseException) -> str:
    """Return the traceback of an exception; a long one is shortened."""
    return shortened("".join(traceback.format_exception(error)))


def missing_module(name: str) -> TopologyError:
    """Return the error for a module that workers cannot import."""
    if name.partition(".")[0] in _INSTALLED:
        return TopologyError(
            f"a worker cannot import {name!r}, which txtopo needs there; install txtopo and its "
            "dependencies in the Python of every executor (spark.pyspark.python, "
            "PYSPARK_PYTHON), or ship an environment with spark.archives (to a Spark Connect "
            "server with addArtifacts of the session)",
            module=name,
        )
    if name in EXTRAS:
        return TopologyError(
            f"a worker cannot import {name!r}, of the package {EXTRAS[name].package}; install it "
            f"in the Python of every executor with: {EXTRAS[name].command}; or ship an "
            "environment with spark.archives",
            module=name,
        )
    return TopologyError(
        f"a worker cannot import the module {name!r}; put it on every executor with --py-files, "
        "spark.archives or an image (of a Spark Connect server with addArtifacts of the session), "
        "or define the class in the main script",
        module=name,
    )


def pickled_error(error: BaseException, component: str) -> bytes:
    """Pickle an exception, or one with its text if it cannot be pickled."""
    if isinstance(error, ConfigError) and isinstance(error.__cause__, ModuleNotFoundError):
        error = error.__cause__  # an extra that the driver has and this process lacks
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
    return dumps(_replacement(error, component))


def unpickled_error(pickled: bytes, component: str, note: str) -> Exception:
    """Unpickle the result of :func:`pickled_error`, and add a note to the exception."""
    try:
        error = loads(pickled)
        error.add_note(note)
    except Exception as unreadable:  # noqa: BLE001 - a class of the user's may raise anything
        error = BoltError(
            f"{component!r} failed with an exception that cannot be read here ({unreadable}); see "
            "the log of its task, and make the exception picklable",
            component=component,
        )
        error.add_note(note)
    assert isinstance(error, Exception)
    return error


def _replacement(error: BaseException, component: str) -> Exception:
    for kind in (FailedException, InfrastructureError):
        if isinstance(error, kind):
            return kind(text_of(error))
    return BoltError(
        f"{component!r} raised {type(error).__name__}: {text_of(error)}",
        component=component,
        got=type(error).__name__,
    )
