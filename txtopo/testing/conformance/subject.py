"""What a suite is told about the store that it tries."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import ClassVar, Protocol

import pytest

from txtopo.state import (
    Aggregate,
    Count,
    Fields,
    Key,
    Row,
    State,
    StateBackend,
    StateKind,
    StateMode,
    open_state,
)
from txtopo.testing.conformance.driver import StateDriver
from txtopo.testing.conformance.refusable import REFUSABLE

COUNTED = (Fields("key string"), Fields("count long"), (Count(),))


class Drive(Protocol):
    """Opens a state for one epoch; what it opened is closed when the test ends."""

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


class Subject:
    """The store that a suite tries: a subclass says where it is, and what it cannot.

    A fixture ``url``, of the class or of its module, gives an empty store of the test's own.

    Attributes:
        kinds: The kinds of state that it keeps; tests of another kind are skipped.
        mode: ``"log"`` for the suites of aggregates, if the store keeps states so.
        fenced: Whether it keeps a deposed coordinator out.
        atomic_reader: Whether a reader never sees half a batch.
        refused: Which values it refuses, by their names in
            :data:`txtopo.testing.conformance.REFUSABLE`; all others it keeps exactly.
        histories: How many random histories are tried.
        keys_max: How many keys the test of many keys writes.
        many: How many rows are so many that the store writes them in another way than a few.
    """

    kinds: ClassVar[frozenset[StateKind]] = frozenset({"opaque", "transactional"})
    mode: ClassVar[StateMode] = "table"
    fenced: ClassVar[bool] = True
    atomic_reader: ClassVar[bool] = True
    refused: ClassVar[frozenset[str]] = frozenset()
    histories: ClassVar[int] = 200
    keys_max: ClassVar[int] = 100_000
    many: ClassVar[int] = 2_500

    def __init_subclass__(cls) -> None:
        """Check what the subclass refuses against the names there are."""
        super().__init_subclass__()
        unknown = sorted(cls.refused - set(REFUSABLE))
        if unknown:
            raise ValueError(
                f"{cls.__name__} refuses what has no name; got {', '.join(unknown)}; "
                f"expected some of {', '.join(REFUSABLE)}"
            )

    def losing(self, backend: StateBackend, *, landed: bool) -> StateBackend | None:
        """Return a backend whose next commit loses its answer, or None for a stand-in.

        A store that can lose a connection in earnest, e.g. through a proxy, overrides this.

        Args:
            backend: An open backend of the store.
            landed: Whether the write is there nevertheless.
        """
        return None

    @pytest.fixture
    def drive(self) -> Iterator[Drive]:
        """Open states, and close them in the end."""
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


def stored_rows(driver: StateDriver) -> Mapping[Key, Row]:
    """Return the rows as the store has them, tombstones too."""
    with driver.backend.snapshot() as snapshot:
        return dict(snapshot.items())
