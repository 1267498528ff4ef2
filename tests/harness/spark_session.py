"""Open the Spark sessions of the tests: small, quick to start and quick to lose an executor."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from state_backends.delta import session_conf
from state_backends.delta.spark_session import local_jars
from txtopo.carriers.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# A JVM of the tests lives for seconds. Compiling with only C1 halves the processor time of a start
# with its first jobs (21 s to 11 s on a busy machine), and a collector without threads is enough.
# Spark's classes, verified in every other JVM, are 3 s of the 16 s of a start with a short query.
SHORT_LIVED = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC "
    "-XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
_SMALL = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": SHORT_LIVED,
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    # Else a task asks a dead executor for its files for 15 s.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "200ms",
}


def delta_conf() -> dict[str, str] | None:
    """Return the settings of a session that writes Delta tables; None if the jars are missing."""
    return session_conf() if local_jars() else None


def open_test_session(
    master: str = "local[2]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a new session; the caller stops it."""
    settings = {**_SMALL, **(delta_conf() or {}), **(conf or {})}
    session, owned = open_session(master=master, conf=settings, app_name="txtopo-tests")
    assert owned, "another Spark session is active; stop it first"
    session.sparkContext.setLogLevel("OFF")
    return session


def launch_test_jvm() -> Any:
    """Start a JVM as a Spark driver has it, without a session; the caller ends it."""
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", SHORT_LIVED)
    return launch_gateway(conf)  # type: ignore[no-untyped-call]
