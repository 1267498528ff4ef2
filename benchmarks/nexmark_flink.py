"""The queries of NEXMark in SQL for Apache Flink, and the cluster that they run on.

* **The cluster** is Flink's own: a JobManager, and a TaskManager with two slots and a heap of
  2 GB, as processes of this machine on loopback. It is up before the clock starts, as the Spark
  session of the other ways is. A third Java process is the client: Python passes it the SQL over
  Py4J, as PyFlink does, and it plans the query and submits it. The clock runs from the definition
  of the tables until the job has ended, which it does when all its rows are committed.
* **The mode** is streaming, with parallelism 2 and the state on the heap. Mini-batches are
  switched on and the last checkpoint is off, as in the settings of github.com/nexmark/nexmark.
* **Checkpoints** are taken every 500 ms, and the sink flushes in each. In most queries that lies
  between the times that txtopo takes for a batch of 10,000 and for one of 100,000 events.
* **The source** is Flink's ``FileSource`` with its vectorised reader of Parquet, and it reads only
  the columns that a query names. By default it takes the files in any order, so Flink drops many
  events as late: ``q5`` then has half of its rows. Here another of Flink's assigners takes the
  files in the order of their names. Each of the two readers then sees times that are out of order
  by ``delayed_by_ms`` at most. The watermark follows at that distance, so no event is late.
* **The sink** is the JDBC connector: an upsert by primary key in batches of up to 5,000 rows, which
  the driver rewrites to statements of many rows. It is at least once: after a failure some rows
  are upserted again, and until then readers see rows that no checkpoint has.

The queries are those of nexmark/nexmark, with these differences:

* ``q4`` and ``q9`` bound the join by the longest time that an auction is open, and ``q20`` by what
  the generator can make, as in the other ways. So Flink can forget old rows.
* ``q9``, ``q18`` and ``q19`` order equal rows by the id of the bid, since results are compared.
* ``q7`` takes the first row of each window, so of equal bids one. The join of the original takes
  1.5 to 2 times as long. ``q11`` calls the newer function for sessions.
* ``q13`` looks its side input up in PostgreSQL, with a cache.
* ``q12`` is missing: Flink drops windows of processing time that are open when the files end.
"""

from __future__ import annotations

import datetime
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import urlopen

import psycopg
import pyarrow.csv as csv

from benchmarks.nexmark_store import TABLES, Table
from benchmarks.store import plain
from examples.nexmark.generator import FIELDS, Generator, Kind
from examples.nexmark.queries import SIDE_INPUT
from tests.harness.servers.private import PrivateServer, free_port, installed
from tests.harness.servers.zookeeper import find_java

PARALLELISM = 2
CHECKPOINTS_MS = 500
_POM = Path(__file__).with_name("pom.xml")

FLINK_TABLES: Mapping[str, Table] = {**TABLES, "q4": Table("category bigint, price float8")}
"""The table of each query; in ``q4`` Flink itself computes the mean, as txtopo does."""

_COUNTS = """
    SELECT window_start, window_end, auction, COUNT(*) AS num
    FROM TABLE(HOP(TABLE bids, DESCRIPTOR(date_time), INTERVAL '2' SECOND, INTERVAL '10' SECOND))
    GROUP BY window_start, window_end, auction"""
_WON = """
    SELECT a.id, a.category, b.id AS bid, b.bidder, b.price, b.date_time AS bid_time
    FROM auctions a JOIN bids b ON a.id = b.auction
    AND b.date_time BETWEEN a.date_time AND a.date_time + {longest_auction}
    AND b.date_time <= a.expires"""

