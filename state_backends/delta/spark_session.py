"""What a Spark session needs to write Delta tables: two jars and two settings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JARS = "TXTOPO_JARS"
"""Environment variable with the folder of the jars; default: ``jars`` in the environment."""
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def session_conf() -> dict[str, str]:
    """Return the settings of a session that reads and writes Delta tables.

    For a session of your own use ``builder.config(map=session_conf())``, or ``--packages``. On a
    cluster the executors need the jars too (``spark.jars``).

    Raises:
        ConfigError: The jars are missing; the message names the command that fetches them.
    """
    folder = Path(os.environ.get(JARS) or Path(sys.prefix) / "jars")
    jars = [str(path.resolve()) for path in sorted(folder.glob("delta-*.jar"))]
    if not any(Path(jar).name.startswith("delta-spark_") for jar in jars):
        raise ConfigError(
            f"Spark cannot write Delta tables without the jars of delta-spark; got none in "
            f"{str(folder)!r}; run make delta-jar, which fetches them, or name their folder in the "
            f"environment variable {JARS}; states in Delta without ?writer=spark need none",
            path=str(folder),
        )
    return {
        "spark.driver.extraClassPath": os.pathsep.join(jars),
        "spark.sql.extensions": _EXTENSION,
        "spark.sql.catalog.spark_catalog": _CATALOG,
    }


def check_session(spark: SparkSession) -> None:
    """Check that a session can read and write Delta tables.

    Raises:
        ConfigError: It cannot; the message names what is missing.
    """
    if "connect" in type(spark).__module__:
        raise ConfigError(
            "a Spark Connect session cannot write states in Delta: each merge needs a session of "
            "its own with its own transaction, in the JVM of the driver; expected a classic "
            "session, or states without ?writer=spark, which the driver writes by delta-rs"
        )
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if _EXTENSION in extensions:
        return
    raise ConfigError(
        "the Spark session cannot read and write Delta tables; got "
        f"spark.sql.extensions={extensions!r}; expected {_EXTENSION} in it, {_CATALOG} as "
        "spark.sql.catalog.spark_catalog, and the jars of delta-spark (make delta-jar fetches "
        "them); build the session with state_backends.delta.session_conf(), or let txtopo build "
        "it; states in Delta without ?writer=spark need none of it",
        setting="spark.sql.extensions",
        got=extensions,
        expected=_EXTENSION,
    )
