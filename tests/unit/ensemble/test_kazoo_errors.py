"""What each error of kazoo means: none that the installed client knows is left out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from kazoo import exceptions
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.ensemble.zookeeper.election import Election
from txtopo.ensemble.zookeeper.session import (
    MEANINGS,
    OutcomeUnknown,
    ZooKeeperSession,
    meaning_of,
)
from txtopo.errors import AuthError, CoordinatorUnavailable, ErrorMeaning, PromiseError

KINDS = {
    kind.__name__: kind
    for kind in (*vars(exceptions).values(), KazooTimeoutError)
    if isinstance(kind, type) and issubclass(kind, Exception)
}
"""Other names of the same classes, of earlier versions, are left out."""


def test_the_table_has_each_error_of_the_client_and_no_other() -> None:
    assert set(KINDS) == set(MEANINGS)
    assert {kind.__name__ for kind in exceptions.EXCEPTIONS.values()} <= set(MEANINGS)


@pytest.fixture(scope="module")
def session() -> ZooKeeperSession:
    """One that never connects."""
    session = ZooKeeperSession("127.0.0.1:1", ZooKeeperAccess(), session_timeout_s=1.0)
    session.close()
    return session


@pytest.mark.parametrize("name", sorted(KINDS))
def test_an_error_becomes_what_the_table_says(session: ZooKeeperSession, name: str) -> None:
    error = KINDS[name]()
    expected = {
        ErrorMeaning.ANSWER: KINDS[name],
        ErrorMeaning.PASSES: OutcomeUnknown,
        ErrorMeaning.EXPIRED: CoordinatorUnavailable,
        ErrorMeaning.REFUSED: AuthError,
        ErrorMeaning.LASTS: PromiseError,
    }

    assert type(session.named("/path", error)) is expected[MEANINGS[name]]


@pytest.mark.parametrize(
    ("name", "meaning"),
    [
        ("OperationTimeoutError", ErrorMeaning.PASSES),
        ("ThrottledOpError", ErrorMeaning.PASSES),
        ("NotReadOnlyCallError", ErrorMeaning.PASSES),
        ("NoAuthError", ErrorMeaning.REFUSED),
        ("QuotaExceededError", ErrorMeaning.LASTS),
    ],
)
def test_what_is_known_to_pass_or_to_last_is_sorted_so(name: str, meaning: ErrorMeaning) -> None:
    assert meaning_of(KINDS[name]()) is meaning


def test_a_class_of_next_year_is_taken_for_a_lost_answer() -> None:
    new = type("NewError", (exceptions.ZookeeperError,), {})

    assert meaning_of(new()) is ErrorMeaning.PASSES


class Lossy(ZooKeeperSession):
    """One that loses each answer."""

    def read(self, path: str, question: Callable[[Any], Any]) -> Any:
        raise OutcomeUnknown("the connection was lost")


def test_an_election_whose_answers_are_lost_does_not_say_that_another_leads() -> None:
    """The run would stand by for ever, without a word."""
    lossy = Lossy("127.0.0.1:1", ZooKeeperAccess(), session_timeout_s=1.0)

    with pytest.raises(OutcomeUnknown):
        Election(lossy, "/queue").lead({}, timeout_s=0.1, on_lost=lambda: None)
    lossy.close()


def test_a_lost_connection_is_told_once_each_time(caplog: pytest.LogCaptureFixture) -> None:
    session = ZooKeeperSession("127.0.0.1:1", ZooKeeperAccess(), session_timeout_s=1.0)
    for state in (KazooState.SUSPENDED, KazooState.SUSPENDED, KazooState.CONNECTED):
        session._changed(state)
    session._changed(KazooState.SUSPENDED)
    session.close()

    said = [vars(each) for each in caplog.records if each.name == "txtopo.runtime"]
    assert [each["failures"] for each in said] == [1, 2, 1]
    assert "the connection to zookeeper at 127.0.0.1:1 failed" in said[0]["message"]
