"""The Spark session of a topology: the user's own, or one tuned for short jobs."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from txtopo.carriers.java import check_java
from txtopo.carriers.spark_home import check_spark_home
from txtopo.carriers.spark_log import short_log
from txtopo.config import AnyConfig, AtLeastOnceConfig
from txtopo.errors import ConfigError
from txtopo.extras import require

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

# A task of a batch takes 10 to 50 ms. With Spark's defaults each of the following costs more than
# that, measured on two cores with PySpark 4.2.
_TUNED = {
    # A Python stage costs 90 ms, of which 40 are Nagle's algorithm against delayed ACK on loopback.
    "spark.python.unix.domain.socket.enabled": "true",
    # 35 ms of gc.collect() per task.
    "spark.python.daemon.module": "txtopo.carriers.daemon",
    # 490 ms to start a worker.
    "spark.python.worker.reuse": "true",
    # Commits must not wait behind processing: they have a pool of their own.
    "spark.scheduler.mode": "FAIR",
    # By default a task waits 3 s for a core near its data; envelopes are not worth the wait.
    "spark.locality.wait": "0s",
    # It replans between stages, which costs more than it gains on small batches.
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
    # There are hundreds of jobs a minute. So the web UI keeps only a few, and the driver collects
    # garbage often, since Spark deletes shuffle files only then (every 30 minutes by default).
    "spark.ui.retainedJobs": "200",
    "spark.ui.retainedStages": "200",
    "spark.ui.retainedTasks": "2000",
    "spark.sql.ui.retainedExecutions": "100",
    "spark.cleaner.periodicGC.interval": "2min",
    # Spark's progress bar and INFO lines would break txtopo's progress bar.
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "WARN",
}

_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

PACKAGES = "spark.jars.packages"

# Settings that are lists: what a store needs is added to what the environment sets.
_LISTS = (PACKAGES, "spark.sql.extensions")

# Ids of the sessions that txtopo opened for a run and did not give to anyone else.
_own: set[str] = set()


def tuned_conf(master: str = "local[*]") -> dict[str, str]:
    """Return the settings of the sessions that txtopo builds, for a session of your own.

    Args:
        master: The master of the session. With a local master the session also binds to the
            loopback address only, shuffles to as many partitions as there are cores, and passes the
            import path to the workers.

    Example:
        >>> builder = SparkSession.builder
        >>> for name, value in tuned_conf().items():
        ...     builder = builder.config(name, value)
    """
    conf = dict(_TUNED)
    pools = Path(__file__).with_name("pools.xml")
    if pools.exists():  # It does not where txtopo is imported from a zip; Spark would not start.
        conf["spark.scheduler.allocation.file"] = pools.resolve().as_uri()
    if master.startswith("local"):
        conf |= _LOCAL
        conf["spark.sql.shuffle.partitions"] = str(os.cpu_count() or 1)
        path = os.pathsep.join(_import_path())
        if path:
            conf["spark.executorEnv.PYTHONPATH"] = path
    return conf


def check_config(config: object, kind: type[AnyConfig]) -> None:
    """Check that settings belong to a kind of topology.

    Raises:
        ConfigError: They belong to another kind, or are not settings.
    """
    if isinstance(config, kind):
        return
    topology = "an at-least-once topology" if kind is AtLeastOnceConfig else "this topology"
    raise ConfigError(
        f"config is of the wrong type; got {type(config).__name__}; {topology} needs "
        f"{'an' if kind is AtLeastOnceConfig else 'a'} {kind.__name__}(…)",
        setting="config",
        got=type(config).__name__,
        expected=kind.__name__,
    )


def check_given(spark: object) -> None:
    """Check the type of the argument *spark* of a start.

    Raises:
        ConfigError: It is not a session.
    """
    if isinstance(spark, AnyConfig | tuple | Mapping | str):
        raise ConfigError(
            f"spark is of the wrong type; got {type(spark).__name__}; expected a SparkSession or "
            "None; pass settings as start(config=Config(…)); if it comes from open_session(), "
            "that returns two values: the session, and whether txtopo built it",
            setting="spark",
            got=type(spark).__name__,
            expected="SparkSession",
        )


def open_session(
    spark: SparkSession | None = None,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "txtopo",
) -> tuple[SparkSession, bool]:
    """Return a session, and whether it was built here; if so, the caller must stop it.

    A given or active session is used unchanged; it is never reconfigured or stopped.

    Args:
        spark: The session to use; None uses the active session, or builds one.
        master: The master of a new session; by default ``spark.master`` if ``spark-submit`` or the
            environment sets it, else ``local[*]``.
        conf: More settings of a new session; they override the tuned ones.
        app_name: Name of a new session.

    Raises:
        ConfigError: *spark* is a master, there is no Java that can run Spark, SPARK_HOME points to
            another version of Spark, or a package is missing for SPARK_REMOTE; the message says how
            to repair it.
    """
    if isinstance(spark, str):
        raise ConfigError(
            f"spark is of the wrong type; got {spark!r}; expected a SparkSession or None; write "
            f"open_session(master={spark!r})",
            setting="spark",
            got=spark,
            expected="SparkSession",
        )
    session = spark if spark is not None else active_session()
    if session is not None:
        return session, False
    return _build(master, conf or {}, app_name), True


def open_own_session(
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    app_name: str = "txtopo",
) -> SparkSession:
    """Return a new session for a run, which txtopo gives to nobody else.

    ^C stays as it was. Spark's handler would cancel all jobs, those of the current commit as well;
    and where it interrupts a call of the JVM, Python prints three tracebacks.

    Args:
        master: As for :func:`open_session`.
        conf: More settings, as for :func:`open_session`.
        app_name: Its name.

    Raises:
        ConfigError: As :func:`open_session`.
    """
    session = _build(master, conf or {}, app_name, own=True)
    if is_classic(session):
        _own.add(session.sparkContext.applicationId)
    return session


def is_own(session: SparkSession) -> bool:
    """Return whether :func:`open_own_session` opened a session."""
    return session.sparkContext.applicationId in _own


def check_session(session: SparkSession | None) -> None:
    """Check that a session has not been stopped.

    Raises:
        ConfigError: It has been stopped; pass another one.
    """
    if session is None or not _has_stopped(session):
        return
    raise ConfigError(
        "the Spark session has been stopped; a topology needs a session, and a restart uses the "
        "same session as the start; start the topology with a new session, or restart the process",
        setting="spark",
    )


def is_stopped(context: SparkContext) -> bool:
    """Return whether a session was stopped."""
    java = context._jsc
    return java is None or bool(java.sc().isStopped())


def _has_stopped(session: SparkSession) -> bool:
    if is_classic(session):
        return is_stopped(session.sparkContext)
    return bool(getattr(session, "is_stopped", False))


def is_classic(session: SparkSession) -> bool:
    """Return whether a session is a classic one, and not of Spark Connect."""
    return hasattr(session, "_jvm") and type(session).__module__.startswith("pyspark.sql.session")


def active_session() -> SparkSession | None:
    """Return the session that is active in this process, if there is one."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _build(
    master: str | None, extra: Mapping[str, str], app_name: str, *, own: bool = False
) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    if "SPARK_REMOTE" in os.environ:
        require("grpc", "SPARK_REMOTE")
        return SparkSession.builder.getOrCreate()
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        # Started by spark-submit: its settings are in the JVM and override the tuned ones.
        SparkContext._ensure_initialized()
    if SparkContext._gateway is None:
        check_spark_home()
        check_java()
    conf = SparkConf()
    if master is not None:
        conf.setMaster(master)
    conf.setIfMissing("spark.master", "local[*]")
    conf.setIfMissing("spark.app.name", app_name)
    for name, value in extra.items():
        conf.set(name, added(conf.get(name), value) if name in _LISTS else value)
    chosen = str(conf.get("spark.master"))
    for name, value in tuned_conf(chosen).items():
        conf.setIfMissing(name, value)
    interrupted = signal.getsignal(signal.SIGINT)
    try:
        with short_log():
            SparkContext.getOrCreate(conf)
        if own and interrupted is not None:
            with suppress(ValueError):  # In another than the main thread, Spark sets no handler.
                signal.signal(signal.SIGINT, interrupted)
        session = SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkRuntimeError as error:
        if PACKAGES not in extra:
            raise
        raise not_fetched(error, extra[PACKAGES]) from error
    if chosen.startswith("local") and "PYSPARK_PYTHON" not in os.environ:
        # Spark would use the first python3 in PATH, which may belong to another environment.
        session.sparkContext.pythonExec = sys.executable
    return session


