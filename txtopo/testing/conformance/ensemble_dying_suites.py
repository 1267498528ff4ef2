"""DyingEnsembleSuite: clients of an ensemble that die in the middle of a write, and that raise.

A separate process dies (:mod:`~txtopo.testing.conformance.deaths`). The next client must find all
steps of the write done, or none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import pytest

from txtopo.ensemble.store import CompareAndSet, Delete, Node, Put, Step
from txtopo.testing.conformance.deaths import Deaths, Work, done
from txtopo.testing.conformance.ensemble_fixtures import (
    EnsembleFixtures,
    EnsembleRule,
    OpenClient,
)
from txtopo.testing.conformance.pace import DEATHS_MAX, DEATHS_MIN, is_long
from txtopo.testing.conformance.rules import proves

Tree = tuple[Node | None, Node | None, list[str]]


@dataclass(frozen=True)
class Apply(Work):
    """Connects and writes several nodes at once."""

    open_client: OpenClient
    topology_id: str
    steps: Sequence[Step]

    def prepare(self) -> Callable[[], object]:
        """Connect."""
        return partial(self.open_client(self.topology_id).apply, self.steps)


@dataclass
class SurvivingTree:
    """The nodes of a topology while one client after the other dies.

    Attributes:
        open_client: Connects once more.
        topology_id: The topology.
        number: How many writes there were.
    """

    open_client: OpenClient
    topology_id: str
    number: int = 0

    def steps(self, number: int) -> list[Step]:
        """Return the steps of a write, like those of a coordinator that commits a txid."""
        return [
            CompareAndSet("/epoch", number, number - 1 if number else None),
            Put(f"/batches/{number + 1}", {"of": number}),
            Put("/current", number),
            Delete(f"/batches/{number}"),
        ]

    def tree(self, number: int) -> Tree:
        """Return the nodes after a write."""
        return Node(number, number), Node(number, number), [str(number + 1)]

    def begin(self) -> None:
        """Make the first write."""
        with closing(self.open_client(self.topology_id)) as client:
            client.apply(self.steps(0))

    def work(self) -> Apply:
        """Return the next write."""
        return Apply(self.open_client, self.topology_id, self.steps(self.number + 1))

    def ended(self) -> None:
        """Check that the write of another process exists."""
        found = self._found()
        assert found == self.tree(self.number + 1), "the write of another process is not there"
        self.number += 1

    def landed(self, death: str) -> bool:
        """Check the nodes after a death, and repeat the write if it did not take effect."""
        found = self._found()
        before, after = self.tree(self.number), self.tree(self.number + 1)
        assert found in (before, after), f"{death}, and a part of its write was done"
        self.number += 1
        if found == before:
            with closing(self.open_client(self.topology_id)) as client:
                client.apply(self.steps(self.number))
            assert self._found() == after, f"after the same write; {death}"
        return found == after

    def _found(self) -> Tree:
        with closing(self.open_client(self.topology_id)) as client:
            client.synchronize()
            return client.get("/epoch"), client.get("/current"), client.children("/batches")


class DyingEnsembleSuite(EnsembleFixtures):
    """Clients that die.

    Attributes:
        forks: Whether ``open_client`` connects in a process that has opened nothing.
    """

    forks: ClassVar[bool] = True

    @proves(EnsembleRule.ONE_WRITE)
    def test_a_write_whose_client_dies_is_done_whole_or_not_at_all(
        self, open_client: OpenClient
    ) -> None:
        if not self.forks:
            pytest.skip("no other process connects as this one does: forks = False")
        survivor = SurvivingTree(open_client, uuid.uuid4().hex)
        done(Apply(open_client, survivor.topology_id, [Put("/probe", 1)]))
        with closing(open_client(survivor.topology_id)) as client:
            client.synchronize()
            if client.get("/probe") is None:
                pytest.skip("the ensemble is in the memory of a process, and dies with it")
        survivor.begin()
        deaths = Deaths(survivor.work, survivor.landed, survivor.ended)
        deaths.at_each_step(DEATHS_MAX if is_long() else DEATHS_MIN)

    @proves(EnsembleRule.ONE_WRITE)
    def test_a_write_whose_steps_raise_is_done_whole_or_not_at_all(
        self, open_client: OpenClient
    ) -> None:
        """The same client then makes the next one."""
        survivor = SurvivingTree(open_client, uuid.uuid4().hex)
        survivor.begin()
        with closing(open_client(survivor.topology_id)) as client:
            for accesses in range(_ACCESSES_MAX):
                steps = survivor.steps(survivor.number + 1)
                raising = RaisingSteps(steps, accesses)
                try:
                    client.apply(raising)
                except _Raised:
                    survivor.landed(f"the steps raised at access {accesses}")
                    continue
                assert not raising.raised, "the steps raised, and apply did not"
                survivor.ended()
                return
        raise AssertionError(f"four steps were read more than {_ACCESSES_MAX} times")


_ACCESSES_MAX = 100


class _Raised(Exception):
    """What the steps raise, as the test wanted."""


class RaisingSteps(Sequence[Step]):
    """Steps that raise when they are read too often."""

    def __init__(self, steps: Sequence[Step], accesses: int) -> None:
        self._steps = steps
        self._left = accesses
        self.raised = False

    def __len__(self) -> int:
        """Return how many steps there are."""
        return len(self._steps)

    def __getitem__(self, at: int) -> Step:  # type: ignore[override]
        """Return a step."""
        step = self._steps[at]
        self._left -= 1
        if self._left < 0:
            self.raised = True
            raise _Raised
        return step
