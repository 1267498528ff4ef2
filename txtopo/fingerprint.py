"""Fingerprint: what the stored txids and rows of a topology depend on, as data.

``/epoch`` keeps it in ``topology``, so that another program under the same id is noticed::

    {"guarantee": text, "components": {id: {
        "role": text, "inputs": [[source, stream, grouping, [field, …]], …],
        "rows": text, "buffered": text,
        "states": {name: {"table": text, "kind": text, "mode": text, "key": [[column, type], …],
                          "value": [[column, type], …], "aggregates": [text, …]}}}}}

An at-least-once topology has no components there, since nothing is stored of them. ``rows`` and
``buffered`` are there if a bolt says what its rows mean
(:class:`txtopo.traits.Meaning`). What may change from one start to the next is left out:
parallelism, classes, settings, and the place of a store, whose ledger says whether it is the right
one. Secrets are left out, too.

Fingerprints are compared field by field. Their texts are made when a difference is shown, and are
never read again: a component or a state may have any name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from txtopo.config import ChangeKind
from txtopo.errors import TopologyChanged
from txtopo.metadata import Json

StateName = tuple[str, str]
"""A state: the id of its component, and its own name."""

Columns = tuple[tuple[str, str], ...]
"""The names and types of columns."""


@dataclass(frozen=True, slots=True)
class InputForm:
    """An input of a component.

    Attributes:
        source: Id of the component that emits.
        stream: Name of its stream.
        grouping: Name of the grouping.
        fields: The fields of the grouping, if it has any.
    """

    source: str
    stream: str
    grouping: str
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the form in words."""
        fields = f"({', '.join(self.fields)})" if self.fields else ""
        return f"{self.source!r}.{self.stream!r} by {self.grouping}{fields}"

    def to_json(self) -> Json:
        """Return the form as JSON, as it is stored."""
        return [self.source, self.stream, self.grouping, list(self.fields)]

    @classmethod
    def from_json(cls, value: Any) -> InputForm:
        """Return the form that this stored JSON describes."""
        source, stream, grouping, fields = _list(value)
        return cls(_text(source), _text(stream), _text(grouping), _texts(fields))


