"""What a Spark session needs to write Delta tables: the jars of delta-spark, and two settings.

The jars are in a folder of this machine, or Spark fetches them from Maven when the session starts,
as ``configure_spark_with_delta_pip`` of the package delta-spark has it.
"""

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

PACKAGES = "spark.jars.packages"

_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def session_conf() -> dict[str, str]:
    """Return the settings of a session that reads and writes Delta tables.

    Jars in the folder that ``TXTOPO_JARS`` names, by default ``jars`` in the environment, are used
    as they are; on a cluster the executors need them too (``spark.jars``). Without any, Spark
    fetches those of the installed delta-spark from Maven, once, and gives them to the executors.

    For a session of your own use ``builder.config(map=session_conf())``.

    Raises:
        ConfigError: The folder that ``TXTOPO_JARS`` names has no jars; the message says what to do.
    """
    settings = {"spark.sql.extensions": _EXTENSION, "spark.sql.catalog.spark_catalog": _CATALOG}
    if jars := local_jars():
        return {"spark.driver.extraClassPath": os.pathsep.join(jars), **settings}
    if named := os.environ.get(JARS):
        raise ConfigError(
            "Spark cannot write Delta tables without the jars of delta-spark; got none in "
            f"{named!r}, the value of the environment variable {JARS}; expected delta-spark_….jar "
            "and delta-storage-….jar there; unset the variable to let Spark fetch them from "
            "Maven; states in Delta without ?writer=spark need none if the extra txtopo[delta] "
            "is installed",
            path=named,
        )
    return {PACKAGES: _packages(), **settings}


def local_jars() -> list[str]:
    """Return the jars of delta-spark on this machine; none if those of the writer are missing."""
    folder = Path(os.environ.get(JARS) or Path(sys.prefix) / "jars")
    jars = [str(path.resolve()) for path in sorted(folder.glob("delta-*.jar"))]
    written = any(Path(jar).name.startswith("delta-spark_") for jar in jars)
    return jars if written else []


def _packages() -> str:
    """Return the packages of Maven that belong to the installed delta-spark and PySpark."""
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    options = configure_spark_with_delta_pip(SparkSession.Builder())._options
    return str(options[PACKAGES])


def check_session(spark: SparkSession) -> None:
    """Check that a session can read and write Delta tables.

    Raises:
        ConfigError: It cannot; the message names what is missing.
    """
    if "connect" in type(spark).__module__:
        raise ConfigError(
            "a Spark Connect session cannot write states in Delta: each merge needs its own "
            "session with its own transaction, in the JVM of the driver; expected a classic "
            "session, or states without ?writer=spark, which the driver writes with delta-rs if "
            "the extra txtopo[delta] is installed"
        )
    extensions = spark.conf.get("spark.sql.extensions", "") or ""
    if _EXTENSION in extensions:
        return
    raise ConfigError(
        "the Spark session cannot read and write Delta tables; got "
        f"spark.sql.extensions={extensions!r}; expected {_EXTENSION} in it, {_CATALOG} as "
        "spark.sql.catalog.spark_catalog, and the jars of delta-spark; build the session with "
        "state_backends.delta.session_conf(), or let txtopo build it; states in Delta without "
        "?writer=spark need none of it if the extra txtopo[delta] is installed",
        setting="spark.sql.extensions",
        got=extensions,
        expected=_EXTENSION,
    )
