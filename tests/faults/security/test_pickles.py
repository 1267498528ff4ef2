"""Nothing pickled is ever read from ZooKeeper, a store or a source.

Whoever could write there would run code here. Pickles that show when they are read are put into
every place that is read back, one after the other. Each reader either refuses what it finds, or
takes it for the text or the bytes that it is.
"""

from __future__ import annotations

import ast
import base64
import contextlib
import itertools
import pickle
import shutil
import sqlite3
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from tests.faults.bad_inputs.topologies import keeping
from tests.faults.security.canary import Canary
from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Storage, running
from tests.harness.servers.redis import RedisServer
from tests.harness.servers.zookeeper import ZooKeeperProcess
from tests.unit.sources.driving import Planner, emit
from tests.unit.sources.files import FORMATS, spout
from tests.unit.state.backing_maps import STORES, open_map
from txtopo import (
    Config,
    Fields,
    PersistentAggregate,
    Topology,
    TransactionalTopologyBuilder,
    ZooKeeper,
)
from txtopo.errors import CorruptNodeError, TxtopoError
from txtopo.plugins.stores import backing_map_factory
from txtopo.runtime.start import start_topology
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import Count, CountDistinct, TopN, open_state, register_backend

ROOT = Path(__file__).parents[3]
ROWS = [["a", 1], ["b", 2], ["a", 3]]
MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "marshal", "shelve", "joblib", "jsonpickle"}
CALLS = {"eval", "exec", "compile", "__import__"}


@pytest.fixture
def canary(tmp_path: Path) -> Iterator[Canary]:
    canary = Canary(tmp_path)
    yield canary
    assert not canary.is_dead


@pytest.mark.parametrize("at", range(3))
def test_the_canary_dies_when_it_is_read(tmp_path: Path, at: int) -> None:
    """Else nothing here could fail."""
    canary = Canary(tmp_path)
    data = canary.pickles()[at]
    pickle.loads(base64.b64decode(data) if at == 2 else data)

    assert canary.is_dead


def test_pickles_are_made_and_read_in_one_place() -> None:
    """What is read there comes from this program's own driver and workers.

    The suites send work to processes of their own, by a pipe.
    """
    found = {
        str(path.relative_to(ROOT))
        for path, tree in sources()
        for node in ast.walk(tree)
        if MODULES & imported(node)
    }

    assert found == {"txtopo/stages/pickling.py", "txtopo/testing/conformance/deaths.py"}


def test_nobody_who_reads_from_outside_can_reach_that_place() -> None:
    outside = ("txtopo/ensemble/", "txtopo/state/", "txtopo/spouts/", "state_backends/")
    users = {
        str(path.relative_to(ROOT))
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module == "txtopo.stages.pickling"
    }

    assert users
    assert not [user for user in users if user.startswith(outside)]


def test_no_text_is_run_as_code() -> None:
    found = {
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in CALLS
    }

    assert found == set()


@pytest.mark.service("zookeeper")
def test_zookeeper(zookeeper: ZooKeeperProcess, canary: Canary, tmp_path: Path) -> None:
    """Every node, also that of a candidate which waits before us."""
    storage = Storage.in_sqlite(tmp_path)
    chroot = f"/{uuid.uuid4().hex}"
    config = Config(
        carrier="local",
        zookeeper=ZooKeeper(f"{zookeeper.hosts}{chroot}", session_timeout_s=4),
        attempts_max=1,
        backoff_s=0.01,
    )
    start_until_it_ends(storage, config)
    client = KazooClient(f"{zookeeper.hosts}{chroot}")
    client.start(30)
    nodes = below(client, "/keeping")
    refused = set()
    for path in nodes:
        kept = client.get(path)[0]
        for pickled in canary.pickles():
            client.set(path, pickled)
            try:
                start_until_it_ends(storage, config)
            except CorruptNodeError:
                refused.add(path.removeprefix("/keeping/").partition("/0")[0])
        client.set(path, kept)
    (queue,) = (path for path in nodes if path.endswith("/leader"))
    for pickled in canary.pickles():
        rival = client.create(f"{queue}/rival-0000000000", pickled, ephemeral=True)
        with pytest.raises(CorruptNodeError):
            start_until_it_ends(storage, config)
        client.delete(rival)
    client.stop()
    client.close()
    assert refused >= {"epoch", "current", "batches"}


@pytest.mark.integration
def test_sqlite(canary: Canary, tmp_path: Path) -> None:
    """Every cell of every table; the ledger and the declarations of columns among them."""
    storage = Storage.in_sqlite(tmp_path)
    aggregate_until_it_ends(storage)
    file, whole = tmp_path / "states.db", tmp_path / "whole.db"
    shutil.copy(file, whole)
    cells = list(cells_of(whole))
    assert len(cells) > 12
    forms = itertools.cycle((canary.pickles()[0], canary.pickles()[1].decode()))
    for (table, column), pickled in zip(cells, forms, strict=False):
        shutil.copy(whole, file)
        with contextlib.closing(sqlite3.connect(file)) as connection:
            connection.execute("PRAGMA ignore_check_constraints = 1")
            with contextlib.suppress(sqlite3.Error), connection:
                connection.execute(f'UPDATE "{table}" SET "{column}" = ?', (pickled,))
        use(storage)


