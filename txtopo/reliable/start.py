"""Starts an at-least-once topology: makes its carrier and driver, and starts the loop."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from txtopo.carriers.session import (
    active_session,
    check_config,
    check_given,
    check_session,
    open_session,
)
from txtopo.carriers.slots import SLOT_HOSTING
from txtopo.carriers.workers import check_workers
from txtopo.clock import now, wall_clock
from txtopo.config import AtLeastOnceConfig
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.opening import own_ensemble
from txtopo.errors import ConfigError, TopologyError
from txtopo.reliable.carrier import LocalSlots, SlotCarrier
from txtopo.reliable.driver import Meter, ReliableContext, ReliableDriver
from txtopo.reliable.standby import open_standby
from txtopo.resident.sockets import Keys
from txtopo.runtime.handle import RecentProgress, ReliableRun
from txtopo.runtime.listeners import check_listeners
from txtopo.runtime.needs import check_packages, warn_of_silent_servers
from txtopo.runtime.progress import Progressed, TopologyListener
from txtopo.runtime.restart import Restart, RestartingDriver, check_restart
from txtopo.runtime.scheduler import ExecutorScheduler, ThreadScheduler
from txtopo.runtime.succession import Open, StartableDriver
from txtopo.runtime.watching import Watcher, watcher_of
from txtopo.stages.compiled_topology import compile_topology
from txtopo.topology.component import DEFAULT_ID
from txtopo.topology.graph import Graph

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Only one thread of a Python process runs at a time. A second slot helps bolts that block.
LOCAL_SLOTS = 2


@dataclass(frozen=True, slots=True)
class Opened:
    """A started topology, with its driver and slots, which simulations need."""

    run: ReliableRun
    driver: ReliableDriver
    slots: LocalSlots


def start_reliable(
    graph: Graph,
    spark: SparkSession | None,
    config: AtLeastOnceConfig,
    listeners: Sequence[TopologyListener] = (),
    *,
    active: bool = True,
    restart: Restart | None = None,
    ensemble: MemoryEnsemble | None = None,
) -> ReliableRun:
    """Start an at-least-once topology and return its handle.

    Args:
        graph: The topology.
        spark: The Spark session; see ``AtLeastOnceConfig.carrier``.
        config: The settings.
        listeners: They are told of every event.
        active: Whether to begin at once; otherwise it waits for ``activate``.
        restart: When to start it again; never by default.
        ensemble: The ensemble for ``zookeeper="memory"``; by default a new one that ends with the
            topology.

    Raises:
        ConfigError: A setting is wrong, or a package is missing. Nothing was started; repair it.
        TopologyError: ``zookeeper`` is set, but the topology has the default id.
        CoordinatorUnavailable: ZooKeeper cannot be reached. Nothing was started.
    """
    check_config(config, AtLeastOnceConfig)
    carrier = config.carrier
    check_given(spark)
    check_listeners(listeners)
    check_restart(restart)
    _check_own_id(graph.id, config)
    check_packages(graph, config)
    silent = warn_of_silent_servers(graph, config)
    session = spark if spark is not None or carrier == "local" else active_session()
    if carrier == "resident" and session is None:
        SLOT_HOSTING.get().check()
        session = open_session()[0]
    recent = RecentProgress(Progressed)
    if config.zookeeper is not None and config.zookeeper.hosts == "memory":
        ensemble = ensemble or own_ensemble(graph.id)
    with watcher_of(graph, "at-least-once", wall_clock, config) as watcher:
        told = watcher.all_listeners([recent, *listeners])
        opening = _opening(graph, config, session, ensemble, watcher)
        driver: StartableDriver
        if restart is None:
            driver = opening(told, active)
        else:
            restarts = ThreadScheduler(f"txtopo-{graph.id}-restarts")
            driver = RestartingDriver(graph.id, opening, restart, told, restarts, active=active)
        run = ReliableRun(graph.id, driver, recent, watcher, silent)
        watcher.begin(run, ensemble)
        driver.start()
    return run


def is_local(config: AtLeastOnceConfig, session: SparkSession | None) -> bool:
    """Return whether a topology runs in this process, without Spark.

    Args:
        config: The settings.
        session: The session that it was given or that is active, if there is one.
    """
    return config.carrier == "local" or (config.carrier == "auto" and session is None)


def _check_own_id(id: str, config: AtLeastOnceConfig) -> None:
    if config.zookeeper is not None and id == DEFAULT_ID:
        raise TopologyError(
            f"an at-least-once topology with ZooKeeper needs its own id; got {id!r}, the default "
            "of TopologyBuilder(); expected another id, because the drivers of an id elect one "
            'leader; write TopologyBuilder("orders")',
            topology=id,
        )


def _opening(
    graph: Graph,
    config: AtLeastOnceConfig,
    session: SparkSession | None,
    ensemble: MemoryEnsemble | None,
    watcher: Watcher,
) -> Open:
    """Return the function that opens each driver of a run; all of them share one meter."""
    opening = partial(_open, graph, config, session, meter=Meter(now, wall_clock))
    if config.zookeeper is None:
        return opening
    summary = watcher.figures.summary
    return partial(
        open_standby, graph.id, config, config.zookeeper, session, ensemble, summary, opening
    )


def _open(
    graph: Graph,
    config: AtLeastOnceConfig,
    session: SparkSession | None,
    listeners: Sequence[TopologyListener],
    active: bool,
    *,
    meter: Meter | None = None,
) -> ReliableDriver:
    check_session(session)
    scheduler = ThreadScheduler(f"txtopo-{graph.id}")
    slots: SlotCarrier
    if is_local(config, session):
        compiled = compile_topology(graph, config, config.slots or LOCAL_SLOTS)
        slots = LocalSlots(scheduler)
    else:
        from txtopo.resident.bolt_slots import BoltSlots
        from txtopo.resident.slot_jobs import SlotJobs

        assert session is not None
        keys = Keys.make()
        jobs = SlotJobs(session, "bolts")
        needed = (*SLOT_HOSTING.get().client_modules, *graph.client_modules)
        check_workers(session.sparkContext, needed)
        compiled = compile_topology(graph, config, jobs.fit(config.slots))
        slots = BoltSlots(jobs, keys, config, scheduler)
    context = ReliableContext(compiled, config, slots, scheduler)
    return ReliableDriver(context, listeners, active=active, meter=meter)


def start_local(
    graph: Graph,
    config: AtLeastOnceConfig,
    listeners: Sequence[TopologyListener] = (),
    *,
    active: bool = True,
    scheduler: ExecutorScheduler,
) -> Opened:
    """Start an at-least-once topology in this process, in the time of a simulation.

    Args:
        graph: The topology.
        config: The settings.
        listeners: They are told of every event.
        active: Whether to begin at once; otherwise it waits for ``activate``.
        scheduler: Provides time and threads.

    Raises:
        ConfigError: A setting is wrong. Nothing was started; repair the setting.
    """
    if config.carrier == "resident":
        raise ConfigError(
            "carrier 'resident' runs on Spark in real time only; use carrier='local'",
            setting="carrier",
        )
    compiled = compile_topology(graph, config, config.slots or LOCAL_SLOTS)
    slots = LocalSlots(scheduler)
    recent = RecentProgress(Progressed)
    watcher = watcher_of(graph, "at-least-once", scheduler.wall_clock)
    context = ReliableContext(compiled, config, slots, scheduler)
    driver = ReliableDriver(context, watcher.all_listeners([recent, *listeners]), active=active)
    run = ReliableRun(graph.id, driver, recent, watcher)
    driver.start()
    return Opened(run, driver, slots)
