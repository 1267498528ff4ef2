"""What each error of kazoo means to a question: an answer, a lost one, or one that lasts.

A test compares the table with the errors that the installed kazoo has. What is not in it, of a
later version, is taken for a lost answer: the question may have been done or not, and whoever asked
looks, and asks again.
"""

from __future__ import annotations

from enum import Enum


class Meaning(Enum):
    """What an error leads to."""

    ANSWER = "answer"
    """What the server says of a node; whoever asked knows what to do."""
    LOST = "lost"
    """No answer, so it may have been done or not: tried again."""
    EXPIRED = "expired"
    """The session is over: whoever led contends again."""
    REFUSED = "refused"
    """The credentials are not good enough. An ACL may be changed while a run goes on, but to go on
    trying would look like a run that works; a start is all it takes afterwards."""
    LASTS = "lasts"
    """The server will refuse it each time."""


MEANINGS = {
    "BadVersionError": Meaning.ANSWER,
    "NoChildrenForEphemeralsError": Meaning.ANSWER,
    "NoNodeError": Meaning.ANSWER,
    "NoWatcherError": Meaning.ANSWER,
    "NodeExistsError": Meaning.ANSWER,
    "NotEmptyError": Meaning.ANSWER,
    "RolledBackError": Meaning.ANSWER,
    "RuntimeInconsistency": Meaning.ANSWER,
    "CancelledError": Meaning.LOST,
    "ConnectionClosedError": Meaning.LOST,
    "ConnectionDropped": Meaning.LOST,
    "ConnectionLoss": Meaning.LOST,
    "DataInconsistency": Meaning.LOST,
    "KazooException": Meaning.LOST,
    "KazooTimeoutError": Meaning.LOST,
    "LockTimeout": Meaning.LOST,
    "NewConfigNoQuorumError": Meaning.LOST,
    "NotReadOnlyCallError": Meaning.LOST,  # the server has lost its quorum, and only reads
    "OperationTimeoutError": Meaning.LOST,
    "ReconfigInProcessError": Meaning.LOST,
    "RequestTimeoutError": Meaning.LOST,
    "SessionMovedError": Meaning.LOST,
    "SystemZookeeperError": Meaning.LOST,
    "ThrottledOpError": Meaning.LOST,
    "WriterNotClosedException": Meaning.LOST,
    "ZookeeperError": Meaning.LOST,
    "ZookeeperStoppedError": Meaning.LOST,
    "SessionExpiredError": Meaning.EXPIRED,
    "UnknownSessionError": Meaning.EXPIRED,
    "AuthFailedError": Meaning.REFUSED,
    "InvalidACLError": Meaning.REFUSED,
    "NoAuthError": Meaning.REFUSED,
    "SASLException": Meaning.REFUSED,
    "SessionClosedRequireSaslError": Meaning.REFUSED,
    "APIError": Meaning.LASTS,
    "BadArgumentsError": Meaning.LASTS,
    "ConfigurationError": Meaning.LASTS,
    "EphemeralOnLocalSessionError": Meaning.LASTS,
    "InvalidCallbackError": Meaning.LASTS,
    "MarshallingError": Meaning.LASTS,
    "QuotaExceededError": Meaning.LASTS,
    "ReconfigDisabledError": Meaning.LASTS,
    "UnimplementedError": Meaning.LASTS,
}
"""The meaning of each error, by its class."""


def meaning_of(error: BaseException) -> Meaning:
    """Return what an error means; of a class that is not known, what its base class means."""
    for kind in type(error).__mro__:
        if kind.__name__ in MEANINGS:
            return MEANINGS[kind.__name__]
    return Meaning.LOST
