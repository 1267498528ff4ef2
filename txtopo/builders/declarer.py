"""BoltDeclarer: declares the inputs and the states of a bolt; ``set_bolt`` returns it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

from txtopo.dead_letters import DeadLetterRule
from txtopo.errors import RecordFailed, TopologyError, TxtopoError
from txtopo.groupings import (
    AllGrouping,
    CustomGrouping,
    CustomStreamGrouping,
    DirectGrouping,
    FieldsGrouping,
    GlobalGrouping,
    Grouping,
    LocalOrShuffleGrouping,
    NoneGrouping,
    PartialKeyGrouping,
    ShuffleGrouping,
)
from txtopo.state.registry import State, redacted_url
from txtopo.topology.bolt_kinds import BASIC_BOLT, PERSISTENT_AGGREGATE, BoltKind
from txtopo.topology.component import Component, Subscription, check_id
from txtopo.tuples import DEFAULT_STREAM, Fields, Stream

FieldNames = Fields | Sequence[str] | str
"""``Fields``, a list of names, or one name."""


@dataclass(slots=True)
class InputDeclarer:
    """Declares the inputs of a bolt; each method returns the declarer, as in Storm.

    ``set_bolt`` returns it. As in Storm, the stream may be the second argument, except where that
    is fields or a grouping. A source may be declared after the bolts that subscribe to it, because
    ``build_topology`` checks the inputs.
    """

    _id: str
    _bolt: object
    _kind: BoltKind
    _parallelism: int
    _streams: dict[str, Stream]
    _committer: bool = False
    _subscriptions: list[Subscription] = field(default_factory=list)
    _states: dict[str, State] = field(default_factory=dict)
    _dead_letters: DeadLetterRule | None = None

    def shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send each task the same number of tuples, plus or minus one."""
        return self._subscribe(source, stream, ShuffleGrouping())

    def fields_grouping(
        self, source: str, fields: FieldNames, *more: str, stream: str = DEFAULT_STREAM
    ) -> Self:
        """Send equal values of the named fields to the same task.

        Args:
            source: Id of the component that emits.
            fields: The first field, or all of them as a list or ``Fields``.
            *more: The other fields, if *fields* is the name of the first.
            stream: The stream of *source*; keyword only, so that it cannot be confused with a field
                name.

        Raises:
            TopologyError: The fields are not names.

        Example:
            ``bolt.fields_grouping("orders", "customer", "country", stream="paid")``
        """
        names = self._names("fields_grouping", fields, more)
        return self._subscribe(source, stream, FieldsGrouping(names))

    def global_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send every tuple to the task with the lowest index."""
        return self._subscribe(source, stream, GlobalGrouping())

    def all_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send every tuple to every task."""
        return self._subscribe(source, stream, AllGrouping())

    def none_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send each tuple to any task."""
        return self._subscribe(source, stream, NoneGrouping())

    def local_or_shuffle_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Shuffle among the tasks in the sender's slot, or among all tasks if none is there."""
        return self._subscribe(source, stream, LocalOrShuffleGrouping())

    def partial_key_grouping(
        self, source: str, fields: FieldNames, *more: str, stream: str = DEFAULT_STREAM
    ) -> Self:
        """Divide each key among two tasks: each time, the one that the sender has used less.

        The arguments are those of :meth:`fields_grouping`.
        """
        names = self._names("partial_key_grouping", fields, more)
        return self._subscribe(source, stream, PartialKeyGrouping(names))

    def direct_grouping(self, source: str, stream: str = DEFAULT_STREAM) -> Self:
        """Send each tuple to the task that the emitter names in ``emit_direct``."""
        return self._subscribe(source, stream, DirectGrouping())

    def custom_grouping(
        self, source: str, grouping: CustomStreamGrouping, *, stream: str = DEFAULT_STREAM
    ) -> Self:
        """Send tuples to the tasks that your own grouping chooses."""
        if not isinstance(grouping, CustomStreamGrouping):
            raise TopologyError(
                f"custom grouping of bolt {self._id!r} is of the wrong type; got {grouping!r}; "
                "expected an instance of CustomStreamGrouping",
                component=self._id,
            )
        return self._subscribe(source, stream, CustomGrouping(grouping))

    def component(self) -> Component:
        """Return the bolt as declared so far. Called by the builder."""
        return Component(
            self._id,
            self._kind,
            self._bolt,
            self._parallelism,
            self._streams,
            tuple(self._subscriptions),
            self._committer,
            dict(self._states),
            self._dead_letters,
        )

    def _names(self, method: str, fields: FieldNames, more: Sequence[str]) -> tuple[str, ...]:
        given: Sequence[object] = (fields, *more)
        if not more and isinstance(fields, Fields):
            return fields.names
        if not more and not isinstance(fields, str) and isinstance(fields, Iterable):
            given = tuple(fields)
        names = tuple(each for each in given if isinstance(each, str))
        if len(names) == len(given):
            return names
        raise TopologyError(
            f"the fields of {method} of bolt {self._id!r} are not names; got "
            f"{', '.join(map(repr, given))}; expected names, or one list of names; write "
            f"{method}(source, 'first', 'second'), with stream='name' after them if the stream is "
            "not the default one",
            component=self._id,
        )

    def _subscribe(self, source: str, stream: str, grouping: Grouping) -> Self:
        self._subscriptions.append(Subscription(source, stream, grouping))
        return self


