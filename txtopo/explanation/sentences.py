"""Sentences: what a topology guarantees, how it shares its work, and what a user should know."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from txtopo.config import JOBS, AnyConfig, AtLeastOnceConfig, Config
from txtopo.dead_letters import STREAM
from txtopo.explanation.parts import CarrierChoice
from txtopo.extras import remedy
from txtopo.runtime.needs import missing_packages
from txtopo.stages.compiled_topology import CompiledTopology
from txtopo.stages.groups import why_one_by_one
from txtopo.topology.elsewhere import DECLARATION, emitters_to_ask
from txtopo.topology.graph import Graph, advice

ADVICE_MAX = 5


@dataclass(frozen=True, slots=True)
class Sharing:
    """How many batches are in flight, and how many share a job.

    Attributes:
        window_txids: The most batches in flight.
        run_txids: The most consecutive batches that one job processes.
    """

    window_txids: int
    run_txids: int


def sharing(graph: Graph, config: AnyConfig) -> Sharing | None:
    """Return how batches share jobs; None for a topology that plans no batches."""
    if not isinstance(config, Config) or graph.spout_kind.driven_by != "coordinator":
        return None
    return Sharing(config.max_spout_pending, graph.run_txids_max(config.run_txids))


def kind_of(graph: Graph) -> str:
    """Return the kind of a topology, as runs report it."""
    return "at-least-once" if graph.spout_kind.driven_by == "ackers" else "transactional"


def delivery(graph: Graph, config: AnyConfig) -> str:
    """Return the delivery guarantee of a topology."""
    if isinstance(config, AtLeastOnceConfig):
        if config.ackers == 0:
            return "at most once: without ackers, a tuple is acked when the spout emits it"
        return (
            "at least once: a tuple whose tree fails or times out is failed at its spout, which "
            "emits it again"
        )
    if not graph.committing:
        return "at least once: batches are processed, but nothing is stored"
    told = "exactly once: each batch counts once in each state, whatever crashes and is replayed"
    if graph.spout_kind.driven_by == "query":
        told += ", as long as the query keeps its checkpoint"
    limits = dict.fromkeys(one.traits.delivery for one in graph.components.values())
    return "; ".join([told, *(each for each in limits if each is not None)])


def work(graph: Graph, config: AnyConfig, choice: CarrierChoice) -> str:
    """Return how batches, or trees, are in flight and share jobs."""
    if isinstance(config, AtLeastOnceConfig):
        pending = config.max_spout_pending
        limit = "any number of" if pending is None else f"up to {pending:,}"
        return f"{limit} trees are pending for each spout task; {_ackers(config)}"
    shared = sharing(graph, config)
    if shared is None:
        return "the streaming query passes one micro-batch at a time, which is one txid"
    window = shared.window_txids
    flight = "one txid is in flight; " if window == 1 else f"up to {window:,} txids are in flight; "
    many = (
        "each txid"
        if shared.run_txids == 1
        else f"up to {shared.run_txids:,} consecutive txids together"
    )
    verb = "has" if shared.run_txids == 1 else "have"
    if choice.carrier in ("rdd", "dataframe"):
        return f"{flight}{many} {verb} one Spark job, and at most {JOBS} jobs process at a time"
    if choice.carrier == "resident":
        verb = "passes" if shared.run_txids == 1 else "pass"
        return f"{flight}{many} {verb} through the resident slots, which need no Spark job"
    return f"{flight}{many} {verb} one run through the slots"


def commit(
    graph: Graph, config: AnyConfig, compiled: CompiledTopology, choice: CarrierChoice
) -> str | None:
    """Return where the commit phase runs, and how many txids at a time; None if there is none."""
    if not graph.committing or isinstance(config, AtLeastOnceConfig):
        return None
    together = _together(graph, config, compiled)
    shared = ", which states of one database share" if _states(graph) > 1 else ""
    apart = f" the driver writes each state in one transaction of its store{shared}{together}"
    if not compiled.commit:
        return f"in the driver, since no committer has tasks;{apart}"
    if compiled.commit_in_driver:
        return f"in the driver, since each bolt of the commit phase has one task;{apart}"
    several = [
        f"{id!r} has {compiled.components[id].tasks} tasks"
        for level in compiled.commit
        for id in level
        if compiled.components[id].tasks > 1
    ]
    where = {
        "local": "in the slots of this process",
        "resident": "in the resident slots",
    }.get(choice.carrier, "in a Spark job for each txid")
    return f"{where}, since {' and '.join(several[:3])};{apart}"


def _states(graph: Graph) -> int:
    return sum(len(each.states) for each in graph.components.values())


def _together(graph: Graph, config: Config, compiled: CompiledTopology) -> str:
    """Return how many txids share a write, as far as this is known before a store is opened."""
    if graph.spout_kind.driven_by == "query":
        return ""
    why = why_one_by_one(graph, compiled, {})
    for setting in ("group_txids_max", "max_spout_pending"):
        if getattr(config, setting) == 1:
            why = f"Config.{setting} is 1"
    if why is not None:
        return f", one txid at a time, since {why}"
    most = min(config.group_txids_max, config.max_spout_pending)
    together = f", with up to {most:,} txids waiting for their turn"
    unless = [
        f"the emitter of spout {id!r} has a commit and does not declare {DECLARATION}"
        for id in emitters_to_ask(graph)
    ]
    if any(each.states for each in graph.components.values()):
        unless.append("a store does not accept groups")
    return together + (f"; one at a time if {', or '.join(unless)}" if unless else "")


def failure(graph: Graph, config: AnyConfig) -> str:
    """Return the sentence on failures: which batches are repeated, and which work is kept."""
    driven_by = graph.spout_kind.driven_by
    if isinstance(config, AtLeastOnceConfig):
        if config.ackers == 0:
            return "a tuple that is lost or fails is not replayed; another exception ends the run"
        low, high = config.message_timeout_s, 2 * config.message_timeout_s
        return (
            f"a tree that fails, or is not complete {low:g} to {high:g} s after it began, is "
            "failed at its spout; a lost slot loses the memory of its bolts; another exception "
            "ends the run"
        )
    if driven_by == "query":
        return "an error ends the query; its next start processes the same micro-batch again"
    opaque = [one.id for one in graph.spouts if not one.spout_kind.repeats]
    if opaque and len(opaque) < len(graph.spouts):
        again = (
            f"the parts of {' and '.join(map(repr, opaque))} in the failed batch and later ones "
            "are planned again, possibly with other tuples, and the other spouts emit the same "
            "tuples; opaque states undo what an earlier attempt wrote"
        )
    elif opaque:
        again = (
            "the failed batch and all later ones are planned again, possibly with other tuples; "
            "the states undo what an earlier attempt wrote"
        )
    else:
        again = (
            "the failed batch is replayed with the same tuples; later batches that are already "
            "processed are kept, the others are processed again"
        )
    if config.attempts_max is not None:
        limit = f"the run ends at the {_ordinal(config.attempts_max)} counted failure of one batch"
    else:
        limit = "a batch is tried again without limit"
    return f"{again}; {limit}"


def dead_letters(graph: Graph) -> str | None:
    """Return where dead letters come from and go to; None if the topology keeps none."""
    makers = [one for one in graph.components.values() if one.dead_letters is not None]
    if not makers:
        return None
    rule = makers[0].dead_letters
    assert rule is not None
    sources = ", ".join(repr(one.id) for one in makers)
    states = graph.components[STREAM].states if STREAM in graph.components else {}
    place = next((f"state {STREAM}.{name}" for name in states), "the committer below them")
    return (
        f"bad records of {sources} go to {place}, with their txid; a batch with more than "
        f"{rule.batch_records_max:,} ends the run"
    )


def advice_on(
    graph: Graph, config: AnyConfig, compiled: CompiledTopology, choice: CarrierChoice
) -> tuple[str, ...]:
    """Return advice for a user before a start: a few sentences, of which each is certain."""
    found = [
        *_missing(graph, config),
        *(advice(graph) if isinstance(config, Config) else ()),
        *_tasks_and_slots(compiled, choice),
        *(_forgetful(graph, config) if isinstance(config, Config) else ()),
        *_commit_jobs(graph, compiled, choice),
        *_unread(graph),
    ]
    return tuple(found[:ADVICE_MAX])


def _missing(graph: Graph, config: AnyConfig) -> Iterator[str]:
    if lacks := missing_packages(graph, config):
        yield f"a start here would be refused: {'; '.join(map(str, lacks))}; {remedy(lacks)}"


def _ackers(config: AtLeastOnceConfig) -> str:
    if config.ackers == 0:
        return "no acker tracks them"
    if config.ackers is None:
        return "the acker of the task's slot tracks them"
    many = "1 acker tracks" if config.ackers == 1 else f"{config.ackers:,} ackers track"
    return f"{many} them, by a hash of their root"


def _ordinal(number: int) -> str:
    tens = 10 < number % 100 < 14
    return f"{number:,}{'th' if tens else {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th')}"


def _tasks_and_slots(compiled: CompiledTopology, choice: CarrierChoice) -> Iterator[str]:
    slots = choice.slots
    if slots is None:
        return
    over = {
        id: one.tasks
        for id, one in compiled.components.items()
        if one.tasks > slots and not (one.kind.spout and one.spout_kind.driven_by == "ackers")
    }
    if over:
        named = ", ".join(f"{id!r} ({tasks})" for id, tasks in list(over.items())[:3])
        more = f" and {len(over) - 3} more" if len(over) > 3 else ""
        verb = "has" if len(over) == 1 else "have"
        yield (
            f"{named}{more} {verb} more tasks than there are slots ({slots}); tasks of one slot "
            "run one after the other, so the extra tasks do not make it faster"
        )


def _forgetful(graph: Graph, config: Config) -> Iterator[str]:
    """Warn about states that end with the process although the position in the stream is kept."""
    if config.zookeeper.hosts == "memory":
        return
    lost = [
        f"{one.id}.{name}"
        for one in graph.components.values()
        for name, state in one.states.items()
        if not state.shared_by_processes
    ]
    if lost and graph.spout_kind.driven_by != "query":
        named = ", ".join(map(repr, lost[:3]))
        yield (
            f"the state {named} is lost when this process ends, but "
            f"{config.zookeeper.place} keeps the txid, so "
            "another process cannot continue; use a persistent store, or zookeeper='memory' as well"
        )


def _commit_jobs(graph: Graph, compiled: CompiledTopology, choice: CarrierChoice) -> Iterator[str]:
    if compiled.commit_in_driver or choice.carrier not in ("rdd", "dataframe"):
        return
    if graph.spout_kind.driven_by == "ackers":
        return
    several = [id for level in compiled.commit for id in level if compiled.components[id].tasks > 1]
    named, verb = ", ".join(map(repr, several[:3])), "has" if len(several) == 1 else "have"
    yield (
        f"each txid needs a separate Spark job for its commit, since {named} {verb} several tasks; "
        "with parallelism 1 the driver commits without a job"
    )


def _unread(graph: Graph) -> Iterator[str]:
    read = {(each.source, each.stream) for each in graph.edges()}
    left = [
        f"{name!r} of {id!r}"
        for id, one in graph.components.items()
        for name in one.streams
        if id not in graph.committing and (id, name) not in read
    ]
    if left and len(graph.components) > 1:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        named = f"{', '.join(left[:3])}{more}"
        yield f"no bolt subscribes to stream {named}; tuples emitted there are dropped"