def added(given: str | None, value: str) -> str:
    """Return a list of a setting with what a store needs; what the environment set is kept."""
    items = [] if not given else given.split(",")
    return ",".join([*items, *(each for each in value.split(",") if each not in items)])


def not_fetched(error: Exception, packages: str) -> ConfigError:
    """Return the error for a session that did not start, perhaps for lack of its packages."""
    return ConfigError(
        f"Spark did not start; got {error}; expected it to fetch {packages} from Maven, which "
        "needs a network at the first start; check what Spark has printed; without a network, "
        "put the jars of delta-spark into a folder, and set the environment variable TXTOPO_JARS "
        "to it",
        setting=PACKAGES,
        got=packages,
    )


def _import_path() -> list[str]:
    """Return the import path of this process, without the interpreter's own folders.

    With it, workers on this machine find the same modules: the script's folder, and txtopo itself
    when it runs from a checkout.
    """
    own = [Path(prefix).resolve() for prefix in {sys.prefix, sys.base_prefix}]
    folders = [Path(entry or os.curdir).resolve() for entry in sys.path]
    folders.append(Path(__file__).resolve().parents[2])
    mine = [f for f in folders if f.exists() and not any(f.is_relative_to(p) for p in own)]
    return [str(folder) for folder in dict.fromkeys(mine)]
