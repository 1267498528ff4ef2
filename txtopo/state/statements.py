"""Statements: what a committer executes in the store transaction of its txid.

Rules
-----
1. A statement is executed in the driver, in the transaction that writes rows and ledger of its
   state, after the rows of all states in that transaction. So it counts exactly as often as they.
2. The order is that of (txid, component in the order of commits, task, call), also across the
   states that share a transaction.
3. Below spouts that repeat their batches, a redo keeps the statements of the attempt that the
   ledger holds: they have been executed.
4. Below an opaque spout each statement has an *undo*. It is stored beside the ledger, with its
   parameters, by the transaction that executes the statement. A redo first executes what is stored,
   the last statement first, whatever the new attempt brings. Then the new attempt's statements
   follow.
5. ``quarantine`` and ``rewind`` execute what is stored, too, and are refused if one of the
   statements has no undo.
6. A state keeps the undos of its last txid, or of the last group.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from txtopo.attempt import TransactionAttempt
from txtopo.errors import StateUsageError, StoreDamagedError, text_of

Parameters = Mapping[str, object]
"""Plain values by the name of their parameter."""

BOUND = ("txid", "attempt", "epoch")
"""The parameters that a statement may name without being given their values. They are those of the
statement's own batch, also in a group."""

PLAIN = (
    *(str, bool, int, float, bytes, decimal.Decimal),
    *(datetime.datetime, datetime.date, datetime.time),
)
"""The types of parameters, beside None."""