FLINK: Mapping[str, str] = {
    "q0": "SELECT id, auction, bidder, price, channel, url, date_time, extra FROM bids",
    "q1": """
        SELECT id, auction, bidder, CAST(0.908 * price AS DECIMAL(18, 3)), date_time FROM bids""",
    "q2": "SELECT id, auction, price FROM bids WHERE MOD(auction, 123) = 0",
    "q3": """
        SELECT a.id, p.name, p.city, p.state
        FROM auctions a JOIN persons p ON a.seller = p.id
        WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": f"""
        SELECT category, AVG(CAST(price AS DOUBLE))
        FROM (SELECT category, MAX(price) AS price FROM ({_WON}) GROUP BY id, category)
        GROUP BY category""",
    "q5": f"""
        SELECT c.window_start, c.auction, c.num
        FROM ({_COUNTS}) c JOIN (
            SELECT window_start, window_end, MAX(num) AS num FROM ({_COUNTS})
            GROUP BY window_start, window_end
        ) m ON c.window_start = m.window_start AND c.window_end = m.window_end AND c.num = m.num""",
    "q7": """
        SELECT window_start, window_end, price, id, auction, bidder
        FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY window_start, window_end ORDER BY price DESC
            ) AS place
            FROM TABLE(TUMBLE(TABLE bids, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
        ) WHERE place <= 1""",
    "q8": """
        SELECT p.window_start, p.id, p.name
        FROM (
            SELECT id, name, window_start, window_end
            FROM TABLE(TUMBLE(TABLE persons, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
            GROUP BY id, name, window_start, window_end
        ) p JOIN (
            SELECT seller, window_start, window_end
            FROM TABLE(TUMBLE(TABLE auctions, DESCRIPTOR(date_time), INTERVAL '10' SECOND))
            GROUP BY seller, window_start, window_end
        ) a ON p.id = a.seller
        AND p.window_start = a.window_start AND p.window_end = a.window_end""",
    "q9": f"""
        SELECT id, bid, bidder, price, bid_time
        FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY id ORDER BY price DESC, bid_time ASC, bid ASC
            ) AS place FROM ({_WON})
        ) WHERE place <= 1""",
    "q11": """
        SELECT bidder, window_start, window_end, COUNT(*)
        FROM TABLE(SESSION(
            TABLE bids PARTITION BY bidder, DESCRIPTOR(date_time), INTERVAL '10' SECOND
        )) GROUP BY bidder, window_start, window_end""",
    "q13": """
        SELECT b.id, b.auction, b.bidder, b.price, b.date_time, s.`key`, s.item
        FROM (SELECT *, PROCTIME() AS asked FROM bids) b
        JOIN side FOR SYSTEM_TIME AS OF b.asked AS s ON MOD(b.auction, 100) = s.`key`""",
    "q18": """
        SELECT bidder, auction, id, price, date_time
        FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY bidder, auction ORDER BY date_time DESC, id DESC
            ) AS place FROM bids
        ) WHERE place <= 1""",
    "q19": """
        SELECT id, auction, bidder, price
        FROM (
            SELECT *, ROW_NUMBER() OVER (
                PARTITION BY auction ORDER BY price DESC, CAST(id AS STRING) DESC
            ) AS place FROM bids
        ) WHERE place <= 10""",
    "q20": """
        SELECT b.id, a.id, a.item_name, a.initial_bid, a.reserve, a.date_time, a.expires, a.seller,
            a.category, b.bidder, b.price, CAST(b.date_time AS TIMESTAMP(3))
        FROM auctions a JOIN bids b ON a.id = b.auction
        AND b.date_time BETWEEN a.date_time - {longest_wait} AND a.date_time + {longest_wait}
        WHERE a.category = 10""",
}
"""The queries by name."""

_READ = {"long": "BIGINT", "string": "STRING", "timestamp": "TIMESTAMP(3)"}
_STORED = {
    "bigint": "BIGINT",
    "text": "STRING",
    "timestamptz": "TIMESTAMP(3)",
    "numeric(18,3)": "DECIMAL(18, 3)",
    "float8": "DOUBLE",
}
_SIDE = Table("key bigint, item text")
_OF_SIDE = {"lookup.cache": "PARTIAL", "lookup.partial-cache.max-rows": "1000"}
_OF_RESULTS = {"sink.buffer-flush.max-rows": "5000", "sink.buffer-flush.interval": "1 s"}
# Hands out the files of a source in order, the last one first. The assigner is Flink's, but a
# source needs a factory of it that can be serialised. Janino, which Flink compiles its queries
# with, compiles it without a JDK.
_IN_ORDER = """
    import java.util.Collection;
    import org.apache.flink.connector.file.src.assigners.*;
    public class InOrder implements FileSplitAssigner.Provider {
        public FileSplitAssigner create(Collection splits) {
            return new SimpleSplitAssigner(splits);
        }
    }"""
_JVM = (
    "-Duser.timezone=UTC",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    # The settings of env.java.opts.all that come with Flink, as far as these queries need them.
    *(
        f"--add-opens=java.base/{package}=ALL-UNNAMED"
        for package in (
            *("java.lang", "java.lang.reflect", "java.net", "java.io", "java.nio", "sun.nio.ch"),
            *("java.text", "java.time", "java.util", "java.util.concurrent"),
            *("java.util.concurrent.atomic", "java.util.concurrent.locks"),
        )
    ),
)
_SMALL = ("-Xmx512m", "-XX:+UseSerialGC")
_SETTINGS = {
    "jobmanager.rpc.address": "127.0.0.1",
    "jobmanager.bind-host": "127.0.0.1",
    "rest.address": "127.0.0.1",
    "rest.bind-address": "127.0.0.1",
    "taskmanager.host": "127.0.0.1",
    "taskmanager.bind-host": "127.0.0.1",
    "taskmanager.numberOfTaskSlots": str(PARALLELISM),
    # What Flink's scripts would compute from the size of the process.
    "taskmanager.cpu.cores": str(PARALLELISM),
    "taskmanager.memory.task.heap.size": "1792m",
    "taskmanager.memory.framework.heap.size": "256m",
    "taskmanager.memory.framework.off-heap.size": "128m",
    "taskmanager.memory.task.off-heap.size": "128m",
    "taskmanager.memory.managed.size": "128m",
    "taskmanager.memory.network.min": "128m",
    "taskmanager.memory.network.max": "128m",
    "taskmanager.memory.jvm-metaspace.size": "256m",
    "taskmanager.memory.jvm-overhead.min": "192m",
    "taskmanager.memory.jvm-overhead.max": "192m",
    "parallelism.default": str(PARALLELISM),
    "execution.runtime-mode": "STREAMING",
    "execution.attached": "false",
    "execution.checkpointing.interval": f"{CHECKPOINTS_MS} ms",
    "execution.checkpointing.checkpoints-after-tasks-finish.enabled": "false",
    # A failure ends the benchmark.
    "restart-strategy.type": "none",
    "pipeline.object-reuse": "true",
    "table.local-time-zone": "UTC",
    "table.exec.mini-batch.enabled": "true",
    "table.exec.mini-batch.allow-latency": "2 s",
    "table.exec.mini-batch.size": "50000",
    # No two results of a query have the same key, which Flink cannot know of all queries: without
    # these it would keep all rows of q19 once more, to put them in order, and refuse the others.
    "table.exec.sink.require-on-conflict": "false",
    "table.exec.sink.upsert-materialize": "NONE",
}


def jars() -> Path:
    """Return the folder where ``make flink`` puts the jars."""
    found = re.search(r"<flink.version>(.*)</flink.version>", _POM.read_text())
    assert found is not None
    return installed(f"flink-{found.group(1)}")


class FlinkCluster(PrivateServer):
    """A JobManager, a TaskManager and a client; a context manager that starts and stops them.

    Raises:
        FileNotFoundError: Flink's jars, or Java, are not there; the message says what is missing.
    """

    def __init__(self) -> None:
        spark = find_spec("pyspark")
        if not jars().is_dir():
            raise FileNotFoundError(f"no jars of Flink in {jars()}; run make flink")
        assert spark is not None
        assert spark.origin is not None
        self.folder = Path(tempfile.mkdtemp(prefix="txtopo-flink-"))
        (self.folder / "classes").mkdir()
        # Flink's reader of Parquet needs classes of Hadoop, which PySpark has.
        others = Path(spark.origin).parent / "jars"
        more = [str(jar) for name in ("hadoop-client", "py4j") for jar in others.glob(f"{name}*")]
        self._class_path = ":".join([f"{self.folder}/classes", f"{jars()}/*", *more])
        self._settings = _SETTINGS | {
            "jobmanager.rpc.port": str(free_port()),
            "rest.port": str(free_port()),
            "io.tmp.dirs": f"{self.folder}/temporary",
            "execution.checkpointing.dir": f"file://{self.folder}/checkpoints",
        }
        lines = (f"{name}: {value}\n" for name, value in self._settings.items())
        (self.folder / "config.yaml").write_text("".join(lines))
        self._processes: list[Any] = []
        self._gateway: Any = None

    def start(self) -> None:
        """Start all processes, and wait until the slots are there."""
        runtime = "org.apache.flink.runtime"
        try:
            self._launch(f"{runtime}.entrypoint.StandaloneSessionClusterEntrypoint", *_SMALL)
            worker = self._launch(f"{runtime}.taskexecutor.TaskManagerRunner", "-Xms2g", "-Xmx2g")
            self._start_client()
            self._wait_until_it_answers(worker, self._has_slots)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """End all processes."""
        if self._gateway is not None:
            self._gateway.shutdown()
            self._gateway = None
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def run(
        self, query: str, generator: Generator, files: Mapping[Kind, Sequence[str]], url: str
    ) -> None:
        """Run a query over some files, into the table ``results`` of a database.

        Args:
            query: The query.
            generator: What made the events.
            files: The files of each kind of events, in order.
            url: The database, which has the table.
        """
        jvm = self._gateway.jvm
        flink = jvm.org.apache.flink
        settings = flink.configuration.Configuration()
        for name, value in self._settings.items():
            settings.setString(name, value)
        streams = flink.streaming.api.environment.StreamExecutionEnvironment
        port, none = int(self._settings["rest.port"]), self._gateway.new_array(jvm.String, 0)
        streams = streams.createRemoteEnvironment("127.0.0.1", port, settings, none)
        tables = flink.table.api.bridge.java.StreamTableEnvironment.create(streams)
        # The braces of a query stand for what follows from the generator.
        text = FLINK[query].format(
            longest_auction=_interval(generator.longest_auction),
            longest_wait=_interval(generator.longest_wait),
        )
        for kind, paths in files.items():
            if _names(text, kind):
                self._define(tables, streams, kind, text, paths, generator.delayed_by_ms)
        if _names(text, "side"):
            _store_side(url)
            tables.executeSql(_stored("side", _SIDE, url, _OF_SIDE))
        table = FLINK_TABLES[query]
        tables.executeSql(_stored("results", table, url, _OF_RESULTS))
        names = ", ".join(f"`{name}`" for name in table.names)
        _wait(tables.executeSql(f"INSERT INTO results ({names}) {text}").getJobClient().get())

    def _define(
        self, tables: Any, streams: Any, kind: Kind, text: str, paths: Sequence[str], late_ms: int
    ) -> None:
        """Make the table of a kind of events, with the columns that the query names."""
        jvm = self._gateway.jvm
        flink = jvm.org.apache.flink
        types = {each.name: _READ[each.type] for each in FIELDS[kind] if _names(text, each.name)}
        columns = ", ".join(
            f"{name} {type}{' NOT NULL' * (name == 'id')}" for name, type in types.items()
        )
        loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
        parser = flink.table.types.logical.utils.LogicalTypeParser
        type = parser.parse(f"ROW<{columns}>", loader)
        info = flink.table.runtime.typeutils.InternalTypeInfo.of(type)
        hadoop = jvm.org.apache.hadoop.conf.Configuration()
        format = flink.formats.parquet.ParquetColumnarRowInputFormat(
            hadoop, type, info, 2048, True, True
        )
        array = self._gateway.new_array(flink.core.fs.Path, len(paths))
        for at, path in enumerate(reversed(paths)):
            array[at] = flink.core.fs.Path(path)
        source = flink.connector.file.src.FileSource.forBulkFileFormat(format, array)
        source = source.setSplitAssigner(jvm.InOrder()).build()
        unmarked = flink.api.common.eventtime.WatermarkStrategy.noWatermarks()
        stream = streams.fromSource(source, unmarked, kind)
        schema = flink.table.api.Schema.newBuilder()
        if "id" in types:
            schema = schema.primaryKey(["id"])
        if "date_time" in types:
            # An event that is as late as can be must still be after the watermark.
            late = _interval(datetime.timedelta(milliseconds=late_ms + 1))
            schema = schema.watermark("date_time", f"date_time - {late}")
        tables.createTemporaryView(kind, stream, schema.build())

    def _start_client(self) -> None:
        from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

        port, token, process = launch_gateway(
            classpath=self._class_path,
            javaopts=[*_JVM, *_SMALL],
            java_path=find_java(),
            die_on_exit=True,
            enable_auth=True,
            return_proc=True,
        )
        self._processes.append(process)
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True)
        )
        compiler = self._gateway.jvm.org.codehaus.janino.SimpleCompiler()
        compiler.cook(_IN_ORDER)
        for name, code in compiler.getBytecodes().items():
            (self.folder / "classes" / f"{name}.class").write_bytes(code)

    def _launch(self, main: str, *options: str) -> subprocess.Popen[bytes]:
        command = [find_java(), *_JVM, *options, "-cp", self._class_path, main]
        process = self._open([*command, "--configDir", str(self.folder)], cwd=self.folder)
        self._processes.append(process)
        return process

    def _has_slots(self) -> bool:
        address = f"http://127.0.0.1:{self._settings['rest.port']}/overview"
        try:
            with urlopen(address, timeout=1) as answer:
                return bool(json.load(answer)["slots-available"] == PARALLELISM)
        except (OSError, KeyError):
            return False


def _store_side(url: str) -> None:
    """Store the side input of ``q13``, which Flink looks up in the database."""
    columns = csv.read_csv(SIDE_INPUT)
    with psycopg.connect(plain(url)) as connection:
        connection.execute(f"CREATE TABLE side ({_SIDE.columns}, PRIMARY KEY (key))")
        connection.execute(
            "INSERT INTO side SELECT * FROM unnest(%s::bigint[], %s::text[])",
            [columns.column(name).to_pylist() for name in _SIDE.names],
        )


def _stored(name: str, table: Table, url: str, options: Mapping[str, str]) -> str:
    """Return the statement that makes a table of a database known to Flink."""
    types = dict(zip(table.names, table.types, strict=True))
    columns = ", ".join(f"`{name}` {_STORED[type]}" for name, type in types.items())
    key = ", ".join(f"`{name}`" for name in table.names[: table.key])
    parts = urlsplit(plain(url))
    options = {
        "connector": "jdbc",
        "url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}"
        "?reWriteBatchedInserts=true",
        "username": str(parts.username),
        "password": str(parts.password),
        "table-name": name,
        **options,
    }
    settings = ", ".join(f"'{name}' = '{value}'" for name, value in options.items())
    return f"CREATE TABLE {name} ({columns}, PRIMARY KEY ({key}) NOT ENFORCED) WITH ({settings})"


def _names(text: str, name: str) -> bool:
    """Return whether a query names a table or column."""
    return re.search(rf"\b{name}\b", text) is not None


def _interval(length: datetime.timedelta) -> str:
    """Return a length of time in SQL."""
    return f"INTERVAL '{length.total_seconds():.3f}' SECOND(3, 3)"


def _wait(job: Any) -> None:
    """Wait until a job has ended, and raise an exception if it has failed."""
    # To wait for the result at once takes longer: the client asks at ever longer intervals.
    while not job.getJobStatus().get().isGloballyTerminalState():
        time.sleep(0.02)
    job.getJobExecutionResult().get()
