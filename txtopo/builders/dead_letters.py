"""with_dead_letters: gives a topology the streams and the committers of its dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from txtopo.bolts.bolt import Committer
from txtopo.bolts.dead_letters import KEY, CollectDeadLetters, DeadLetters
from txtopo.dead_letters import FIELDS, STREAM, DeadLetterRule
from txtopo.errors import TopologyError
from txtopo.groupings import GlobalGrouping
from txtopo.state.registry import State
from txtopo.topology.bolt_kinds import BASIC_BOLT, BATCH_BOLT
from txtopo.topology.component import Component, Subscription, bolt_kind, checked_streams
from txtopo.traits import traits_of
from txtopo.tuples import DEFAULT_STREAM, Stream

SINK = "dead_letters_sink"
"""Id of the committer that takes dead letters which go to no state."""

# Their records are decoded by Spark, or by a query.


def checked_dead_letters(given: object) -> DeadLetters | None:
    """Return the rules that the argument ``dead_letters`` of a builder stands for.

    Raises:
        TopologyError: It cannot take dead letters; give a state or a committer.
    """
    if given is None:
        return None
    letters = given if isinstance(given, DeadLetters) else DeadLetters(given)  # type: ignore[arg-type]
    limit, destination = letters.batch_records_max, letters.destination
    if type(limit) is not int or limit < 1:
        raise TopologyError(
            f"batch_records_max of the dead letters is wrong; got {limit!r}; expected a whole "
            "number of at least 1; remove dead_letters= to end the run at the first bad record",
            setting="batch_records_max",
            got=repr(limit),
        )
    if isinstance(destination, State):
        _check_state(destination)
    elif isinstance(destination, Committer) and not isinstance(destination, type):
        bolt_kind(SINK, destination)
    else:
        raise TopologyError(
            f"dead_letters is of the wrong type; got {destination!r:.100}; expected what "
            "open_state(url) returns, a committer such as a KafkaSink, or DeadLetters(…) of one",
            setting="dead_letters",
            got=f"{destination!r:.100}",
        )
    return letters


def with_dead_letters(declared: Sequence[Component], letters: DeadLetters) -> list[Component]:
    """Return the components with the stream of dead letters, and the committers that take them.

    Raises:
        TopologyError: No component can make one, or a name is taken.
    """
    rule = DeadLetterRule(letters.batch_records_max)
    for one in declared:
        if one.id in (STREAM, SINK):
            raise TopologyError(
                f"component id {one.id!r} is reserved for the topology's dead letters; rename "
                "your component",
                component=one.id,
            )
    components = [_with_stream(one, rule) if _can_make(one) else one for one in declared]
    sources = [one.id for one in components if one.dead_letters is not None]
    if not sources:
        raise TopologyError(
            "the topology has dead_letters=, but none of its components can produce a dead "
            "letter; expected a spout that decodes its records in tasks, or a BasicBolt; an "
            "ArrowBolt, BatchBolt or DataFrameBolt sends bad rows to a stream of its own; remove "
            "dead_letters="
        )
    return [*components, *_takers(letters, sources)]


def check_no_dead_letters(declared: Sequence[Component]) -> None:
    """Check that no bolt makes dead letters in a topology without ``dead_letters=``.

    Raises:
        TopologyError: One is; give the builder ``dead_letters=``.
    """
    for one in declared:
        if one.dead_letters is not None:
            raise TopologyError(
                f"bolt {one.id!r} has dead_letters_on, but the topology has nowhere to put dead "
                "letters; expected TransactionalTopologyBuilder(…, dead_letters=open_state(…))",
                component=one.id,
            )


def _can_make(component: Component) -> bool:
    if component.kind.spout:
        return component.spout_kind.makes_dead_letters
    return component.kind == BASIC_BOLT or component.traits.makes_dead_letters


def _with_stream(component: Component, rule: DeadLetterRule) -> Component:
    if STREAM in component.streams:
        raise TopologyError(
            f"stream {STREAM!r} of {component.id!r} has the name reserved for the topology's dead "
            "letters; rename your stream",
            component=component.id,
            stream=STREAM,
        )
    own = component.dead_letters
    return replace(
        component,
        streams={**component.streams, STREAM: Stream(FIELDS)},
        dead_letters=rule
        if own is None
        else replace(own, batch_records_max=rule.batch_records_max),
    )


def _takers(letters: DeadLetters, sources: Sequence[str]) -> list[Component]:
    destination = letters.destination
    in_state = isinstance(destination, State)
    collect = CollectDeadLetters(letters.batch_records_max, in_state=in_state)
    collected = Component(
        STREAM,
        BATCH_BOLT,
        collect,
        1,
        checked_streams(STREAM, collect),
        tuple(Subscription(source, STREAM, GlobalGrouping()) for source in sources),
        committer=True,
        states={STREAM: _with_columns(destination)} if isinstance(destination, State) else {},
    )
    if isinstance(destination, State):
        return [collected]
    taking = traits_of(destination).with_dead_letters
    bolt = destination if taking is None else taking([*KEY.names, *FIELDS.names])
    sink = Component(
        SINK,
        bolt_kind(SINK, bolt),
        bolt,
        1,
        checked_streams(SINK, bolt),
        (Subscription(STREAM, DEFAULT_STREAM, GlobalGrouping()),),
        committer=True,
    )
    return [collected, sink]


def _with_columns(state: State) -> State:
    return replace(state.with_columns(KEY, FIELDS).named(STREAM), prunable=True)


def _check_state(state: State) -> None:
    plain = State(state.url)
    if (state.key, state.value) not in ((plain.key, plain.value), (KEY, FIELDS)):
        raise TopologyError(
            f"the state of the dead letters has columns of its own; got key {state.key!r} and "
            f"value {state.value!r}; expected neither: dead letters have {KEY!r} and {FIELDS!r}; "
            "remove key= and value= from open_state(…)",
            setting="dead_letters",
            got=f"key {state.key!r} and value {state.value!r}",
        )
    if state.mode != "table":
        raise TopologyError(
            f"the state of the dead letters is in mode {state.mode!r}, which is for aggregates; "
            "remove mode= from open_state(…)",
            setting="mode",
            got=state.mode,
            expected="table",
        )
    _with_columns(state)
