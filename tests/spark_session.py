"""The Spark session of the tests: one for the whole run, tuned and small."""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.runtime.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
}


def open_test_session(master: str = "local[2]") -> SparkSession:
    """Return a new session; the caller stops it."""
    session, owned = open_session(master=master, conf=_SMALL, app_name="txtopo-tests")
    assert owned, "another Spark session is active; stop it first"
    session.sparkContext.setLogLevel("OFF")
    return session
