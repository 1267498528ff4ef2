"""EnsembleRule and EnsembleFixtures: what an ensemble promises, and what its suites share."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from enum import Enum
from typing import ClassVar

import pytest

from txtopo.ensemble.store import Node, Put, TransactionalState
from txtopo.testing.conformance.pace import announce

# What the suite writes, and how long it waits for candidates that may not lead.
_WRITES, _WAITS_S = 80, 2.0


class EnsembleRule(Enum):
    """A promise of an ensemble; see :mod:`txtopo.ensemble.store`."""

    VERSIONS = "each write of a node adds one to its version, and a new node has version 0"
    EXACT = "a value is JSON and is returned unchanged, or the write is refused whole"
    COMPARE = "CompareAndSet and Check see the version that the node has when the write is done"
    ONE_WRITE = "all steps of one apply are done, or none"
    AGAIN = "steps that were done may be done again: Put overwrites, Delete ignores a missing node"
    READS = "a client reads its own writes, and after synchronize those of all others"
    DURABLE = "what apply wrote is there for the next client, however the writer ended"
    FENCE = "a coordinator whose epoch was taken over writes nothing"
    APART = "topologies of one ensemble do not see each other"
    LEADER = "one candidate leads, and the others follow in the order of their arrival"
    SESSION = "a session that ends gives up its place, and its leader is notified once"
    TIMED = "the time of a node, if the ensemble records it, is the time of its last write"
    ANNOUNCED = "what the leader announces is seen while it leads, if the ensemble supports that"

    @property
    def broken(self) -> str:
        """The note on a test that found the rule broken."""
        return f"the ensemble violated a rule: {self.value}; see txtopo/ensemble/store.py"


OpenClient = Callable[[str], TransactionalState]
"""A function: topology id -> one more client of the ensemble."""

Connect = Callable[[], TransactionalState]
"""A function that opens one more client of the topology of a test."""


class EnsembleFixtures:
    """What the suites of ensembles have in common; a subclass opens clients.

    The subclass or its module has a fixture ``open_client``: a function of a topology id that
    connects once more to one ensemble. Each test uses an id of its own, so all tests may share the
    ensemble.

    Attributes:
        wait_s: How many seconds a test waits for what has to come, for instance that a successor
            leads when a session has ended; it continues as soon as that has come. More than the
            session timeout. Default 60.
        increments: How many increments each of four clients makes at once on one node; each is
            one write, and more of them if clients collide. Default 25.
    """

    wait_s: ClassVar[float] = 60.0
    increments: ClassVar[int] = 25

    def expire(self, client: TransactionalState) -> None:
        """End the session of a client as if its process had gone; override this if you can.

        By default the tests that need it are skipped.
        """
        pytest.skip("expire: this suite cannot end a session of the ensemble by force")

    def test_a_write_is_timed_and_the_suite_says_how_long_it_takes(
        self, request: pytest.FixtureRequest, state: TransactionalState
    ) -> None:
        """This runs first, so that the suite says early how long it takes."""
        begun = time.perf_counter()
        for value in range(5):
            state.apply([Put("/pace", value)])
        write_s = (time.perf_counter() - begun) / 5
        whole_s = _WAITS_S + (_WRITES + 8 * self.increments) * write_s
        name = type(self).__name__
        announce(request, f"{name}: about {whole_s:.0f} s, at {1000 * write_s:.1f} ms a write")
        assert state.get("/pace") == Node(4, 4)

    @pytest.fixture
    def connect(self, open_client: OpenClient) -> Iterator[Connect]:
        """Open one more client of a topology that no other test uses."""
        opened: list[TransactionalState] = []
        topology_id = uuid.uuid4().hex

        def connected() -> TransactionalState:
            opened.append(open_client(topology_id))
            return opened[-1]

        yield connected
        for state in opened:
            state.close()

    @pytest.fixture
    def state(self, connect: Connect) -> TransactionalState:
        """One client."""
        return connect()
