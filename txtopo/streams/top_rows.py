"""TopRows: the first n rows of a table as it is now, also when values fall and keys go.

Rules
-----
1. After each txid the result has the first n rows of the table as of that txid, with their ranks
   from 1; with ``per`` it has those of each group. Rows are compared by the columns of ``by``, from
   left to right: the larger value comes first, or the smaller one, if the column is one of
   ``smallest``. NaN is the largest number. A row with a NULL in one of them has no rank. Nor has
   one with NULL or NaN in a column of ``per``: as in a join, they equal nothing, so it is in no
   group.
2. Of rows that are equal there, the one with the smaller key comes first. So the result depends on
   the rows alone: not on batches, tasks or the order in which rows came.
3. All ranked rows are kept, since each may come in when others fall. Those of a group are divided
   into levels: each row of a level comes before all rows of the next one. A level is known by its
   last row (``last_…``; NULL in the last level, which has no end), and by how many rows it has. So
   the place of a row follows from its values, and a row that is taken back is found.
4. A txid reads the levels of the groups that it changes, and of their rows the first levels alone:
   as many as have n rows together. If no change is in these, the result stays, and none is read.
5. Levels are read further down as long as those that are read have too many rows
   (:func:`most_rows`). Then they are filled again: 2n rows in the first, twice as many in each
   further one, and the rest in the last one that is read. So a row that rises or falls through the
   whole table moves once for each level, and a level is read again only when it has been used up,
   or has grown to a multiple.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from txtopo.attempt import TransactionAttempt
from txtopo.builders.transactional import TransactionalTopologyBuilder
from txtopo.collector import ArrowOutputCollector
from txtopo.config import Config
from txtopo.context import TaskContext
from txtopo.errors import FieldsError, TopologyError
from txtopo.state.keyed_columns import (
    Flags,
    Numbers,
    differing,
    flags_of,
    is_key,
    last_of_each,
    order_of,
    positions,
    there,
    with_plain_zeros,
    without_keys,
)
from txtopo.state.registry import State
from txtopo.state.transaction import StateTransaction
from txtopo.streams.checks import check_new_columns, column_names
from txtopo.streams.draft import readable_state
from txtopo.streams.materialized import Materializing
from txtopo.streams.nodes import TableNode
from txtopo.streams.tables import RETRACTED, TableCommitter
from txtopo.traits import Meaning, Traits
from txtopo.tuples import Field, Fields

if TYPE_CHECKING:
    from txtopo.streams.stream import Names, Table

RANK = Field("rank", "long")
"""The column with the rank of a row, from 1."""

LEVEL = Field("top_level", "long")
"""The column with the level of a row, from 0."""

COUNT = Field("rows", "long")
"""The column with the number of rows of a level."""

LAST = "last_"
"""The prefix of the columns with the last row of a level."""

LEVELS, ROWS = "levels", "rows"
"""The names of the states that have the levels, and all rows."""

N_MAX = 10_000

_FIRST = ""
"""The column by which rows are sorted first: no declared field has an empty name."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How the rows of a table are ranked.

    Attributes:
        n: How many rows of a group are in the result.
        per: The columns of a group; empty if all rows are one group.
        key: The key columns of the table that are not of the group.
        value: Its other columns.
        by: The columns that are compared.
        smallest: Those of *by* of which the smaller value comes first.
    """

    n: int
    per: tuple[str, ...]
    key: tuple[str, ...]
    value: tuple[str, ...]
    by: tuple[str, ...]
    smallest: frozenset[str]

    @property
    def compared(self) -> list[str]:
        """The columns by which the rows of a group are in order."""
        return list(dict.fromkeys([*self.by, *self.key]))

    @property
    def falling(self) -> frozenset[str]:
        """Those of them of which the larger value comes first."""
        return frozenset(self.by) - self.smallest

    def __str__(self) -> str:
        by = ", ".join(f"-{name}" if name in self.smallest else name for name in self.by)
        return " per ".join([f"top {self.n} by {by}", *filter(None, [", ".join(self.per)])])

    def stored(self, fields: Fields) -> tuple[Fields, Fields]:
        """Return the key and the value of the state that has all rows."""
        key = [*fields.select(self.per), LEVEL, *fields.select(self.key)]
        return Fields.of(key), fields.select(self.value)

    def levels(self, fields: Fields) -> tuple[Fields, Fields]:
        """Return the key and the value of the state that has the levels."""
        last = [Field(f"{LAST}{each.name}", each.type) for each in fields.select(self.compared)]
        return Fields.of([*fields.select(self.per), LEVEL]), Fields.of([COUNT, *last])

    def result(self, fields: Fields) -> tuple[Fields, Fields]:
        """Return the key and the value of the result."""
        key = Fields.of([*fields.select(self.per), RANK])
        return key, fields.select([*self.key, *self.value])


def most_rows(n: int, level: int) -> int:
    """Return how many rows the levels up to this one may have together: four times their fill."""
    return 8 * n * ((2 << level) - 1)


@dataclass(slots=True)
class Levels:
    """The levels of the groups that a txid changes, group by group.

    Attributes:
        table: Their stored lines; new groups have an empty first level.
        level: The number of each.
        count: How many rows each has after the txid.
        group: The number of the group of each, from 0.
    """

    table: pa.Table
    level: Numbers
    count: Numbers
    group: Numbers

    @classmethod
    def of(cls, table: pa.Table) -> Levels:
        """Return lines that are sorted by group and level; the first level of a group is 0."""
        level, count = (
            np.array(table.column(name).to_numpy(), np.int64) for name in (LEVEL.name, COUNT.name)
        )
        return cls(table, level, count, np.cumsum(level == 0) - 1)


class TopRows(TableCommitter):
    """Keeps the first rows of a table, and emits how they change.

    Delivery: after each txid the result is that of the rows which the table has then.

    Args:
        ranking: How rows are ranked.
        arguments: The arguments of ``TableCommitter``.
    """

    def __init__(self, ranking: Ranking, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._ranking = ranking

    @property
    def traits(self) -> Traits:
        """The traits of a table, with its order, by which stored rows are in levels."""
        traits, meaning = super().traits, self.meaning
        assert meaning is not None, "it takes rows back"
        ranked = Meaning(f"{self._ranking}: {meaning.text}", meaning.fixed)
        return replace(traits, rows=ranked, operators=(str(self._ranking),))

    def prepare(
        self,
        config: Config,
        context: TaskContext,
        collector: ArrowOutputCollector,
        attempt: TransactionAttempt,
    ) -> None:
        """Get ready for one attempt."""
        super().prepare(config, context, collector, attempt)
        self._levels, self._kept = context.state(LEVELS), context.state(ROWS)

    def finish_batch(self) -> None:
        """Rank the rows that the batch leaves, emit what changes, and answer the queries."""
        ranking = self._ranking
        changes = with_plain_zeros(self._rows(), [*ranking.per, *ranking.by])
        has_group = is_key(changes, ranking.per)
        changes = changes if has_group is None else changes.filter(has_group)
        for name in ranking.by:
            changes = changes.filter(changes.column(name).is_valid())
        with ExitStack() as stack:
            values, levels, kept = (
                stack.enter_context(state.transaction(self._attempt))
                for state in (self._state, self._levels, self._kept)
            )
            if changes.num_rows:
                groups, first = self._ranked(levels, kept, self._lines(levels, changes), changes)
                self._write(values, groups, first)
            for stream, query in self._queries.items():
                self._answer(values, stream, query)

    def _of_groups(self, values: StateTransaction, groups: pa.Table | None) -> pa.Table:
        """Return what a state has of some groups; None if all rows are one group."""
        return values.all_columns() if groups is None else values.columns_starting(groups)

    def _lines(self, levels: StateTransaction, changes: pa.Table) -> Levels:
        """Return the levels of the groups that rows are of."""
        per = list(self._ranking.per)
        groups = last_of_each(changes.select(per), len(per)) if per else None
        found = self._of_groups(levels, groups)
        new, known = int(not found.num_rows), dict[str, Any]()
        if groups is not None:
            first = found.filter(pc.equal(found.column(LEVEL.name), 0))
            groups = without_keys(groups, first, per)
            new, known = groups.num_rows, {name: groups.column(name) for name in per}
        known |= dict.fromkeys([LEVEL.name, COUNT.name], pa.repeat(pa.scalar(0, pa.int64()), new))
        columns = [
            known[each.name] if each.name in known else pa.nulls(new, each.type)
            for each in found.schema
        ]
        return Levels.of(pa.concat_tables([found, pa.table(columns, schema=found.schema)]))

    def _places(self, lines: Levels, changes: pa.Table) -> Numbers:
        """Return the line of the level of each row."""
        ranking = self._ranking
        names = [*ranking.per, *ranking.compared]
        ends = lines.table.select(
            [*ranking.per, *(f"{LAST}{name}" for name in ranking.compared)]
        ).rename_columns(names)
        both = pa.concat_tables([changes.select(names), ends])
        # The last level has no end, so that it comes behind all rows of its group.
        both = both.append_column(_FIRST, both.column(ranking.by[0]).is_null())
        # A row that equals the end of a level is still in it: equal rows keep their order here,
        # in which rows are before ends, and an end before that of the next level.
        sorted_by = [*ranking.per, _FIRST, *ranking.compared]
        order = order_of(both, sorted_by, ranking.falling).to_numpy()
        ended = np.where(order >= changes.num_rows, np.arange(len(order)), len(order))
        following = np.minimum.accumulate(ended[::-1])[::-1]
        found = np.empty(len(order), np.int64)
        found[order] = order[following] - changes.num_rows
        return found[: changes.num_rows]

    def _ranked(
        self, levels: StateTransaction, kept: StateTransaction, lines: Levels, changes: pa.Table
    ) -> tuple[pa.Table, pa.Table]:
        """Write the changes.

        Returns:
            The first lines of the groups whose first rows may differ, and these rows.
        """
        ranking = self._ranking
        back, place = flags_of(changes.column(RETRACTED.name)), self._places(lines, changes)
        before = lines.count.copy()
        np.add.at(lines.count, place, np.where(back, -1, 1))
        assert (lines.count >= 0).all(), "a row is taken back as it was put"
        changes = changes.append_column(LEVEL.name, pa.array(lines.level[place]))
        read, depth = self._depths(lines, place)

        # The rows of the levels that are read, as they are after the txid.
        names = [*ranking.per, LEVEL.name, *ranking.key, *ranking.value]
        wanted = lines.table.select([*ranking.per, LEVEL.name])
        held = kept.columns_starting(wanted.filter(pa.array(read & (before > 0)))).select(names)
        taken, put = (changes.filter(pa.array(each)) for each in (back, ~back))
        left = without_keys(held, taken, [*ranking.per, *ranking.key])
        near = read[place[~back]]
        rows = pa.concat_tables([left, put.select(names).filter(pa.array(near))])
        is_new = np.arange(rows.num_rows) >= left.num_rows
        line = positions(rows.select(wanted.column_names), wanted).to_numpy()
        group = lines.group[line]

        numbered = rows.append_column(_FIRST, pa.array(group))
        order = order_of(numbered, [_FIRST, *ranking.compared], ranking.falling).to_numpy()
        rows, group, is_new = rows.take(pa.array(order)), group[order], is_new[order]
        rank = np.arange(len(group)) - np.searchsorted(group, group)
        filled = np.log2(rank // (2 * ranking.n) + 1).astype(np.int64)
        level = np.minimum(filled, depth[group])
        was = rows.column(LEVEL.name).to_numpy()
        moved = ~is_new & (level != was)
        key = [*ranking.per, LEVEL.name, *ranking.key]
        kept.delete_columns(taken.select(key))
        kept.delete_columns(rows.filter(pa.array(moved)).select(key))
        at = rows.schema.get_field_index(LEVEL.name)
        rows = rows.set_column(at, LEVEL.name, pa.array(level))
        kept.put_columns(rows.filter(pa.array(moved | is_new)))
        kept.put_columns(put.select(names).filter(pa.array(~near)))

        self._write_lines(levels, lines, place, depth, rows, group)
        chosen = rank < ranking.n
        found = rows.filter(pa.array(chosen))
        found = found.append_column(RANK.name, pa.array(rank[chosen] + 1))
        groups = lines.table.filter(pa.array(lines.level == 0)).filter(pa.array(depth >= 0))
        return groups, found

    def _depths(self, lines: Levels, place: Numbers) -> tuple[Flags, Numbers]:
        """Return which lines have to be read, and up to which level those of each group are filled.

        The depth may be one of a level that is new. It is -1 if the group has no change in the
        lines that count.
        """
        n, starts = self._ranking.n, np.flatnonzero(lines.level == 0)
        read, depth = np.zeros(len(lines.level), np.bool_), np.full(len(starts), -1)
        changed = np.full(len(starts), len(lines.level))
        np.minimum.at(changed, lines.group[place], place)
        for group, (start, end) in enumerate(zip(starts, [*starts[1:], len(read)], strict=True)):
            total, at = int(lines.count[start]), int(start)
            while at + 1 < end and not n <= total <= most_rows(n, at - int(start)):
                at += 1
                total += int(lines.count[at])
            if changed[group] > at:
                continue
            read[start : at + 1], depth[group] = True, at - start
            while total > most_rows(n, int(depth[group])):
                depth[group] += 1  # a new level
        return read, depth

    def _write_lines(
        self,
        levels: StateTransaction,
        lines: Levels,
        place: Numbers,
        depth: Numbers,
        rows: pa.Table,
        group: Numbers,
    ) -> None:
        """Write the levels that have changed.

        Args:
            levels: Their state.
            lines: The levels.
            place: The line of each change.
            depth: Up to which level those of each group are filled; -1 for none.
            rows: The rows of these levels, sorted by group and rank.
            group: The group of each.
        """
        names = self._ranking.compared
        columns = [f"{LAST}{name}" for name in names]
        level = rows.column(LEVEL.name).to_numpy()
        ends = pa.concat_tables(
            [lines.table.select(columns), rows.select(names).rename_columns(columns)]
        )
        starts = np.flatnonzero(lines.level == 0)
        totals = np.bincount(lines.group, lines.count, len(starts))
        written: list[tuple[Any, ...]] = []  # group, level, rows, place of the end
        for at in np.unique(place[lines.level[place] > depth[lines.group[place]]]):
            written.append((lines.group[at], lines.level[at], lines.count[at], at))
        for each in np.flatnonzero((depth >= 0) & (totals > 0)):
            begin, end = np.searchsorted(group, [each, each + 1])
            upto = begin + np.searchsorted(level[begin:end], np.arange(depth[each] + 1), "right")
            # The last level that is filled ends as the last one that was read did.
            last_line = np.searchsorted(lines.group, each, "right") - 1
            was = min(starts[each] + depth[each], last_line)
            for one, (first, behind) in enumerate(zip([begin, *upto], upto, strict=False)):
                at = len(lines.level) + behind - 1 if behind < end else was
                written.append((each, one, behind - first, at))
        of, number, count, at = np.array(written, np.int64).reshape(-1, 4).T
        per = lines.table.select(list(self._ranking.per)).take(pa.array(starts[of]))
        made = [*per.columns, pa.array(number), pa.array(count), *ends.take(pa.array(at)).columns]
        levels.put_columns(pa.table(made, schema=lines.table.schema))
        empty = totals[lines.group] == 0
        gone = lines.table.filter(pa.array(empty)).select([*self._ranking.per, LEVEL.name])
        levels.delete_columns(gone)

    def _write(self, values: StateTransaction, groups: pa.Table, after: pa.Table) -> None:
        """Write the first rows of some groups, as far as they differ, and emit the changes."""
        if not groups.num_rows:
            return
        keys, names = self._keys, list(self._table.value.names)
        per = list(self._ranking.per)
        before = self._of_groups(values, groups.select(per) if per else None)
        after = after.select(before.column_names)
        place = positions(after.select(keys), before.select(keys))
        new = differing(after.select(names), before.select(names).take(place))
        values.put_columns(after.filter(pa.array(new | ~there(place))))
        values.delete_columns(without_keys(before, after, keys).select(keys))
        if self._changes:
            self._tell(before, after)


@dataclass(eq=False, slots=True)
class TopRowsNode(TableNode):
    """The first rows of a table.

    Attributes:
        ranking: How rows are ranked.
        aside: The states with the levels and with all rows, by name.
    """

    ranking: Ranking | None = None
    aside: Mapping[str, State] | None = None

    @property
    def beside(self) -> Mapping[str, State]:
        """The states with the levels and with all rows."""
        assert self.aside is not None
        return self.aside

    def committer(self, *arguments: Any) -> TableCommitter:
        """Return the committer of the table."""
        assert self.ranking is not None
        return TopRows(self.ranking, *arguments)

    def declare(self, builder: TransactionalTopologyBuilder) -> None:
        """Add the committer, which gets all changes."""
        assert self.chooses is not None
        self._commit(builder, self.chooses, self.rows, tuple(port.output for port in self.inputs))


def top_rows_node(
    table: Table,
    n: object,
    by: Names,
    per: Names,
    smallest: Names,
    state: State | None,
    id: str | None,
) -> TopRowsNode:
    """Add the node of the first rows of a table.

    Raises:
        TopologyError: An argument is wrong, or a state is used elsewhere.
    """
    operator, source = "top", table.node.state
    if type(n) is not int or not 1 <= n <= N_MAX:
        raise TopologyError(
            f"top has a bad number of rows; got {n!r:.100}; expected 1 to {N_MAX}, as in top(10, "
            "by=…)",
            setting="n",
            got=f"{n!r:.100}",
        )
    if table.node.forgets:
        raise TopologyError(
            f"top would show windows that {table.name!r} no longer has; got windows with keep=, "
            "whose deletion is not among their changes; expected windows without keep=, or "
            "final().as_table(…, expire_after=…).top(…), where closed windows expire",
            component=table.name,
        )
    draft = table.draft
    with draft.all_or_nothing():
        stream = table.changes(retracted=True)
        fields = Fields.of([each for each in stream.fields if each.name != RETRACTED.name])
        groups = column_names("top, for per,", per, fields)
        others = fields.select([name for name in fields.names if name not in groups])
        compared = column_names("top, for by,", by, others)
        if not compared:
            raise FieldsError("top compares no column; got an empty by; expected a name")
        falling = column_names("top, for smallest,", smallest, fields.select(compared))
        key = tuple(name for name in source.key.names if name not in groups)
        value = tuple(name for name in fields.names if name not in (*groups, *key))
        ranking = Ranking(n, groups, key, value, compared, frozenset(falling))
        check_new_columns(operator, fields, [RANK, LEVEL])
        check_new_columns(operator, fields.select(groups), ranking.levels(fields)[1])
        given = source.beside(f"{source.table}_top") if state is None else state
        taken = draft.id_of_table(id, operator, given)
        kept = readable_state(operator, given).named(taken)
        kept = kept.with_columns(*ranking.result(fields))
        aside = {}
        for name, columns in ((LEVELS, ranking.levels(fields)), (ROWS, ranking.stored(fields))):
            aside[name] = kept.beside(f"{kept.table}_{name}").with_columns(*columns)
            draft.take_table(f"the {name} of {kept.table!r}", aside[name], taken)
        chooses = Materializing(ranking.key, ranking.value, RETRACTED.name)
        parts = taken, stream.ports, 1, kept, chooses, None, stream.fields, kept.value
        return draft.add(TopRowsNode(*parts, ranking=ranking, aside=aside))
