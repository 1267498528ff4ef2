"""Start: checks the settings, opens everything a transactional topology needs, and starts it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from txtopo.carriers.carrier import Carrier, LocalCarrier
from txtopo.carriers.choice import useful_slots, with_carrier
from txtopo.carriers.session import (
    active_session,
    check_config,
    check_given,
    check_session,
    is_classic,
    open_own_session,
)
from txtopo.carriers.slots import SLOT_HOSTING
from txtopo.carriers.workers import check_workers
from txtopo.clock import wall_clock
from txtopo.config import ChangeKind, Config
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.opening import open_transactional_state, own_ensemble
from txtopo.ensemble.store import this_process
from txtopo.errors import SchemaDrift, TopologyChanged, TopologyError
from txtopo.fingerprint import StateName
from txtopo.runtime.batch_planner import BatchPlanner
from txtopo.runtime.driver import TopologyDriver
from txtopo.runtime.engine import check_carrier, engine_session_conf, run_engine
from txtopo.runtime.handle import RecentProgress, TopologyRun
from txtopo.runtime.leader_beat import Summary
from txtopo.runtime.listeners import check_listeners
from txtopo.runtime.needs import check_packages, warn_of_silent_servers
from txtopo.runtime.plan_clock import PlanClock
from txtopo.runtime.progress import BatchCommitted, TopologyListener
from txtopo.runtime.reporting import ProgressMeter
from txtopo.runtime.restart import Restart, RestartingDriver, check_restart
from txtopo.runtime.run_context import (
    RunContext,
    close_backends,
    close_parts,
    close_spout,
    open_states,
)
from txtopo.runtime.scheduler import Scheduler, ThreadScheduler
from txtopo.runtime.succession import StartableDriver
from txtopo.runtime.watching import watcher_of
from txtopo.stages.compiled_topology import CompiledTopology, compile_topology
from txtopo.state.backend import StateBackend
from txtopo.topology.graph import fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from txtopo.ensemble.store import TransactionalState
    from txtopo.metadata import Json
    from txtopo.topology.graph import Graph

__all__ = ["TopologyRun", "start_topology"]


def start_topology(
    graph: Graph,
    spark: SparkSession | None,
    config: Config,
    listeners: Sequence[TopologyListener] = (),
    scheduler: Scheduler | None = None,
    ensemble: MemoryEnsemble | None = None,
    restart: Restart | None = None,
    master: str | None = None,
) -> TopologyRun:
    """Start a topology and return its handle.

    Args:
        graph: The topology.
        spark: The session. By default the active session, or a new one.
        config: The settings.
        listeners: They receive each change.
        scheduler: Time and threads; real ones by default.
        ensemble: The ensemble for ``zookeeper="memory"``; by default a new one that ends with the
            topology.
        restart: When to start it again; never by default.
        master: The master of a new session; see ``open_session``.

    Raises:
        ConfigError: A setting does not fit, or this process or workers lack a module; nothing has
            run.
        CoordinatorUnavailable: ZooKeeper cannot be reached; nothing was written.
        PromiseError: A state's table cannot be used; nothing was written.
    """
    check_given(spark)
    check_listeners(listeners)
    check_restart(restart)
    _check_settings(graph, config)
    clock = scheduler.wall_clock if scheduler is not None else wall_clock
    recent = RecentProgress(BatchCommitted)
    if config.zookeeper.hosts == "memory":
        ensemble = ensemble or own_ensemble(graph.id)
    with watcher_of(graph, "transactional", clock, config) as watcher:
        replaceable = config.carrier == "auto"
        silent = warn_of_silent_servers(graph, config)
        session, config = _session_and_carrier(spark, graph, config, master)
        told = watcher.all_listeners([recent, *listeners])
        summary = watcher.figures.summary
        opening = partial(_open, graph, config, session, replaceable=replaceable)
        opening = partial(opening, ensemble=ensemble, summary=summary)
        driver: StartableDriver
        if restart is None:
            driver = opening(told, scheduler=scheduler)
        else:
            restarts = ThreadScheduler(f"txtopo-{graph.id}-restarts")
            opening = partial(opening, meter=ProgressMeter(restarts.now()))
            driver = RestartingDriver(graph.id, opening, restart, told, restarts)
        run = TopologyRun(graph.id, driver, recent, watcher, silent)
        watcher.begin(run, ensemble)
        driver.start()
    return run


def _check_settings(graph: Graph, config: Config) -> None:
    check_config(config, Config)
    check_carrier(graph, config.carrier)
    check_packages(graph, config)


def _open(
    graph: Graph,
    config: Config,
    session: SparkSession | None,
    listeners: Sequence[TopologyListener],
    active: bool = True,
    *,
    replaceable: bool,
    ensemble: MemoryEnsemble | None = None,
    meter: ProgressMeter | None = None,
    scheduler: Scheduler | None = None,
    summary: Summary | None = None,
) -> TopologyDriver:
    check_session(session)
    carrier = open_carrier(
        config,
        session,
        name=graph.id,
        engine=graph.has_engine_part,
        slots_max=graph.slots_max,
        replaceable=replaceable,
    )
    opened = partial(open_transactional_state, config.zookeeper, graph.id, _jvm(session), ensemble)
    scheduler = scheduler or ThreadScheduler(f"txtopo-{graph.id}")
    driver = open_driver(
        graph, config, listeners, carrier, opened, scheduler, this_process(), meter, summary
    )
    if not active:
        driver.set_active(False)
    return driver


def open_driver(
    graph: Graph,
    config: Config,
    listeners: Sequence[TopologyListener],
    carrier: Carrier,
    open_state: Callable[[], TransactionalState],
    scheduler: Scheduler,
    candidate: Json,
    meter: ProgressMeter | None = None,
    summary: Summary | None = None,
    compiled: CompiledTopology | None = None,
) -> TopologyDriver:
    """Return a driver that is ready to start. A simulator calls it with its own carrier and time.

    Args:
        graph: The topology.
        config: The settings.
        listeners: They receive each change.
        carrier: Moves envelopes.
        open_state: Opens the transactional state; called after the topology was checked.
        scheduler: Time and threads.
        candidate: Describes this process to other candidates.
        meter: Counts commits; after a restart, the meter of the previous driver.
        summary: Returns the summary that other processes see while this one leads.
        compiled: The compiled topology, if it was compiled already for these settings and slots.
    """
    _refuse_stream_spout(graph)
    slots = config.slots or useful_slots(carrier.default_slots(), graph.slots_max)
    if not carrier.has_engine:
        check_carrier(graph, "local")
    compiled = compiled or compile_topology(graph, config, slots)
    check_states(graph, config, commit_in_driver=compiled.commit_in_driver)
    context = _open_parts(graph, compiled, config, carrier, open_state, scheduler)
    return TopologyDriver(context, candidate, listeners, meter, summary)


def _open_parts(
    graph: Graph,
    compiled: CompiledTopology,
    config: Config,
    carrier: Carrier,
    open_state: Callable[[], TransactionalState],
    scheduler: Scheduler,
) -> RunContext:
    """Open the parts of a run: slow ones in parallel, and the tables after all other parts.

    If a part cannot be opened, the others are closed, and its error is raised.
    """
    undo: list[Callable[[], None]] = []
    try:
        opening = scheduler.beside(open_state)
        undo.append(partial(_close_opened, opening))
        connecting = scheduler.beside(partial(_connected_states, graph, scheduler))
        undo.append(partial(_close_connected, graph, connecting))
        plan_clock = PlanClock(scheduler, graph.id)
        planner = BatchPlanner(graph, config, plan_clock)
        undo += [partial(close_spout, graph, planner), carrier.close]
        carrier.start(compiled)
        context = RunContext(
            graph=graph,
            compiled=compiled,
            config=config,
            carrier=carrier,
            transactional_state=opening.result(),
            planner=planner,
            plan_clock=plan_clock,
            scheduler=scheduler,
            prepared=[connecting.result()],
        )
        _create_states(context, connecting.result())
    except BaseException:
        close_parts(graph.id, undo)
        raise
    return context


def _create_states(context: RunContext, backends: Mapping[StateName, StateBackend]) -> None:
    """Create the tables.

    A table that does not fit may be one of several changes of the topology. Then
    ``TopologyChanged`` lists all of them.
    """
    try:
        for backend in backends.values():
            backend.create()
    except SchemaDrift as error:
        if context.config.may_change(ChangeKind.COLUMNS):
            raise
        try:
            Journal(context.transactional_state).check_unchanged(fingerprint(context.graph))
        except TopologyChanged as changed:
            raise changed from error
        raise


def _connected_states(graph: Graph, scheduler: Scheduler) -> dict[StateName, StateBackend]:
    backends = open_states(graph, scheduler)
    try:
        for backend in backends.values():
            backend.connect()
    except BaseException:
        close_backends(graph.id, backends)
        raise
    return backends


def _close_opened(opening: Future[TransactionalState]) -> None:
    if opening.exception() is None:
        opening.result().close()


def _close_connected(graph: Graph, connecting: Future[dict[StateName, StateBackend]]) -> None:
    if connecting.exception() is None:
        close_backends(graph.id, connecting.result())


def _refuse_stream_spout(graph: Graph) -> None:
    if graph.spout_kind.driven_by == "query":
        raise TopologyError(
            f"topology {graph.id!r} has a StreamSpout, so only a streaming query can drive it; got "
            "start(); expected stream.writeStream.foreachBatch(topology.foreach_batch()); or use "
            "a spout that reads its own source",
            component=graph.spout.id,
        )


def open_carrier(
    config: Config,
    session: SparkSession | None,
    *,
    name: str = "",
    engine: bool = False,
    slots_max: int | None = None,
    replaceable: bool = False,
) -> Carrier:
    """Return the carrier that the configuration names.

    Args:
        config: The settings.
        session: The session; None for the carrier ``local``.
        name: Id of the topology.
        engine: Whether it must have the engine.
        slots_max: The most resident slots, unless the settings give a number.
        replaceable: Whether the run may continue on ``rdd`` when a resident slot stays lost.
    """
    if session is None:
        return LocalCarrier(config.slots)
    carrier = with_carrier(config, session, engine=engine, slots_max=slots_max).carrier
    if carrier == "resident":
        return SLOT_HOSTING.get().open(config, session, name, slots_max, replaceable=replaceable)
    if carrier == "rdd":
        from txtopo.carriers.spark import RddCarrier

        return RddCarrier(session)
    if engine:
        return run_engine().carrier(session)
    from txtopo.carriers.spark import DataFrameCarrier

    return DataFrameCarrier(session)


def _session_and_carrier(
    spark: SparkSession | None, graph: Graph, config: Config, master: str | None
) -> tuple[SparkSession | None, Config]:
    """Return the session, whose workers can run the topology, and the settings with its carrier."""
    if config.carrier == "local":
        return None, config
    if config.carrier == "resident":
        SLOT_HOSTING.get().check()
    session = session_for(graph, spark, master)
    engine, slots_max = graph.has_engine_part, graph.slots_max
    config = with_carrier(config, session, engine=engine, slots_max=slots_max)
    if is_classic(session):
        hosting = SLOT_HOSTING.get().client_modules if config.carrier == "resident" else ()
        check_workers(session.sparkContext, (*hosting, *graph.client_modules))
    return session, config


def session_for(
    graph: Graph, spark: SparkSession | None, master: str | None = None
) -> SparkSession:
    """Return a session that can run a topology: the given one, the active one, or a new one.

    Args:
        graph: The topology.
        spark: The session that was given.
        master: The master of a new session; see ``open_session``.

    Raises:
        ConfigError: It cannot; the message says what it lacks.
    """
    session = spark if spark is not None else active_session()
    check_session(session)
    if session is None:
        session = open_own_session(
            master=master, conf=engine_session_conf(graph), app_name=f"txtopo {graph.id}"
        )
    if graph.has_engine_part:
        run_engine().check_session(graph, session)
    return session


def _jvm(session: SparkSession | None) -> Any:
    return session._jvm if session is not None and is_classic(session) else None


def check_states(graph: Graph, config: Config, *, commit_in_driver: bool) -> None:
    """Check that committers that run in other processes can reach their states.

    Raises:
        TopologyError: A state lives in this process.
    """
    if commit_in_driver or config.carrier == "local":
        return
    for component in graph.components.values():
        for name, state in component.states.items():
            if component.parallelism > 1 and not state.shared_by_processes:
                raise TopologyError(
                    f"state {name!r} of {component.id!r} lives in this process, but the bolt's "
                    f"{component.parallelism} tasks run in others; give it parallelism 1, use the "
                    "carrier 'local', or a store such as sqlite:///…",
                    component=component.id,
                    state=name,
                )
