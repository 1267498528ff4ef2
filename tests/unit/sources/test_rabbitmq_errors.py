"""What each error of RabbitMQ means: none that the installed client knows is left out."""

from __future__ import annotations

import ssl

import pytest

from txtopo.errors import ErrorMeaning
from txtopo.sources.rabbitmq import CLASSES, CODES, meaning_of

exceptions = pytest.importorskip("pika.exceptions")
spec = pytest.importorskip("pika.spec")
KINDS = {
    name
    for name, kind in vars(exceptions).items()
    if isinstance(kind, type) and issubclass(kind, Exception)
}
NUMBERS = {code for code in vars(spec).values() if isinstance(code, int) and 300 <= code < 600}


def test_the_tables_have_what_the_client_knows_and_nothing_else() -> None:
    assert set(CLASSES) == KINDS
    assert set(CODES) == NUMBERS


@pytest.mark.parametrize("code", sorted(NUMBERS))
def test_what_the_server_says_is_sorted_by_its_code(code: int) -> None:
    for kind in (exceptions.ChannelClosedByBroker, exceptions.ConnectionClosedByBroker):
        assert meaning_of(kind(code, "no")) is CODES[code]


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (exceptions.ChannelClosedByBroker(403, "ACCESS_REFUSED"), ErrorMeaning.REFUSED),
        (exceptions.ChannelClosedByBroker(404, "NOT_FOUND - no queue 'q'"), ErrorMeaning.GONE),
        (
            exceptions.ChannelClosedByBroker(404, "home node 'b' of queue is down or inaccessible"),
            ErrorMeaning.PASSES,
        ),
        (exceptions.ConnectionClosedByBroker(530, "vhost 'a' not found"), ErrorMeaning.REFUSED),
        (exceptions.ConnectionClosedByBroker(530, "vhost 'a' is down"), ErrorMeaning.PASSES),
        (exceptions.ConnectionClosedByBroker(530, "connection limit (1)"), ErrorMeaning.PASSES),
        (exceptions.ConnectionClosedByBroker(320, "shutdown"), ErrorMeaning.PASSES),
        (exceptions.ProbableAuthenticationError("lost"), ErrorMeaning.PASSES),
        (
            exceptions.ProbableAuthenticationError("ConnectionClosedByBroker: 403"),
            ErrorMeaning.REFUSED,
        ),
        (exceptions.AuthenticationError("PLAIN"), ErrorMeaning.REFUSED),
        (exceptions.IncompatibleProtocolError(), ErrorMeaning.LASTS),
        (exceptions.StreamLostError("reset"), ErrorMeaning.PASSES),
        (ConnectionRefusedError(111, "no"), ErrorMeaning.PASSES),
        (ssl.SSLCertVerificationError(1, "self-signed"), ErrorMeaning.REFUSED),
    ],
)
def test_what_is_known_to_pass_or_to_last_is_sorted_so(
    error: Exception, meaning: ErrorMeaning
) -> None:
    assert meaning_of(error) is meaning
