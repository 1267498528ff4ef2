"""StateDriver: uses a state as the runtime does, so that tests read like scripts.

:class:`StoreFixtures` is what all suites of stores have in common: what a subclass declares about
its store, and the fixtures that open states in it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Any, ClassVar, Protocol, TypeVar

import pyarrow as pa
import pytest

from txtopo.attempt import TransactionAttempt, group_of
from txtopo.errors import StoreUnavailable
from txtopo.plugins.stores import (
    Claim,
    Key,
    Merges,
    Owner,
    Puts,
    Row,
    Snapshot,
    StateBackend,
    StateTable,
    Values,
)
from txtopo.state import (
    Aggregate,
    Count,
    Ledger,
    State,
    StateHandle,
    StateKind,
    StateMode,
    StateTransaction,
    open_state,
)
from txtopo.state.backend import columns_of
from txtopo.state.columns import Columns, rows_of
from txtopo.state.commit import claim_state, commit_resolved
from txtopo.state.ledger import RELEASED
from txtopo.state.statements import Statement
from txtopo.testing.conformance.pace import (
    SWITCH,
    Extent,
    StoreSpeed,
    announce,
    extent_of,
    is_long,
    pace_of,
    seconds,
)
from txtopo.testing.conformance.rules import REFUSABLE
from txtopo.tuples import Fields

Result = TypeVar("Result")

_TRIES_MAX = 50


class StateDriver:
    """A state, opened and claimed by one epoch of a coordinator.

    Attributes:
        state: The state.
        epoch: The epoch of the attempts that it commits.
        backend: Its backend.
        ledger: The ledger that the claim returned.
        repeats: Whether a replay has the same batch, as below spouts that repeat theirs.
    """

    repeats = False

    def __init__(
        self,
        state: State,
        epoch: int = 1,
        topology: str = "topology",
        *,
        component: str = "component",
        ensemble: str = "ensemble",
        begins: int = 0,
        changes_table: bool = False,
    ) -> None:
        self.state = state
        self.epoch = epoch
        self.backend: StateBackend = state.open()
        self.backend.create()
        claim = claim_of(topology, epoch, component=component, ensemble=ensemble)
        claim = replace(claim, begins=begins, changes_table=changes_table)
        try:
            self.ledger = claim_state(self.backend, claim, "counts", state.layout())
        except BaseException:
            self.backend.close()
            raise

    def attempt(
        self, txid: int, attempt: int = 0, *, first: int | None = None
    ) -> TransactionAttempt:
        """Return an attempt of this epoch: at one txid, or at the group from *first* to *txid*."""
        members = range(txid if first is None else first, txid + 1)
        return group_of([TransactionAttempt(each, attempt, self.epoch) for each in members])

    def commit(
        self, txid: int, writes: Puts | Merges, attempt: int = 0, *, first: int | None = None
    ) -> Ledger:
        """Commit writes, as the runtime does."""
        return commit_resolved(self.backend, self.attempt(txid, attempt, first=first), writes)

    def puts(
        self, txid: int, rows: Mapping[Any, Any], attempt: int = 0, *, first: int | None = None
    ) -> Ledger:
        """Commit final values, by plain key; None deletes a key."""
        return self.commit(txid, packed(rows), attempt, first=first)

    def merge(
        self,
        txid: int,
        rows: Sequence[tuple[Any, ...]],
        attempt: int = 0,
        *,
        first: int | None = None,
    ) -> Ledger:
        """Commit partial aggregates: rows of key fields and then value fields."""
        return self.commit(txid, partials(self.state, rows), attempt, first=first)

    def run(self, txid: int, body: Callable[[StateTransaction], Any], attempt: int = 0) -> Any:
        """Run the body of a committer in a transaction, commit, and return what it returned."""
        return self.run_group(txid, [body], attempt)[0]

    def run_group(
        self, txid: int, bodies: Sequence[Callable[[StateTransaction], Any]], attempt: int = 0
    ) -> list[Any]:
        """Run a body for each txid of the group that ends with *txid*, and commit them together."""
        first = txid - len(bodies) + 1
        group = self.attempt(txid, attempt, first=first)
        written: dict[Key, Values | None] = {}
        results: list[Any] = []
        statements: list[Statement] = []
        for at, body in enumerate(bodies, first):
            backend, earlier = self.backend, [dict(written)]
            layout, repeats = self.state.layout(), self.repeats
            handle = StateHandle("counts", layout, backend, group, earlier, repeats=repeats)
            with handle.transaction(self.attempt(at, attempt)) as transaction:
                results.append(body(transaction))
            assert handle.writes is not None
            written.update(handle.writes.rows)
            statements += handle.writes.statements
        writes = Puts(written, statements=tuple(statements), repeats=self.repeats)
        self.commit(txid, writes, attempt, first=first)
        return results

    def contents(self) -> dict[Any, Any]:
        """Return the values of the state by key; a single field stands for itself."""
        table = self.state.layout()
        keys = Columns(table.name, "key", table.key)
        values = Columns(table.name, "value", table.value)
        with self.backend.snapshot() as snapshot:
            found = {key: row for key, row in snapshot.items() if not row.deleted}
            with suppress(UnicodeEncodeError):  # Arrow has no such text
                _check_columns(table, snapshot, found)
        return {keys.plain(key): values.named(row.current) for key, row in found.items()}

    def held(self) -> Ledger | None:
        """Return the ledger of the state."""
        with self.backend.snapshot() as snapshot:
            return snapshot.ledger

    def close(self) -> None:
        """Close the backend."""
        self.backend.close()


def claim_of(
    topology: str = "topology",
    epoch: int = 1,
    *,
    component: str = "component",
    state: str = "state",
    ensemble: str = "ensemble",
) -> Claim:
    """Return the claim of a topology's state."""
    return Claim(Owner(topology, component, state), epoch, ensemble)