@dataclass(frozen=True, slots=True)
class StateForm:
    """A state: its table and its columns.

    Attributes:
        table: Name of its table.
        kind: ``"opaque"`` or ``"transactional"``.
        mode: ``"table"`` or ``"log"``.
        key: The key columns.
        value: The value columns.
        aggregates: The class of each value column's aggregate; empty without aggregates.
    """

    table: str
    kind: str
    mode: str
    key: Columns
    value: Columns
    aggregates: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the form in words."""
        key, value = (
            ", ".join(f"{name} {type}" for name, type in part) for part in (self.key, self.value)
        )
        combined = "".join(f" {each}" for each in self.aggregates)
        return f"{self.kind} {self.mode} {self.table!r} ({key}) -> ({value}){combined}"

    def to_json(self) -> Json:
        """Return the form as JSON, as it is stored."""
        return {
            "table": self.table,
            "kind": self.kind,
            "mode": self.mode,
            "key": [list(each) for each in self.key],
            "value": [list(each) for each in self.value],
            "aggregates": list(self.aggregates),
        }

    @classmethod
    def from_json(cls, value: Any) -> StateForm:
        """Return the form that this stored JSON describes."""
        return cls(
            _text(value["table"]),
            _text(value["kind"]),
            _text(value["mode"]),
            _columns(value["key"]),
            _columns(value["value"]),
            _texts(value["aggregates"]),
        )


@dataclass(frozen=True, slots=True)
class ComponentForm:
    """A spout or bolt.

    Attributes:
        role: Its kind, in words, such as ``"batch bolt"``.
        inputs: Its inputs, sorted; a spout has none, and a bolt at least one.
        rows: What the rows of its states mean, if their columns do not say it.
        buffered: What it has packed into a column of its first state.
        states: Its states by name, in the order in which they were declared.
    """

    role: str
    inputs: tuple[InputForm, ...] = ()
    rows: str | None = None
    buffered: str | None = None
    states: Mapping[str, StateForm] = field(default_factory=dict)

    @property
    def is_spout(self) -> bool:
        """Whether the component is a spout."""
        return not self.inputs

    @property
    def meanings(self) -> dict[str, str]:
        """What the component declares about its rows, by subject."""
        said = {"rows": self.rows, BUFFERED: self.buffered}
        return {what: text for what, text in said.items() if text is not None}

    def __str__(self) -> str:
        """Return the role and the inputs of the component in words."""
        article = "an" if self.role[:1] in "aeiou" else "a"
        inputs = f" of {', '.join(map(str, self.inputs))}" if self.inputs else ""
        return f"{article} {self.role}{inputs}"

    def to_json(self) -> Json:
        """Return the form as JSON, as it is stored."""
        meanings = {"rows": self.rows, "buffered": self.buffered}
        return {
            "role": self.role,
            "inputs": [each.to_json() for each in self.inputs],
            **{name: text for name, text in meanings.items() if text is not None},
            "states": {name: state.to_json() for name, state in self.states.items()},
        }

    @classmethod
    def from_json(cls, value: Any) -> ComponentForm:
        """Return the form that this stored JSON describes."""
        rows, buffered = value.get("rows"), value.get("buffered")
        return cls(
            _text(value["role"]),
            tuple(InputForm.from_json(each) for each in _list(value["inputs"])),
            None if rows is None else _text(rows),
            None if buffered is None else _text(buffered),
            {name: StateForm.from_json(each) for name, each in value["states"].items()},
        )


BUFFERED = "buffered rows"
"""What the words call the rows that a join has packed into a column of its first state."""


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A topology, as far as what is stored depends on it.

    Attributes:
        components: Its spouts and bolts by id.
        guarantee: ``"exactly once"`` or ``"at least once"``.
    """

    components: Mapping[str, ComponentForm]
    guarantee: str = "exactly once"

    @property
    def states(self) -> dict[StateName, StateForm]:
        """All states."""
        return {
            (id, name): state
            for id, component in self.components.items()
            for name, state in component.states.items()
        }

    @property
    def spouts(self) -> dict[str, ComponentForm]:
        """The spouts by id."""
        return {id: each for id, each in self.components.items() if each.is_spout}

    def to_json(self) -> Json:
        """Return the fingerprint as JSON, as it is stored."""
        components = {id: each.to_json() for id, each in self.components.items()}
        return {"guarantee": self.guarantee, "components": components}

    @classmethod
    def from_json(cls, value: Json) -> Fingerprint:
        """Return the fingerprint that this stored JSON describes.

        Raises:
            ValueError: It is of another form.
        """
        stored: Any = value
        try:
            components = {
                id: ComponentForm.from_json(each) for id, each in stored["components"].items()
            }
            return cls(components, _text(stored["guarantee"]))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"got {value!r:.200}; expected a fingerprint") from error

    def parts(self) -> dict[tuple[str, ...], Part]:
        """Return the parts that are compared one by one, each by its path in the topology."""
        parts: dict[tuple[str, ...], Part] = {("guarantee",): Part("the guarantee", self.guarantee)}
        for id, component in self.components.items():
            alone = replace(component, rows=None, buffered=None, states={})
            parts["component", id] = Part(f"component {id!r}", alone)
            for what, text in component.meanings.items():
                parts[what, id] = Part(f"{what} of {id!r}", text)
            for name, state in component.states.items():
                parts["state", id, name] = Part(in_words((id, name)), state)
        return parts


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a fingerprint.

    Attributes:
        words: What it is of, in words.
        form: What is compared.
    """

    words: str
    form: ComponentForm | StateForm | str


def in_words(state: StateName) -> str:
    """Return the name of a state in words."""
    component, name = state
    return f"state {name!r} of {component!r}"


@dataclass(frozen=True, slots=True)
class Difference:
    """One way in which a topology is another one than before.

    Attributes:
        change: What has to be allowed for it, see ``Config.allow_change``.
        text: The difference in words.
    """

    change: ChangeKind
    text: str


def differences(known: Fingerprint, now: Fingerprint) -> list[Difference]:
    """Return how a topology differs from the one that ran: what is gone, what is new, the rest."""
    before, after = known.parts(), now.parts()
    return [
        *(_gone_or_new(part, "gone") for name, part in before.items() if name not in after),
        *(_gone_or_new(part, "new") for name, part in after.items() if name not in before),
        *(
            _changed(part, after[name])
            for name, part in before.items()
            if name in after and part != after[name]
        ),
    ]


def _gone_or_new(part: Part, how: str) -> Difference:
    of_state = isinstance(part.form, StateForm)
    return Difference(
        ChangeKind.STATES if of_state else ChangeKind.COMPONENTS, f"{part.words} is {how}"
    )


def _changed(was: Part, now: Part) -> Difference:
    change = ChangeKind.COMPONENTS
    if isinstance(was.form, StateForm) and isinstance(now.form, StateForm):
        change = ChangeKind.COLUMNS if was.form.table == now.form.table else ChangeKind.STATES
    return Difference(change, f"{now.words} was {was.form} and is {now.form}")


def another_topology(found: Sequence[Difference]) -> TopologyChanged:
    """Return the error for a start of a topology that differs from the one that ran."""
    changes = tuple(each.text for each in found)
    return TopologyChanged(
        f"the topology is not the one that last ran under this id; {'; '.join(changes)}; expected "
        "the same components, streams and states, because the stored plans and values belong to "
        "them; start the old one, or give this one another id; if the change is intended and you "
        f"know that it fits what is stored, start once with {setting_for(found)}",
        changes=changes,
    )


def setting_for(found: Sequence[Difference]) -> str:
    """Return the setting that allows these differences, as a program has it."""
    names = sorted({each.change.value for each in found})
    return f"Config(allow_change={names})"


def _columns(value: Any) -> Columns:
    columns = (_list(each) for each in _list(value))
    return tuple((_text(name), _text(type)) for name, type in columns)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(map(_text, _list(value)))


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value
