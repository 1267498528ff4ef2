"""Spark's log: hides what Spark writes because txtopo cancels a job, or because the driver is dead.

Both are expected and do not concern a user. Everything else that Spark logs stays, including other
lines of the same loggers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

# First, a warning for each task of a cancelled job. Second, a stack trace for each task that ends
# in the half second in which the JVM outlives its killed Python. All accumulators of Python are in
# number 0; if that fails while Python is alive, Python has already printed the reason.
_EXPECTED = (
    r"(?s).*cancelled job group txtopo:.*"
    r"|Failed to update accumulator 0 \(org\.apache\.spark\.api\.python\.PythonAccumulatorV2\).*"
)

_DONE = "txtopo.log.filtered"


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