def release(epoch: int) -> Claim:
    """Return the claim by which an operator releases a state."""
    return Claim(Owner(RELEASED), epoch)


def whole_ledger(
    topology: str,
    epoch: int,
    txid: int = 0,
    writer_epoch: int = 0,
    attempt: int = 0,
    *,
    earlier: tuple[int, ...] = (),
) -> Ledger:
    """Return the whole ledger of a state that :func:`claim_of` or :func:`release` claimed.

    *earlier* has the attempt numbers of the earlier txids in the group of *txid*.
    """
    released = topology == RELEASED
    return Ledger(
        topology,
        epoch,
        txid,
        writer_epoch,
        attempt,
        component="" if released else "component",
        state="" if released else "state",
        ensemble="" if released else "ensemble",
        first_txid=txid - len(earlier),
        attempts=(*earlier, attempt) if txid else (),
    )


def packed(rows: Mapping[Any, Any]) -> Puts:
    """Return final values, by plain key or by tuple, as writes; None deletes a key."""
    return Puts(
        {
            key if isinstance(key, tuple) else (key,): None if value is None else (value,)
            for key, value in rows.items()
        }
    )


def partials(state: State, rows: Sequence[tuple[Any, ...]]) -> Merges:
    """Return partial aggregates, rows of key fields and then value fields, as writes."""
    schema = pa.schema([*state.key.arrow_schema(), *state.value.arrow_schema()])
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(schema)
    arrays = [pa.array(c, t) for c, t in zip(columns, schema.types, strict=True)]
    return Merges(pa.table(arrays, schema=schema))


def patiently(action: Callable[[], Result]) -> Result:
    """Call *action* until the store is not busy, ``_TRIES_MAX`` times at most."""
    for _ in range(_TRIES_MAX):
        try:
            return action()
        except StoreUnavailable as error:
            last = error
    raise last


def putting(rows: Mapping[Any, Any]) -> Callable[[StateTransaction], None]:
    """Return a function that puts values, as a committer does."""

    def body(state: StateTransaction) -> None:
        for key, value in rows.items():
            state.put(key, value)

    return body


def adding(*amounts: tuple[Any, int]) -> Callable[[StateTransaction], list[Any]]:
    """Return a function that adds amounts to keys, and returns the new values."""

    def body(state: StateTransaction) -> list[Any]:
        return [state.update(key, _adder(amount)) for key, amount in amounts]

    return body


def _adder(amount: int) -> Callable[[int | None], int]:
    return lambda old: (old or 0) + amount


COUNTED = (Fields("key string"), Fields("count long"), (Count(),))


class Drive(Protocol):
    """Opens a state for one epoch. The state is closed when the test ends."""

    def __call__(
        self,
        state: State,
        epoch: int = 1,
        topology: str = "topology",
        *,
        component: str = "component",
        ensemble: str = "ensemble",
    ) -> StateDriver:
        """Open, create and claim the state."""
        ...


