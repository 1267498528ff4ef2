"""Random programs of several operators that put and take back rows, each from a seed.

A program makes relations, each of earlier ones: tables, captured tables, aggregates, joins, merges,
what is filtered and mapped in between. So joins of joins, of a relation with itself, and with its
own aggregate occur. A relation has the columns ``k``, ``a`` and ``b``; as long as ``b`` identifies
its rows, it may become a table. The plain program makes all relations again after each txid, from
all sales.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.unit.streams.plain_regular_joins import Row, joined
from tests.unit.streams.seeds import config_of
from tests.unit.streams.worlds import NAMES, RecuttingSpout, judged, memory_state, sales
from txtopo import Count, StreamBuilder, Sum, Topology
from txtopo.streams import DataStream, Table
from txtopo.testing.simulation.campaign import Verdict

ROWS = 16
COLUMNS = "k string, a long, b string"
OPERATORS = 5
JOINS = 3
"""How many joins a program has at most, since their rows multiply."""

Sale = dict[str, Any]
Live = Callable[[Sequence[Sale]], Counter[Row]]


@dataclass(frozen=True)
class Relation:
    """Rows that are put and taken back.

    Attributes:
        stream: Its changes.
        live: Returns its rows after some sales.
        unique: Whether ``b`` identifies each of them.
        joins: How many joins are above it.
        table: The table whose changes these are; None if there is none.
    """

    stream: DataStream
    live: Live
    unique: bool = True
    joins: int = 0
    table: Table | None = None

    @property
    def marks(self) -> str:
        """The declaration of the column that marks rows as taken back, if there is one."""
        return "".join(f", {each.name} {each.type}" for each in list(self.stream.fields)[3:])

    def marked(self) -> Relation:
        """Return the relation with a column that marks rows as taken back, also if none is."""
        if self.stream.retracted is not None:
            return self
        made = self.stream.with_columns(lambda row: [False], "retracted boolean")
        return replace(self, stream=made, table=None)

    def mapped(self, function: Callable[[Any, Any, Any], Row], *, unique: bool) -> Relation:
        """Return the relation with other rows, each made of one."""

        def row_of(row: Any) -> list[Any]:
            # The mark, if there is one, is the last column.
            return [*function(row["k"], row["a"], row["b"]), *row.values[3:]]

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            return total((function(*row), n) for row, n in self.live(rows).items())

        made = self.stream.map(row_of, f"{COLUMNS}{self.marks}")
        return replace(self, stream=made, live=live, unique=self.unique and unique, table=None)


class Program:
    """The program of a seed.

    Args:
        seed: The seed.
        rows: The rows of the source.

    Attributes:
        made: The operators, in words.
        relations: What they return.
    """

    def __init__(self, seed: int, rows: Sequence[Sequence[Any]]) -> None:
        self._chance = Random(f"changing/{seed}")
        self._builder = StreamBuilder("changing")
        spout = RecuttingSpout(rows, 1 + seed % 4)
        self._source = self._builder.source("sales", spout, 1 + seed % 2)
        self._states = 0
        self.made: list[str] = []
        bases = [self._appended, self._largest, self._captured]
        self.relations = [base() for base in self._chance.sample(bases, 2)]
        operators = [
            self._filtered,
            self._mapped,
            self._coarse,
            self._as_table,
            self._aggregated,
            self._top,
            self._merged,
            self._joined,
            self._joined,
        ]
        while len(self.made) < OPERATORS:
            operator = self._chance.choice(operators)
            found = operator(self._any())
            if found is not None:
                self.made.append(operator.__name__)
                self.relations.append(found)
        self.results = self.relations[-2:]
        for at, each in enumerate(self.results):
            self._end(at, each)

    def topology(self) -> Topology:
        """Return the program."""
        return self._builder.build_topology()

    def plain(
        self, batches: Sequence[Sequence[Sequence[Any]]], _: Mapping[int, Any]
    ) -> dict[str, dict[Any, dict[str, Any]]]:
        """Return what the tables at the end must hold after some batches.

        A row that is no longer there is still counted, with 0.
        """
        held: dict[str, dict[Any, dict[str, Any]]] = {}
        for at, each in enumerate(self.results):
            rows: list[Sale] = []
            counted: dict[str, int] = {}
            found = each.live(rows)
            for batch in batches:
                rows += [dict(zip(NAMES, sale, strict=True)) for sale in batch]
                found = each.live(rows)
                now = {repr(row): n for row, n in found.items()}
                counted = dict.fromkeys(counted, 0) | now
            held[f"counted{at}"] = {text: {"n": n} for text, n in counted.items()}
            if each.unique:
                held[f"table{at}"] = {b: {"k": k, "a": a} for k, a, b in found}
        return held

    def _end(self, at: int, given: Relation) -> None:
        mark = given.stream.retracted
        texts = given.stream.map(
            lambda row: [
                repr((row["k"], row["a"], row["b"])),
                *([] if mark is None else [row[mark]]),
            ],
            f"row string{given.marks}",
        )
        texts.group_by("row").persistent_aggregate(memory_state(f"counted{at}"), n=Count())
        if given.unique:
            given.stream.as_table(memory_state(f"table{at}"), key="b")

    def _any(self) -> Relation:
        # The later ones more often, so that programs are deep.
        return self._chance.choice(self.relations + self.relations[-2:])

    def _state(self) -> Any:
        self._states += 1
        return memory_state(f"state{self._states}")

    def _of_table(self, table: Table, live: Live, above: int = 0) -> Relation:
        changes = table.changes(retracted=True).select("k", "a", "b", "retracted")
        return Relation(changes, live, joins=above, table=table)

    # ------------------------------------------------------------ of the source

    def _appended(self) -> Relation:
        """Rows that stay, of which some have no key."""

        def row_of(row: Any) -> Row:
            return None if row["shop"] == "d" else row["shop"], row["amount"], row["id"]

        made = self._source.map(lambda row: list(row_of(row)), COLUMNS)
        return Relation(made, lambda rows: Counter(map(row_of, rows)))

    def _largest(self) -> Relation:
        """The last sale of each shop."""

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            last = {row["shop"]: row for row in in_order(rows)}
            return Counter((row["shop"], row["amount"], row["id"]) for row in last.values())

        stream = self._source.select(k="shop", a="amount", b="id")
        return self._of_table(stream.group_by("k").max_by(self._state(), by="b"), live)

    def _captured(self) -> Relation:
        """A captured table, of which some rows are deleted."""

        def row_of(row: Any) -> Row:
            number = int(row["id"][1:])
            gone = row["amount"] is None or row["amount"] % 3 == 0
            return f"n{number % 5}", row["shop"], row["amount"], row["id"], "d" if gone else "u"

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            last = {row_of(row)[0]: row_of(row) for row in in_order(rows)}
            return Counter((k, a, b) for b, k, a, _, op in last.values() if op == "u")

        events = self._source.map(
            lambda row: list(row_of(row)), "b string, k string, a long, at string, op string"
        )
        rows = events.as_changes(self._state(), "b", ["k", "a"], position="at")
        return Relation(rows, live)

    # ------------------------------------------------------------ of other relations

    def _filtered(self, given: Relation) -> Relation:
        some = self._chance.randint(2, 4)

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            return Counter({row: n for row, n in given.live(rows).items() if fits(row[1], some)})

        made = given.stream.filter(lambda row: fits(row["a"], some))
        return replace(given, stream=made, live=live, table=None)

    def _mapped(self, given: Relation) -> Relation:
        """Another key: many rows get the same, or one that is NULL."""
        some = self._chance.randint(2, 4)
        return given.mapped(
            lambda k, a, b: (None if a is None else f"m{a % some}", len(b), b), unique=True
        )

    def _coarse(self, given: Relation) -> Relation:
        """Many equal rows."""
        some = self._chance.randint(1, 3)
        return given.mapped(lambda k, a, b: (k, int(fits(a, some)), b[:some]), unique=False)

    def _as_table(self, given: Relation) -> Relation | None:
        if not given.unique:
            return None
        table = given.stream.as_table(self._state(), key="b")
        return self._of_table(table, given.live, given.joins)

    def _aggregated(self, given: Relation) -> Relation:
        """The number and the total of the rows of each key that has some."""

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            found: dict[Any, list[int]] = {}
            for (k, a, _), n in given.live(rows).items():
                group = found.setdefault(k, [0, 0])
                group[0] += n
                group[1] += n * (a or 0)
            return Counter((k, n, f"{k}={a}") for k, (n, a) in found.items() if k is not None)

        known = given.stream.filter(lambda row: row["k"] is not None)
        known = known.with_columns(lambda row: [row["a"] or 0], "a long")
        table = known.group_by("k").persistent_aggregate(self._state(), n=Count(), total=Sum("a"))
        changes = table.changes(retracted=True).filter(lambda row: row["n"] > 0)
        made = changes.map(
            lambda row: [row["k"], row["n"], f"{row['k']}={row['total']}", row["retracted"]],
            f"{COLUMNS}, retracted boolean",
        )
        return Relation(made, live, joins=given.joins)

    def _top(self, given: Relation) -> Relation | None:
        """The first rows of each key, or of all, with their ranks."""
        if not given.unique:
            return None
        n, grouped = self._chance.randint(1, 3), self._chance.random() < 0.5

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            groups: dict[Any, list[Row]] = {}
            for k, a, b in given.live(rows):
                if k is not None and a is not None:
                    groups.setdefault(k if grouped else None, []).append((k, a, b))
            return Counter(
                (k, rank, f"{a},{b}")
                for group in groups.values()
                for rank, (k, a, b) in enumerate(sorted(group, key=lambda r: (-r[1], r[2]))[:n], 1)
            )

        known = given.stream.filter(lambda row: row["k"] is not None)
        table = known.as_table(self._state(), key="b")
        top = table.top(n, "a", per="k" if grouped else (), state=self._state())
        made = top.changes(retracted=True).map(
            lambda row: [row["k"], row["rank"], f"{row['a']},{row['b']}", row["retracted"]],
            f"{COLUMNS}, retracted boolean",
        )
        return Relation(made, live, joins=given.joins)

    def _merged(self, given: Relation) -> Relation:
        """The rows of two relations, or of one twice."""
        other = self._any()
        sides = [given, other]
        if any(side.stream.retracted is not None for side in sides):
            sides = [side.marked() for side in sides]
        one = sides[0].mapped(lambda k, a, b: (k, a, f"x{b}"), unique=True)
        two = sides[1].mapped(lambda k, a, b: (k, a, f"y{b}"), unique=True)
        return Relation(
            self._builder.merge(one.stream, two.stream),
            lambda rows: one.live(rows) + two.live(rows),
            one.unique and two.unique,
            max(one.joins, two.joins),
        )

    def _joined(self, given: Relation) -> Relation | None:
        other = self._any()
        joins = given.joins + other.joins + 1
        if joins > JOINS:
            return None
        how = self._chance.choice(["inner", "left", "right", "full"])
        mark = {} if other.stream.retracted is None else {"gone": other.stream.retracted}
        right = other.stream.select(rk="k", ra="a", rb="b", **mark)
        left: Any = given.stream
        if given.table is not None and self._chance.random() < 0.5:
            left = given.table
        more: Any = {"how": how, "state": self._state()}
        both = left.join(right, on={"k": "rk"}, **more)
        taken_back = both.retracted

        def row_of(k: Any, a: Any, b: Any, ra: Any, rb: Any) -> Row:
            return k, ((a or 0) + (ra or 0)) % 7, f"({b},{rb})"

        made = both.map(
            lambda row: [
                *row_of(*(row[name] for name in ("k", "a", "b", "ra", "rb"))),
                *([] if taken_back is None else [row[taken_back]]),
            ],
            COLUMNS + ("" if taken_back is None else f", {taken_back} boolean"),
        )

        def live(rows: Sequence[Sale]) -> Counter[Row]:
            pairs = joined(given.live(rows), other.live(rows), how, (2, 2))
            return total((row_of(*row), n) for row, n in pairs.items())

        return Relation(made, live, given.unique and other.unique, joins)


def judged_changing_program(seed: int) -> Verdict:
    """Run the program of a seed under the faults of that seed, and judge it after each txid."""
    rows = sales(ROWS, seed)
    program = Program(seed, rows)
    return judged(program.topology(), seed, program.plain, rows, config_of(seed))


def in_order(rows: Iterable[Sale]) -> list[Sale]:
    """Return sales in the order of their ids."""
    return sorted(rows, key=lambda row: str(row["id"]))


def fits(a: int | None, some: int) -> bool:
    """Return whether a number is not divisible."""
    return a is not None and a % some > 0


def total(rows: Iterable[tuple[Row, int]]) -> Counter[Row]:
    """Return how often each row occurs, if some occur several times."""
    found: Counter[Row] = Counter()
    for row, n in rows:
        found[row] += n
    return found