_calls = itertools.count()


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement of a user with its parameters.

    Attributes:
        statement: A text with parameters such as ``:amount``, or a statement of SQLAlchemy.
        parameters: The values of the parameters: one set for each time that it is executed.
        undo: A text that takes it back, with parameters of the same names; None if there is none.
        attempt: The attempt at the batch that it belongs to.
        component: Id of the committer.
        place: Its place in the batch: component in the order of commits, task, call.
    """

    statement: Any
    parameters: tuple[Parameters, ...]
    undo: str | None
    attempt: TransactionAttempt
    component: str = ""
    place: tuple[int, int, int] = (0, 0, 0)

    @classmethod
    def called(
        cls,
        statement: Any,
        parameters: tuple[Parameters, ...],
        undo: str | None,
        attempt: TransactionAttempt,
    ) -> Statement:
        """Return a statement that is called now, after all others of this process."""
        return cls(statement, parameters, undo, attempt, place=(0, 0, next(_calls)))

    def of(self, component: str, order: int, task: int) -> Statement:
        """Return it with the task that has called it; *order* is that of its component."""
        return replace(self, component=component, place=(order, task, self.place[2]))

    @property
    def order(self) -> tuple[int, ...]:
        """What statements of a transaction are sorted by."""
        return (self.attempt.txid, *self.place)

    def bound(self, names: Iterable[str]) -> dict[str, object]:
        """Return the values of those names that are bound without being given."""
        return {name: getattr(self.attempt, name) for name in BOUND if name in names}


def statements_of(writes: object) -> tuple[Statement, ...]:
    """Return the statements of writes; those of aggregates and of an engine have none."""
    found: tuple[Statement, ...] = getattr(writes, "statements", ())
    return found


def redo_repeats(writes: object) -> bool:
    """Return whether a redo has the same batch as the writes of an earlier attempt."""
    return bool(getattr(writes, "repeats", False))


def given_parameters(
    state: str, parameters: Parameters | None, many: Sequence[Parameters] | None
) -> tuple[Parameters, ...]:
    """Return the sets of parameters of a call, copied and checked.

    Raises:
        StateUsageError: They are not plain values by name; repair the committer.
    """
    if parameters is not None and many is not None:
        raise StateUsageError(
            f"a statement of state {state!r} has both parameters and many; expected only one of "
            "them",
            state=state,
        )
    if many is not None and not isinstance(many, list | tuple):
        raise StateUsageError(
            f"many of a statement of state {state!r} is a {type(many).__name__}; expected a list "
            "of dictionaries, one for each time that it is executed",
            state=state,
            got=type(many).__name__,
        )
    return tuple(_checked(state, each) for each in ([parameters or {}] if many is None else many))


def _checked(state: str, parameters: object) -> Parameters:
    if not isinstance(parameters, Mapping):
        raise StateUsageError(
            f"the parameters of a statement of state {state!r} are a {type(parameters).__name__}; "
            'expected a dictionary, e.g. {"amount": 3}',
            state=state,
            got=type(parameters).__name__,
        )
    for name, value in parameters.items():
        if not isinstance(name, str) or name in BOUND:
            raise StateUsageError(
                f"a statement of state {state!r} was given a parameter {name!r}; expected names "
                f"other than {', '.join(BOUND)}, which have the values of the batch",
                state=state,
                got=name,
            )
        if value is not None and not isinstance(value, PLAIN):
            raise StateUsageError(
                f"parameter {name!r} of a statement of state {state!r} is a "
                f"{type(value).__name__}; expected None or a plain value: "
                f"{', '.join(kind.__name__ for kind in PLAIN)}",
                state=state,
                name=name,
                got=type(value).__name__,
            )
    return dict(parameters)


def check_undo(state: str, undo: object, *, repeats: bool) -> None:
    """Check that a statement has the undo that it needs.

    Args:
        state: Name of the state.
        undo: What was given.
        repeats: Whether all spouts above the committer repeat their batches.

    Raises:
        StateUsageError: It has none, or it is not a text.
    """
    if undo is None and not repeats:
        raise StateUsageError(
            f"a statement of state {state!r} has no undo, and its committer is below an opaque "
            "spout, whose replays may bring another batch under the same txid; expected undo=… "
            "with a statement that undoes it, such as a DELETE of the rows of :txid",
            state=state,
            setting="undo",
        )
    if not isinstance(undo, str | None):
        raise StateUsageError(
            f"the undo of a statement of state {state!r} is a {type(undo).__name__}; expected a "
            "string with parameters such as :txid, because it is stored",
            state=state,
            setting="undo",
            got=type(undo).__name__,
        )


@dataclass(frozen=True, slots=True)
class StoredUndo:
    """The stored undo of a statement.

    Attributes:
        order: The ``order`` of the statement.
        text: The statement that takes it back; None if there is none.
        parameters: The values of its parameters, one set for each time that it is executed.
    """

    order: tuple[int, ...]
    text: str | None
    parameters: tuple[Parameters, ...] = ()


def undos_of(
    statements: Iterable[Statement], names_of: Callable[[str], frozenset[str]]
) -> list[StoredUndo]:
    """Return the undos of statements, in the order of the statements.

    An undo is executed once for each set of parameters if it names one of them; else once.

    Args:
        statements: The statements.
        names_of: Returns the names of the parameters of a text.
    """
    found: list[StoredUndo] = []
    for each in statements:
        if each.undo is None:
            if not found or found[-1].text is not None:
                found.append(StoredUndo(each.order, None))
            continue
        names = names_of(each.undo)
        sets = each.parameters if names - set(BOUND) else each.parameters[:1]
        bound = each.bound(names)
        given = tuple(
            {name: value for name, value in one.items() if name in names} | bound for one in sets
        )
        found.append(StoredUndo(each.order, each.undo, given))
    return found


def missing_undo(undos: Iterable[StoredUndo]) -> str | None:
    """Return why stored undos do not take back all statements; None if they do."""
    found = next((each for each in undos if each.text is None), None)
    if found is None:
        return None
    return f"txid {found.order[0]} has executed statements without undo=, which cannot be undone"


def undos_to_text(undos: Sequence[StoredUndo]) -> str | None:
    """Return undos as a text to be stored beside a ledger; None for none."""
    if not undos:
        return None
    return json.dumps(
        [[each.order, each.text, [_plain(one) for one in each.parameters]] for each in undos],
        separators=(",", ":"),
    )


def undos_from_text(text: str | None, label: str) -> list[StoredUndo]:
    """Return the undos in a text that was stored.

    Raises:
        StoreDamagedError: It is not what was stored.
    """
    try:
        return [
            StoredUndo(tuple(order), undo, tuple(map(_exact, sets)))
            for order, undo, sets in json.loads(text or "[]")
        ]
    except (ValueError, TypeError, KeyError, decimal.DecimalException) as error:
        raise StoreDamagedError(
            f"the stored undo statements of {label} cannot be read: {text_of(error)}; got "
            f"{text!r:.200}; expected what was stored; was the ledger changed by hand?",
            store=label,
            got=f"{text!r:.200}",
        ) from error


_TEXTS: Mapping[type, tuple[str, Callable[[Any], str], Callable[[str], object]]] = {
    # One of numpy is a float whose repr is no number.
    float: ("float", float.__repr__, float),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii"), base64.b64decode),
    decimal.Decimal: ("decimal", str, decimal.Decimal),
    datetime.datetime: (
        "datetime",
        datetime.datetime.isoformat,
        datetime.datetime.fromisoformat,
    ),
    datetime.date: ("date", datetime.date.isoformat, datetime.date.fromisoformat),
    datetime.time: ("time", datetime.time.isoformat, datetime.time.fromisoformat),
}
"""How values that JSON does not have are stored: a name, and the functions to a text and back. A
datetime is a date as well, so it comes first."""


def _plain(parameters: Parameters) -> dict[str, object]:
    return {name: _stored(value) for name, value in parameters.items()}


def _stored(value: object) -> object:
    for kind, (name, text, _) in _TEXTS.items():
        if isinstance(value, kind):
            return {name: text(value)}
    return value


def _exact(parameters: Mapping[str, Any]) -> Parameters:
    return {name: _read(value) for name, value in parameters.items()}


def _read(value: object) -> object:
    if not isinstance(value, dict):
        return value
    ((name, text),) = cast("dict[str, str]", value).items()
    read = {name: of_text for name, _, of_text in _TEXTS.values()}
    return read[name](text)
