"""PersistentAggregate: the ready-made committer for counts, sums and other aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from txtopo.bolts.bolt import Committer
from txtopo.durations import Duration, duration
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.aggregates import Aggregate
from txtopo.state.lifetimes import Lifetime
from txtopo.state.registry import State, checked_state
from txtopo.traits import HasTraits, Meaning, Traits
from txtopo.tuples import Field, Fields

GLOBAL_KEY = "global"
"""The key of the only row of an aggregate without key fields; its column is called ``key``."""


class PersistentAggregate(HasTraits, Committer):
    """Keeps aggregates by key in a state, exactly once (Trident ``persistentAggregate``).

    The tasks combine rows in the processing phase. In the commit phase, the driver combines the
    partial results of all tasks with the stored values, in one write per store, whatever the
    parallelism. It emits nothing.

    An ``OwnAggregate`` is pickled and sent to the Spark tasks, which call its ``add``. Its
    ``combine`` is also called in the driver, with partial results in no particular order. Each key
    is written once per group of batches, which may be several txids. An exception in an aggregate
    ends the run; the error names the component.

    Args:
        state: The state that keeps the aggregates; this sets its key and value columns.
        key: Names of the key fields; empty for a single row over everything.
        aggregates: One aggregate, several, or a mapping from column name to aggregate: ``Count``,
            ``Sum``, ``Min``, ``Max``, ``Mean``, ``CountDistinct``, ``First``, ``Last``, ``TopN``,
            or an ``OwnAggregate``.
        retracted: Name of a boolean input field. A row where it is true retracts an earlier row, as
            a deletion in a change feed does. ``Count``, ``Sum``, ``Mean`` and an ``OwnAggregate``
            with ``remove`` can retract; others are refused. A key stays when all of its rows are
            retracted, with a count of 0.
        expire_after: A value that has had no row for this long counts as absent, and is deleted
            some time later. It is measured in planned time; the state, which must be opaque, keeps
            that time in a column ``seen``. By default, values are kept forever.

    Example:
        >>> words = PersistentAggregate(open_state("sqlite:///c.db"), "word", Count())
        >>> values = {"flights": Count(), "delay": Sum("d")}
        >>> flights = PersistentAggregate(open_state("sqlite:///c.db"), ["carrier", "hour"], values)
    """

    writes_nowhere_else = True
    output_fields = None
    output_streams: Mapping[str, Fields] = {}

    # A program of streams sets it where rows of a table are taken back.
    meaning: Meaning | None = None

    def __init__(
        self,
        state: State,
        key: str | Sequence[str] = (),
        aggregates: Aggregate | Sequence[Aggregate] | Mapping[str, Aggregate] = (),
        *,
        retracted: str | None = None,
        expire_after: Duration | None = None,
    ) -> None:
        self.state = checked_state("a PersistentAggregate", state)
        self.key: tuple[str, ...] = (key,) if isinstance(key, str) else tuple(key)
        if isinstance(aggregates, Aggregate | type | str):
            aggregates = (aggregates,)
        for each in aggregates.values() if isinstance(aggregates, Mapping) else aggregates:
            if not isinstance(each, Aggregate):
                raise TopologyError(
                    f"{each!r:.200} is not an aggregate; expected an object: Count(), "
                    "Sum('field') …; several key fields are one list: PersistentAggregate(state, "
                    "['a', 'b'], …)",
                    setting="aggregates",
                    got=f"{each!r:.200}",
                )
        if not isinstance(aggregates, Mapping):
            aggregates = _by_name(aggregates)
        if not aggregates:
            raise TopologyError("PersistentAggregate has no aggregates; expected e.g. Count()")
        self.aggregates: dict[str, Aggregate] = _by_column(aggregates)
        if not isinstance(retracted, str | None):
            raise TopologyError(
                f"retracted is wrong; got {retracted!r:.200}; expected the name of a boolean field",
                setting="retracted",
                got=f"{retracted!r:.200}",
            )
        if retracted in self.key:
            raise TopologyError(
                "rows would be taken back from a different group than the one they were counted "
                f"in; got {retracted!r} as the mark of rows that are taken back, and in the key "
                f"{', '.join(self.key)}; expected a key without that field",
                setting="retracted",
                got=repr(retracted),
            )
        self.retracted = retracted
        fixed = [name for name, each in self.aggregates.items() if not each.takes_back]
        if retracted is not None and fixed:
            raise TopologyError(
                f"rows cannot be taken back from {self.aggregates[fixed[0]]!r}; got retracted="
                f"{retracted!r}; expected Count, Sum, Mean, or an OwnAggregate with remove()",
                setting="retracted",
                got=repr(self.aggregates[fixed[0]]),
            )
        self.lifetime: Lifetime | None = None
        if expire_after is not None:
            what = "expire_after, of PersistentAggregate,"
            self.lifetime = Lifetime(duration(what, expire_after))
            check_expiring_aggregate("a PersistentAggregate", state, retracted)

    @property
    def traits(self) -> Traits:
        """The meaning of the stored rows. No user code in the topology reads them."""
        return replace(super().traits, rows=self.meaning, reads_states=False)

    def key_fields(self, inputs: Fields) -> Fields:
        """Return the key columns for inputs of these fields."""
        return inputs.select(self.key) if self.key else Fields("key string")

    def value_fields(self, inputs: Fields) -> Fields:
        """Return the value columns for inputs of these fields."""
        if self.retracted is not None:
            (gone,) = inputs.select([self.retracted])
            if gone.type != "boolean":
                raise FieldsError(
                    "the field that marks the rows to take back is not a boolean; got "
                    f"{gone.name!r}, {gone.type}; expected e.g. Fields('{gone.name} boolean')",
                    field=gone.name,
                    got=gone.type,
                    expected="boolean",
                )
        fields: list[Field] = [
            aggregate.value_field(name, inputs) for name, aggregate in self.aggregates.items()
        ]
        return Fields.of(fields)

    def stored_aggregates(self, inputs: Fields) -> tuple[Aggregate, ...]:
        """Return the aggregate of each value column for inputs of these fields."""
        return tuple(aggregate.of_inputs(inputs) for aggregate in self.aggregates.values())


def check_expiring_aggregate(what: str, state: State, retracted: str | None) -> None:
    """Check that the values of an aggregate may expire.

    Args:
        what: What it is, for messages.
        state: Its state.
        retracted: The field that says which rows are taken back; None for none.

    Raises:
        TopologyError: They may not.
    """
    if retracted is not None:
        raise TopologyError(
            f"{what} with expire_after cannot take rows back; got retracted={retracted!r}; a row "
            "that is taken back after its value has expired would count as less than none; "
            "expected expire_after at the table whose rows are taken back, as in as_table(…, "
            "expire_after=…).changes(retracted=True)",
            setting="retracted",
            got=retracted,
        )
    if state.kind != "opaque" or state.mode != "table":
        raise TopologyError(
            f"{what} with expire_after reads its state; got {state!r} in mode {state.mode!r}; "
            "expected an opaque state in mode 'table'; remove kind= and mode= from open_state(…)",
            setting="state",
            got=repr(state),
        )


def _by_name(aggregates: Sequence[Aggregate]) -> dict[str, Aggregate]:
    named: dict[str, Aggregate] = {}
    for aggregate in aggregates:
        if aggregate.default_name in named:
            raise TopologyError(
                f"two aggregates would use the column {aggregate.default_name!r}; got "
                f"{named[aggregate.default_name]!r} and {aggregate!r}; name them: {{'column': "
                "aggregate, …}",
                column=aggregate.default_name,
            )
        named[aggregate.default_name] = aggregate
    return named


def _by_column(aggregates: Mapping[str, Aggregate]) -> dict[str, Aggregate]:
    columns: dict[str, Aggregate] = {}
    taken: dict[str, str] = {}
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, Aggregate):
            raise TopologyError(
                f"column {name!r} has no aggregate; got {aggregate!r:.100}; expected e.g. Count() "
                "or Sum('amount')",
                column=name,
                got=f"{aggregate!r:.100}",
            )
        made = aggregate.columns(name)
        for column in {name, *made}:
            if column in taken:
                raise TopologyError(
                    f"two aggregates use the column {column!r}; got {taken[column]!r} and "
                    f"{name!r} ({aggregate!r}); rename one of them",
                    column=column,
                )
            taken[column] = name
        columns |= made
    return columns