@dataclass(slots=True)
class BoltDeclarer(InputDeclarer):
    """Declares the inputs and the states of a bolt of a transactional topology."""

    def with_state(self, name: str, state: State) -> Self:
        """Give the bolt a state, which it opens with ``context.state(name)``.

        Args:
            name: Name of the state within the bolt, and of its table, unless the state names one.
            state: A state from ``open_state``.

        Raises:
            TopologyError: The bolt already has a state of that name, or cannot have one.
        """
        check_id(f"in bolt {self._id!r}: state", name)
        if name in self._states:
            raise TopologyError(
                f"bolt {self._id!r} has two states with the same name; got {name!r} twice; rename "
                "one",
                component=self._id,
                state=name,
            )
        if not isinstance(state, State):
            raise TopologyError(
                f"state {name!r} of bolt {self._id!r} is of the wrong type; got "
                f"{redacted_url(repr(state))}; expected what open_state(url) returns",
                component=self._id,
                state=name,
            )
        if self._kind == PERSISTENT_AGGREGATE:
            raise TopologyError(
                f"PersistentAggregate {self._id!r} already has its state; got {name!r} as well; "
                "pass the state to PersistentAggregate(state, …) only",
                component=self._id,
                state=name,
            )
        self._states[name] = state.named(name)
        return self

    def dead_letters_on(self, *errors: type[Exception]) -> Self:
        """Turn a tuple into a dead letter if its ``execute`` raises one of these exceptions.

        ``RecordFailed`` does so without being listed. What the bolt has emitted for the tuple is
        dropped; changes that it made to its own attributes remain. The topology needs
        ``dead_letters=``.

        Args:
            errors: Exceptions that the record causes, such as ``ValueError``. They do not cover
                exceptions of txtopo, even those derived from a listed class.

        Raises:
            TopologyError: The bolt is no ``BasicBolt``, or an exception cannot be listed.
        """
        if self._kind != BASIC_BOLT:
            raise TopologyError(
                f"bolt {self._id!r} cannot produce dead letters; its role is {self._kind.text!r}; "
                "expected a BasicBolt, whose output for one tuple can be dropped; send bad rows "
                "to a stream of its own instead",
                component=self._id,
            )
        for error in errors or (None,):
            check_listed(f"bolt {self._id!r}", error, component=self._id)
        self._dead_letters = DeadLetterRule(errors=errors)
        return self


def check_listed(what: str, error: object, **facts: object) -> None:
    """Check that an exception may make dead letters.

    Args:
        what: What would make them, for messages.
        error: The class of the exception.
        facts: Facts of the error.

    Raises:
        TopologyError: It may not.
    """
    fault = _not_listed(error)
    if fault is not None:
        raise TopologyError(
            f"{what} cannot produce dead letters on {error!r}, {fault}; expected exceptions that "
            "a bad record causes, e.g. ValueError, KeyError",
            **facts,
        )


def _not_listed(error: object) -> str | None:
    """Return why an exception cannot be listed; None if it can."""
    if not isinstance(error, type) or not issubclass(error, BaseException):
        return "which is not a class of exceptions"
    if error in (Exception, BaseException) or not issubclass(error, Exception):
        return "which a lost connection or a mistake in the bolt may raise as well"
    if issubclass(error, TxtopoError) and not issubclass(error, RecordFailed):
        return "which txtopo raises for other reasons"
    return None