@pytest.mark.service("redis")
def test_redis(redis_server: RedisServer, canary: Canary) -> None:
    from redis import Redis

    database = 41
    for key in ("head", "rows", "touched", "deleted", "states"):
        for pickled in canary.pickles():
            storage = Storage(redis_server.empty(database))
            aggregate_until_it_ends(storage)
            with Redis.from_url(storage.url) as client:
                for name in client.scan_iter(f"txtopo:*{key}"):
                    kind = client.type(name)
                    fields = client.hkeys(name) if kind == b"hash" else []
                    for field in fields:
                        client.hset(name, field, pickled)
                    if kind == b"string":
                        client.set(name, pickled)
                    elif kind == b"set":
                        client.sadd(name, pickled)
                    elif kind == b"list":
                        client.rpush(name, pickled)
            use(storage)


@pytest.mark.integration
def test_delta(canary: Canary, tmp_path: Path) -> None:
    """Each file: the log, the data, and what else lies in the folder."""
    whole, folder = tmp_path / "whole", tmp_path / "states"
    storage = Storage(f"delta://{folder}")
    aggregate_until_it_ends(storage)
    folder.rename(whole)
    files = [path.relative_to(whole) for path in whole.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".json", ".parquet"}
    for name in files[:6] + files[-6:]:
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        (folder / name).write_bytes(canary.pickles()[0])
        use(storage)


def test_backing_maps(canary: Canary) -> None:
    """Every document that a plug-in of two methods keeps."""
    register_backend("canary-map", backing_map_factory(open_map))
    url = f"canary-map://{uuid.uuid4().hex}"
    storage = Storage(url)
    aggregate_until_it_ends(storage)
    whole = dict(STORES[url])
    assert len(whole) > 3
    for key in whole:
        for pickled in canary.pickles()[1:]:
            STORES[url].clear()
            STORES[url].update(whole | {key: pickled.decode()})
            use(storage)


@pytest.mark.parametrize("format", FORMATS)
def test_files(canary: Canary, tmp_path: Path, format: str) -> None:
    for at, pickled in enumerate(canary.pickles()):
        folder = tmp_path / f"files{at}"
        folder.mkdir()
        (folder / "data").write_bytes(pickled)
        made = spout(folder, format)
        with contextlib.suppress(Exception):
            for metadata in Planner(made).all():
                emit(made, metadata)


def test_tuples(canary: Canary, tmp_path: Path) -> None:
    """Bytes and texts that a spout brings are kept as they are."""
    storage = Storage.in_sqlite(tmp_path)
    pickled = canary.pickles()
    rows = [[str(at), each] for at, each in enumerate(pickled)]
    fields = Fields("key string, value binary")
    topology = keeping(storage, rows, fields, value="value binary")
    with running(topology, storage, LOCAL) as run:
        run.process_all_available(LIMIT_S)

    assert storage.read("kept") == {str(at): each for at, each in enumerate(pickled)}


def aggregating(storage: Storage) -> Topology:
    """Return a topology whose state has what a database combines, and what Python does."""
    spout = MemoryTransactionalSpout({0: ROWS}, Fields("key string, value long"), 1)
    builder = TransactionalTopologyBuilder("keeping", "spout", spout)
    aggregates = {"n": Count(), "distinct": CountDistinct("value"), "top": TopN("value")}
    total = PersistentAggregate(storage.state("kept"), "key", aggregates)
    builder.set_bolt("sum", total).fields_grouping("spout", "key")
    return builder.build_topology()


def aggregate_until_it_ends(storage: Storage) -> None:
    with running(aggregating(storage), storage, LOCAL) as run:
        run.process_all_available(LIMIT_S)


def use(storage: Storage) -> None:
    """Read a state and continue with its topology, as far as that goes."""
    with (
        contextlib.suppress(TxtopoError),
        open_state(storage.url, table="kept").reader() as reader,
    ):
        _ = reader.ledger, list(reader.items()), reader.get("a")
    with contextlib.suppress(TxtopoError):
        aggregate_until_it_ends(Storage(storage.url, ensemble=storage.ensemble))


def start_until_it_ends(storage: Storage, config: Config) -> None:
    topology = keeping(storage, [["a", 1], ["b", 2]])
    with start_topology(topology.graph, None, config) as run:
        run.process_all_available(LIMIT_S)


@cache
def sources() -> list[tuple[Path, ast.Module]]:
    folders = (ROOT / "txtopo", ROOT / "state_backends")
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [(path, ast.parse(path.read_text())) for path in paths]


def imported(node: ast.AST) -> set[str]:
    """Return the modules and names that a statement imports."""
    if isinstance(node, ast.Import):
        return {part for alias in node.names for part in alias.name.split(".")}
    if isinstance(node, ast.ImportFrom):
        return {*(node.module or "").split("."), *(alias.name for alias in node.names)}
    return set()


def below(client: KazooClient, path: str) -> list[str]:
    children = [f"{path}/{name}" for name in client.get_children(path)]
    return [path, *(node for child in children for node in below(client, child))]


def cells_of(file: Path) -> Iterator[tuple[str, str]]:
    with contextlib.closing(sqlite3.connect(file)) as connection:
        tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in tables.fetchall():
            for row in connection.execute(f'PRAGMA table_info("{table}")').fetchall():
                yield table, row[1]
