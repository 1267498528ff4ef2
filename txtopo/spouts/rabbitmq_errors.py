"""What each error of RabbitMQ and of its client pika means: whether it may pass.

What is in no table, of a later version, is taken for what passes. A test compares the tables with
what the installed client has.
"""

from __future__ import annotations

import ssl
from enum import Enum


class Meaning(Enum):
    """What an error leads to."""

    PASSES = "passes"
    """The connection or the server is away: tried again, for as long as it takes."""
    REFUSED = "refused"
    """User, password, vhost or rights are not good enough; tried a few times."""
    GONE = "gone"
    """There is no such queue; tried a few times, since somebody may be making it anew."""
    LASTS = "lasts"
    """The server does not understand what is asked; tried a few times."""


CODES = {
    311: Meaning.LASTS,  # content too large
    312: Meaning.PASSES,  # no route
    313: Meaning.PASSES,  # no consumers
    320: Meaning.PASSES,  # connection forced: the server stops, or an operator closed it
    402: Meaning.REFUSED,  # invalid path: no such vhost
    403: Meaning.REFUSED,  # access refused
    404: Meaning.GONE,  # not found
    405: Meaning.PASSES,  # resource locked: another connection has the queue for itself
    406: Meaning.PASSES,  # precondition failed: a message was not acked in time
    501: Meaning.PASSES,  # frame error
    502: Meaning.LASTS,  # syntax error
    503: Meaning.LASTS,  # command invalid
    504: Meaning.PASSES,  # channel error
    505: Meaning.PASSES,  # unexpected frame
    506: Meaning.PASSES,  # resource error
    530: Meaning.REFUSED,  # not allowed: no such vhost, or none for this user
    540: Meaning.LASTS,  # not implemented
    541: Meaning.PASSES,  # internal error
}
"""What the server says when it closes a channel or a connection."""

# With these words a refusal passes: the node of a queue or of a vhost is away, or too many are
# connected.
_PASSING_TEXTS = ("is down", "inaccessible", "stopped by supervisor", "limit")

CLASSES = {
    "AuthenticationError": Meaning.REFUSED,
    "BodyTooLongError": Meaning.LASTS,
    "DuplicateConsumerTag": Meaning.LASTS,
    "DuplicateGetOkCallback": Meaning.LASTS,
    "IncompatibleProtocolError": Meaning.LASTS,
    "InvalidChannelNumber": Meaning.LASTS,
    "InvalidFieldTypeException": Meaning.LASTS,
    "MethodNotImplemented": Meaning.LASTS,
    "ProtocolVersionMismatch": Meaning.LASTS,
    "ReentrancyError": Meaning.LASTS,
    "ShortStringTooLong": Meaning.LASTS,
    "UnsupportedAMQPFieldException": Meaning.LASTS,
    # Where the server did not say it, pika guesses so of lost connections too.
    "ProbableAccessDeniedError": Meaning.PASSES,
    "ProbableAuthenticationError": Meaning.PASSES,
} | dict.fromkeys(
    (
        *("AMQPChannelError", "AMQPConnectionError", "AMQPError", "AMQPHeartbeatTimeout"),
        *("ChannelClosed", "ChannelClosedByBroker", "ChannelClosedByClient", "ChannelError"),
        *("ChannelWrongStateError", "ConnectionBlockedTimeout", "ConnectionClosed"),
        *("ConnectionClosedByBroker", "ConnectionClosedByClient", "ConnectionOpenAborted"),
        *("ConnectionWrongStateError", "ConsumerCancelled", "InvalidFrameError", "NackError"),
        *("NoFreeChannels", "ProtocolSyntaxError", "StreamLostError", "UnexpectedFrameError"),
        "UnroutableError",
    ),
    Meaning.PASSES,
)
"""What each exception of pika means that has no code of the server's."""


def meaning_of(error: Exception) -> Meaning:
    """Return what an exception of pika, or of the network, means."""
    from pika import exceptions

    if isinstance(error, ssl.SSLCertVerificationError):
        return Meaning.REFUSED
    if isinstance(error, exceptions.ChannelClosed | exceptions.ConnectionClosed):
        meaning = CODES.get(error.reply_code, Meaning.PASSES)
        passing = any(part in error.reply_text for part in _PASSING_TEXTS)
        return Meaning.PASSES if passing else meaning
    probable = exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError
    # A server that refuses says so before it hangs up.
    if isinstance(error, probable) and "ClosedByBroker" in str(error):
        return Meaning.REFUSED
    return CLASSES.get(type(error).__name__, Meaning.PASSES)
