"""A commit whose answer was lost is decided by the ledger."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from txtopo import Fields
from txtopo.attempt import TransactionAttempt
from txtopo.errors import FencedError, StoreUnavailable, UnknownOutcomeError
from txtopo.plugins.stores import Contents, Key, Puts, Row, RowBackend, StateTable
from txtopo.state import Ledger
from txtopo.state.commit import commit_resolved
from txtopo.testing.conformance.driver import whole_ledger

TABLE = StateTable("counts", "opaque", Fields("key string"), Fields("value long"))
FIRST = TransactionAttempt(1, 0, 1)
WRITES = Puts({("a",): (1,)})


class LosesAnswers(RowBackend):
    """A store whose answer to the next write is lost, after or before the write landed."""

    def __init__(self, *, landed: bool, readable: bool = True) -> None:
        super().__init__(TABLE)
        self.contents = Contents(whole_ledger("topology", 1))
        self.landed = landed
        self.readable = readable
        self.answers = True
        self.usurper: Ledger | None = None

    def load(self) -> Contents:
        if not self.answers and not self.readable:
            raise StoreUnavailable("down")
        return self.contents

    def replace(
        self, expected: Ledger | None, ledger: Ledger, changes: Mapping[Key, Row | None]
    ) -> bool:
        if self.landed:
            rows = {key: row for key, row in changes.items() if row is not None}
            self.contents = Contents(ledger, rows)
        if self.usurper is not None:
            self.contents = Contents(self.usurper, self.contents.rows)
        self.answers = False
        raise UnknownOutcomeError("the connection was lost")


@pytest.mark.row(36)
def test_a_write_that_landed_is_a_success() -> None:
    backend = LosesAnswers(landed=True)

    assert commit_resolved(backend, FIRST, WRITES) == whole_ledger("topology", 1, 1, 1, 0)


@pytest.mark.row(37)
def test_a_write_that_was_lost_is_to_be_tried_again() -> None:
    with pytest.raises(StoreUnavailable, match="try again"):
        commit_resolved(LosesAnswers(landed=False), FIRST, WRITES)


def test_a_successor_that_came_in_between_is_obeyed() -> None:
    backend = LosesAnswers(landed=True)
    backend.usurper = whole_ledger("topology", 2, 1, 2, 0)

    with pytest.raises(FencedError):
        commit_resolved(backend, FIRST, WRITES)


def test_a_ledger_that_cannot_be_read_leaves_it_open() -> None:
    backend = LosesAnswers(landed=True, readable=False)

    with pytest.raises(UnknownOutcomeError, match="cannot be read"):
        commit_resolved(backend, FIRST, WRITES)
