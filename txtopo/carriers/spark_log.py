"""Spark's log: without the stack traces of Java, and without what is expected.

Expected is what Spark writes because txtopo cancels a job, or because the driver is dead. It does
not concern a user. Everything else that Spark logs stays, including other lines of the same
loggers. In a JVM that txtopo starts, an exception is its first line, unless
``TXTOPO_TRACEBACK`` is set, or Spark or log4j is configured by the user.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from txtopo.uncaught import TRACEBACK

if TYPE_CHECKING:
    from pyspark import SparkContext

# First, a warning for each task of a cancelled job. The others are errors, most with a stack trace,
# of each task that ends in the half second in which the JVM outlives its killed Python. All
# accumulators of Python are in number 0; if that fails while Python is alive, Python has already
# printed the reason. If a worker dies while Python is alive, Spark's next line says so again: "Lost
# task …". A listener fails where the block that it would release is gone already.
_EXPECTED = (
    r"(?s).*cancelled job group txtopo:.*"
    r"|Failed to update accumulator 0 \(org\.apache\.spark\.api\.python\.PythonAccumulatorV2\).*"
    r"|Exception in task .*Python worker exited unexpectedly.*"
    r"|Error in TaskCompletionListener"
)

_DONE = "txtopo.log.filtered"
_CONFIGURATION = "LOG4J_CONFIGURATION_FILE"


@contextmanager
def short_log() -> Iterator[None]:
    """Give a JVM that is started meanwhile a log without stack traces."""
    file = Path(__file__).with_name("log4j2.properties")
    # The file does not exist where txtopo is imported from a zip.
    if _configured() or TRACEBACK in os.environ or not file.exists():
        yield
        return
    os.environ[_CONFIGURATION] = file.resolve().as_uri()
    try:
        yield
    finally:
        del os.environ[_CONFIGURATION]


def _configured() -> bool:
    """Return whether the user has configured the log."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    return _CONFIGURATION in os.environ or bool(folder and [*Path(folder).glob("log4j2*.*")])


def hide_expected_lines(context: SparkContext) -> None:
    """Filter the log of the driver's JVM, once for each JVM."""
    from py4j.protocol import Py4JError

    jvm: Any = context._jvm
    properties = jvm.java.lang.System.getProperties()
    if properties.putIfAbsent(_DONE, "yes") is not None:
        return
    log4j = jvm.org.apache.logging.log4j
    try:
        result = log4j.core.Filter.Result
        flags = context._gateway.new_array(jvm.java.lang.String, 0)  # type: ignore[union-attr]
        expected = log4j.core.filter.RegexFilter.createFilter(
            _EXPECTED, flags, False, result.DENY, result.NEUTRAL
        )
        log4j.LogManager.getContext(False).getConfiguration().getRootLogger().addFilter(expected)
    except (Py4JError, TypeError):
        return  # this Spark does not log with log4j 2
