"""A Spark session that writes Delta tables, with as many partitions as this machine has cores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_backends.delta import session_conf
from txtopo import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def delta_session() -> SparkSession:
    """Return a new session; the caller stops it.

    Raises:
        ConfigError: The jars are not there; the message names the command that fetches them.
    """
    conf = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "false", **session_conf()}
    session, _ = open_session(app_name="txtopo-benchmarks", conf=conf)
    # Else each merge tells that what it checkpointed on this machine would be lost with it.
    session.sparkContext.setLogLevel("ERROR")
    return session