class StoreFixtures:
    """What the suites of stores have in common; a subclass declares what its store cannot do.

    The subclass or its module provides a fixture ``url``: an empty store for each test.

    Attributes:
        kinds: The kinds of states that the store keeps. Tests of other kinds are skipped.
        mode: The mode of the states in the suites of aggregates: ``"table"`` or ``"log"``.
        fenced: Whether the store refuses a deposed coordinator.
        atomic_reader: Whether a reader never sees half a batch.
        refused: The values that it refuses, by their names in
            :data:`txtopo.testing.conformance.REFUSABLE`. It keeps all others exactly.
        decimal_digits: The most digits of a decimal that it keeps. It refuses states with wider
            decimals, and sums that exceed them.
        histories: How many random histories are tried. Each commits about six times, so 200 take
            9 s on a store with 5 ms a commit. None, the default, is as many as fit into 12 s,
            from 20 to 200.
        keys_max: How many keys the test of many keys writes, four times each: enough to find out
            how a store handles a batch that is too large for one statement. None, the default, is
            as many as fit into 6 s, from 200 to 100,000.
        many: A number of rows that the store writes in bulk, if it writes many rows differently
            from a few; 40 commits have that many. None, the default, is as many as fit into 6 s,
            from 25 to 2,500.
        deaths: How many deaths are spread over the calls of a commit, in addition to about ten for
            each kind of write that search for the step at which the write takes effect. None, the
            default, is as many as fit into a second, from 4 to 12.
        long: Whether the defaults are 200 histories, 100,000 keys, 2,500 rows and 12 deaths,
            however long it takes. The environment variable ``TXTOPO_LONG=1`` does that for all
            suites.
        forks: Whether a fresh process can open the store by its URL. False for a store that needs
            more of the process of the tests, such as its Spark session; then its writers are not
            killed.
    """

    kinds: ClassVar[frozenset[StateKind]] = frozenset({"opaque", "transactional"})
    mode: ClassVar[StateMode] = "table"
    fenced: ClassVar[bool] = True
    atomic_reader: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = frozenset()
    decimal_digits: ClassVar[int] = 38
    _extent: ClassVar[Extent]
    histories: ClassVar[int | None] = None
    keys_max: ClassVar[int | None] = None
    many: ClassVar[int | None] = None
    long: ClassVar[bool] = False
    deaths: ClassVar[int | None] = None
    forks: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """Check the names in ``refused``."""
        super().__init_subclass__()
        unknown = sorted(cls.refused - set(REFUSABLE))
        if unknown:
            raise ValueError(
                f"{cls.__name__}.refused has unknown names; got {', '.join(unknown)}; "
                f"expected some of {', '.join(REFUSABLE)}"
            )

    def keeps(self, kind: str) -> bool:
        """Return whether the store keeps values of a type; it does not if they are too wide."""
        found = re.fullmatch(r"decimal\((\d+),\d+\)", kind)
        return found is None or int(found[1]) <= self.decimal_digits

    def losing(self, backend: StateBackend, *, landed: bool) -> StateBackend | None:
        """Return a backend whose next commit loses its answer; None to let the suite imitate it.

        Override it for a store whose connection can really be lost, for instance by a proxy.

        Args:
            backend: An open backend of the store.
            landed: Whether the write takes effect nevertheless.
        """
        return None

    def test_a_commit_is_timed_and_the_suite_says_how_long_it_takes(self, extent: Extent) -> None:
        """This runs first; the length of the other tests depends on the speed of the store."""
        assert extent.histories > 0

    @pytest.fixture
    def extent(self, request: pytest.FixtureRequest, url: str, drive: Drive) -> Extent:
        """How much the long tests do; on first use, the store is timed and the result printed."""
        cls = type(self)
        if "_extent" not in vars(cls):
            kind: StateKind = "opaque" if "opaque" in self.kinds else "transactional"
            pace = pace_of(lambda: drive(self.counted(url, "pace", kind)))
            cls._extent = self._extent_of(pace)
            announce(request, self._announced(request, pace, cls._extent))
        return cls._extent

    def _extent_of(self, pace: StoreSpeed) -> Extent:
        fitting = extent_of(pace, long=self.long or is_long())
        return Extent(
            fitting.histories if self.histories is None else self.histories,
            fitting.keys if self.keys_max is None else self.keys_max,
            fitting.many if self.many is None else self.many,
            fitting.deaths if self.deaths is None else self.deaths,
        )

    def _announced(self, request: pytest.FixtureRequest, pace: StoreSpeed, extent: Extent) -> str:
        own = [item for item in request.session.items if getattr(item, "cls", None) is type(self)]
        plays = [item for item in own if "random_histories" in item.name]
        dying = [item for item in own if "_dies_" in item.name]
        whole_s = seconds(pace, extent, len(own), len(plays), len(dying))
        line = (
            f"{type(self).__name__}: about {whole_s:.0f} s for "
            f"{len(own)} tests, at {1000 * pace.commit_s:.1f} ms a commit and "
            f"{1000 * pace.key_s:.3f} ms a key; {extent.histories:,} histories, {extent.keys:,} "
            f"keys, {extent.many:,} rows in bulk"
        )
        return line if self.long or is_long() else f"{line}; set {SWITCH}=1 for more"

    @pytest.fixture
    def drive(self) -> Iterator[Drive]:
        """Return a function that opens states; they are closed at the end."""
        with ExitStack() as stack:

            def opened(
                state: State,
                epoch: int = 1,
                topology: str = "topology",
                *,
                component: str = "component",
                ensemble: str = "ensemble",
            ) -> StateDriver:
                driver = StateDriver(state, epoch, topology, component=component, ensemble=ensemble)
                stack.callback(driver.close)
                return driver

            yield opened

    @pytest.fixture
    def unfenced(self) -> None:
        """Skip a test that needs the fence."""
        if not self.fenced:
            pytest.skip("the store does not refuse zombies: fenced = False")

    @pytest.fixture
    def state(self, url: str) -> State:
        """An opaque state of final values."""
        return self.declared(url, "counts")

    @pytest.fixture
    def counts(self, url: str) -> State:
        """An opaque state of a count by key."""
        return self.counted(url, "aggregated")

    @pytest.fixture
    def kept(self, url: str) -> State:
        """A transactional state of final values."""
        return self.declared(url, "kept", kind="transactional")

    @pytest.fixture
    def kept_counts(self, url: str) -> State:
        """A transactional state of a count by key."""
        return self.counted(url, "kept_aggregated", kind="transactional")

    def declared(
        self,
        url: str,
        table: str,
        key: Fields = Fields("key string"),  # noqa: B008 - it cannot be changed
        value: Fields = Fields("value long"),  # noqa: B008
        kind: StateKind = "opaque",
    ) -> State:
        """Return a state of final values."""
        self._require(kind)
        return open_state(url, kind, table, key, value)

    def aggregated(
        self,
        url: str,
        table: str,
        key: Fields,
        value: Fields,
        aggregates: tuple[Aggregate, ...],
        kind: StateKind = "opaque",
    ) -> State:
        """Return a state of aggregates, in the mode of the suite."""
        self._require(kind)
        state = open_state(url, kind, table, mode=self.mode)
        return state.with_columns(key, value, aggregates)

    def counted(self, url: str, table: str, kind: StateKind = "opaque") -> State:
        """Return a state of a count by key."""
        return self.aggregated(url, table, *COUNTED, kind=kind)

    def _require(self, kind: StateKind) -> None:
        if kind not in self.kinds:
            pytest.skip(f"the store keeps no {kind} state: kinds = {sorted(self.kinds)}")


def named(fields: Fields, *values: Any) -> dict[str, Any]:
    """Return values by the names of their fields, as a reader does."""
    return dict(zip(fields.names, values, strict=True))


def stored_rows(driver: StateDriver) -> Mapping[Key, Row]:
    """Return the rows as the store keeps them, with tombstones."""
    with driver.backend.snapshot() as snapshot:
        return dict(snapshot.items())


def _check_columns(table: StateTable, snapshot: Snapshot, rows: Mapping[Key, Row]) -> None:
    """Check that a snapshot returns the same rows as columns."""
    known, width = columns_of(table, rows.items()), len(table.key)
    columns = snapshot.columns(table, known.select(list(table.key.names)))
    assert columns.schema == known.schema
    read = {row[:width]: row[width:] for row in rows_of(columns)}
    # Of columns as well, since a store may have another object for UTC in its times.
    wanted = {row[:width]: row[width:] for row in rows_of(known)}
    # As texts, since NaN does not equal itself.
    assert sorted(map(repr, read.items())) == sorted(map(repr, wanted.items()))
