"""One session with ZooKeeper: it waits for a connection, asks, and names what went wrong.

kazoo connects again by itself, and makes a new session when the old one has expired. While the
connection is down (SUSPENDED) nothing may be assumed: the session may live or not, and a question
waits. Only LOST ends a leadership. kazoo queues requests without limit while it connects, so
nothing is sent before it is connected and no answer is waited for without limit.

Login: which failure of a SASL login is the server's word, and which is only a lost connection.

A login takes several messages on a connection that is open already. kazoo 2.11 takes whatever goes
wrong in between for a refusal, and gives up for good: also a server that is stopped, or loses its
quorum, at that moment. ZooKeeper 3.9 says so when it refuses; old servers hang up instead. So:

* What the server says is final, also after a login that went well: somebody changed the password.
* A connection that is lost is tried again. Before the first login went well, only
  :data:`LOSSES_MAX` times in a row: then it is the word of an older server.
* What the client's own library cannot do (a Kerberos ticket that nobody issues) is final before
  the first login went well, and tried again afterwards.

A login that is tried again keeps its session, and a leader its leadership while the session lives.

What each error of kazoo means to a question: an answer, a lost one, or one that lasts.

A test compares the table with the errors that the installed kazoo has. What is not in it, of a
later version, is taken for a lost answer: the question may have been done or not, and whoever asked
looks, and asks again.
"""

from __future__ import annotations

import contextlib
import logging
import math
import uuid
from collections.abc import Callable
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    KazooException,
    NodeExistsError,
    SASLException,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from txtopo.errors import AuthError, ConfigError, CoordinatorUnavailable, ErrorMeaning, PromiseError
from txtopo.retries import warn_of_retry
from txtopo.transactional_state.nodes import INNER_NODE
from txtopo.transactional_state.zookeeper.access import ZooKeeperAccess
from txtopo.transactional_state.zookeeper.diagnosis import why_unreachable
from txtopo.transactional_state.zookeeper.granted import warn_of_another_timeout

SLICE_S = 0.1
"""How long one wait lasts before it is looked whether there is something to do."""

READS_MAX = 3
"""How often a read is asked again that was lost with its connection."""

# Quick to be back when a standby takes over an embedded server, and no burden on an ensemble.
_CONNECTION_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

# kazoo logs each refused connection as a warning and, at DEBUG, credentials.
_kazoo_log = logging.getLogger("txtopo.transactional_state.kazoo")

_kazoo_log.setLevel(logging.ERROR)


class OutcomeUnknown(CoordinatorUnavailable):
    """The connection was lost between a question and its answer."""


class ZooKeeperSession:
    """A kazoo client with limits.

    Attributes:
        id: Distinct for each object, for names and for the ids of writes.
        generation: Grows when ZooKeeper's session is lost; ephemeral nodes are gone then.
    """

    def __init__(
        self,
        hosts: str,
        access: ZooKeeperAccess,
        *,
        session_timeout_s: float,
        locate: Callable[[], str] | None = None,
    ) -> None:
        self.id = uuid.uuid4().hex[:12]
        self.generation = 0
        self._hosts = hosts
        self._access = access
        self._session_timeout_s = session_timeout_s
        self._locate = locate
        self._on_loss: dict[int, Callable[[], None]] = {}
        self._refused = False
        self._suspended = 0
        self._closed = False
        try:
            self._client = KazooClient(
                hosts,
                timeout=session_timeout_s,
                connection_retry=_CONNECTION_RETRY,
                logger=_kazoo_log,
                **access.client_arguments(),
            )
        except ValueError as error:
            raise ConfigError(
                f"zookeeper hosts cannot be read; got {hosts!r}; expected 'host:port,host:port'"
            ) from error
        warn_of_another_timeout(self._client, session_timeout_s)
        judge_logins(self._client)
        self._client.add_listener(self._changed)
        self._live = self._client.start_async()

    def wait_connected(self, timeout_s: float | None = None) -> None:
        """Return once there is a connection.

        Raises:
            CoordinatorUnavailable: There was none for so long; by default, for a session's time.
            AuthError: The credentials were refused; no later try can help.
        """
        limit_s = self._session_timeout_s if timeout_s is None else timeout_s
        patience = Patience(limit_s)
        while not self._client.connected:
            self._check_alive()
            self.locate()
            if not patience.wait(self._live):
                raise self._unreachable(limit_s, first=timeout_s is not None)

    def locate(self) -> None:
        """Find out where the server is now, if there is no connection."""
        if self._locate is not None and not self._client.connected and not self._closed:
            self._hosts = self._locate()
            self._client.set_hosts(self._hosts)

    def ask(self, path: str, question: Callable[[KazooClient], Any]) -> Any:
        """Ask once and return the answer.

        Args:
            path: What it is about, for errors.
            question: Gets the client and returns kazoo's asynchronous result.

        Raises:
            OutcomeUnknown: It may have been done or not.
            CoordinatorUnavailable: No connection, or the session expired.
            AuthError: The credentials do not allow it.
            PromiseError: The server refuses it, now or later.
            KazooException: What it says of a node: that it is missing, or has another version.
        """
        self.wait_connected()
        try:
            return question(self._client).get(timeout=2 * self._session_timeout_s)
        except (KazooException, KazooTimeoutError) as error:
            named = self.named(path, error)
            if named is error:
                raise
            raise named from error

    def read(self, path: str, question: Callable[[KazooClient], Any]) -> Any:
        """Ask something that changes nothing; again if the answer was lost."""
        for _ in range(READS_MAX - 1):
            try:
                return self.ask(path, question)
            except OutcomeUnknown:
                continue
        return self.ask(path, question)

    def ensure(self, path: str) -> None:
        """Create a node and those above it where they are missing, without values."""
        if self.read(path, lambda client: client.exists_async(path)) is not None:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self.ensure(parent)
        # It exists when somebody else was faster, or the answer to our own request was lost.
        with contextlib.suppress(NodeExistsError):
            self.read(path, lambda client: client.create_async(path, INNER_NODE))

    def watch_loss(self, key: object, lost: Callable[[], None] | None) -> None:
        """Call *lost* from kazoo's thread when the session is lost; None takes it back."""
        if lost is None:
            self._on_loss.pop(id(key), None)
        else:
            self._on_loss[id(key)] = lost

    def event(self) -> Any:
        """Return an event that a watch can set."""
        return self._client.handler.event_object()

    def refused(self, path: str) -> AuthError:
        """Return the error for credentials that are not good enough."""
        return AuthError(
            f"zookeeper refuses access to {path}; scheme {self._access.scheme!r} at {self._hosts}; "
            "check zookeeper_digest or zookeeper_sasl, and the ACL of the node",
            path=path,
            scheme=self._access.scheme,
        )

    def close(self) -> None:
        """End the session; harmless twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, OSError):
            _kazoo_log.debug("the session could not be ended in order", exc_info=True)

    def _unreachable(self, limit_s: float, *, first: bool) -> CoordinatorUnavailable:
        found = ""
        if first:
            found = why_unreachable(self._client.hosts, self._access.tls_context()) + "; "
        return CoordinatorUnavailable(
            f"zookeeper cannot be reached; tried {self._hosts} for {limit_s:g} s; {found}"
            "check that it runs and that hosts, ports and TLS are right",
            hosts=self._hosts,
        )

    def named(self, path: str, error: Exception) -> Exception:
        """Return what an error of kazoo amounts to; see :mod:`.errors`."""
        match meaning_of(error):
            case ErrorMeaning.ANSWER:
                return error
            case ErrorMeaning.REFUSED:
                return self.refused(path)
            case ErrorMeaning.EXPIRED:
                return CoordinatorUnavailable(
                    f"the session with zookeeper at {self._hosts} expired; whoever led must "
                    "contend again",
                    hosts=self._hosts,
                )
            case ErrorMeaning.LASTS:
                return PromiseError(
                    f"zookeeper at {self._hosts} refuses what was asked about {path}; got "
                    f"{type(error).__name__}: {error}; expected a server of 3.5 or later with room "
                    "below the node's quota",
                    path=path,
                )
            case _:
                return OutcomeUnknown(
                    f"zookeeper at {self._hosts} did not answer about {path}; the connection was "
                    f"lost, or the server is too busy: {type(error).__name__}",
                    hosts=self._hosts,
                )

    def _check_alive(self) -> None:
        if self._refused:
            raise self.refused("/")
        if self._closed:
            raise CoordinatorUnavailable(
                f"the session with zookeeper at {self._hosts} is closed", hosts=self._hosts
            )

    def _changed(self, state: str) -> None:
        if state == KazooState.SUSPENDED and not self._closed:
            self._suspended += 1
            warn_of_retry(
                f"the connection to zookeeper at {self._hosts}",
                CoordinatorUnavailable("it was lost; the session may live"),
                topology=None,
                failures=self._suspended,
                pause_s=_CONNECTION_RETRY["delay"],
            )
        elif state == KazooState.CONNECTED:
            self._suspended = 0
        if state != KazooState.LOST or self._closed:
            return
        # kazoo gives up for good only when it could not authenticate; CLOSED is how it ends then.
        if self._client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
            self._refused = True
        self.generation += 1
        for lost in list(self._on_loss.values()):
            lost()


class Patience:
    """A limit on waiting, counted in slices, so that it needs no clock."""

    def __init__(self, timeout_s: float) -> None:
        self._slices = math.ceil(timeout_s / SLICE_S)

    def wait(self, event: Any) -> bool:
        """Wait a slice or until the event; False when the limit is used up."""
        if self._slices <= 0:
            return False
        self._slices -= 1
        event.wait(SLICE_S)
        return True

    def wait_for(self, event: Any) -> bool:
        """Wait until the event; False when the limit is used up."""
        while not event.is_set():
            if not self.wait(event):
                return False
        return True


LOSSES_MAX = 3
"""So often in a row no server happens to stop just then. kazoo pauses after it was at all hosts:
an ensemble of three that stops as a whole at that very moment is taken for one that refuses."""


def judge_logins(client: KazooClient) -> None:
    """Let *client* try a login again, or give up, by the rules of this file."""
    connection = client._connection
    connection._authenticate_with_sasl = _Logins(connection._authenticate_with_sasl).log_in


class _Logins:
    def __init__(self, authenticate: Callable[[str, float], None]) -> None:
        self._authenticate = authenticate
        self._went_well = False
        self._lost = 0

    def log_in(self, host: str, timeout_s: float) -> None:
        """Do what kazoo does; fail by what makes it try again, or by what makes it give up."""
        try:
            self._authenticate(host, timeout_s)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError("the server requires a login by sasl") from error
        except (AuthFailedError, SASLException, ConnectionDropped) as error:
            if not self._may_try_again(error):
                raise AuthFailedError(str(error)) from error
            raise ConnectionDropped(f"the login was not finished: {error}") from error
        self._went_well, self._lost = True, 0

    def _may_try_again(self, error: Exception) -> bool:
        # kazoo raises what the server said as it is, and all else from what went wrong.
        if isinstance(error, AuthFailedError) and error.__cause__ is None:
            return False
        if self._went_well:
            return True
        self._lost += 1
        dropped = ConnectionDropped in (type(error), type(error.__cause__))
        return dropped and self._lost < LOSSES_MAX


MEANINGS = {
    "BadVersionError": ErrorMeaning.ANSWER,
    "NoChildrenForEphemeralsError": ErrorMeaning.ANSWER,
    "NoNodeError": ErrorMeaning.ANSWER,
    "NoWatcherError": ErrorMeaning.ANSWER,
    "NodeExistsError": ErrorMeaning.ANSWER,
    "NotEmptyError": ErrorMeaning.ANSWER,
    "RolledBackError": ErrorMeaning.ANSWER,
    "RuntimeInconsistency": ErrorMeaning.ANSWER,
    "CancelledError": ErrorMeaning.PASSES,
    "ConnectionClosedError": ErrorMeaning.PASSES,
    "ConnectionDropped": ErrorMeaning.PASSES,
    "ConnectionLoss": ErrorMeaning.PASSES,
    "DataInconsistency": ErrorMeaning.PASSES,
    "KazooException": ErrorMeaning.PASSES,
    "KazooTimeoutError": ErrorMeaning.PASSES,
    "LockTimeout": ErrorMeaning.PASSES,
    "NewConfigNoQuorumError": ErrorMeaning.PASSES,
    "NotReadOnlyCallError": ErrorMeaning.PASSES,  # the server has lost its quorum, and only reads
    "OperationTimeoutError": ErrorMeaning.PASSES,
    "ReconfigInProcessError": ErrorMeaning.PASSES,
    "RequestTimeoutError": ErrorMeaning.PASSES,
    "SessionMovedError": ErrorMeaning.PASSES,
    "SystemZookeeperError": ErrorMeaning.PASSES,
    "ThrottledOpError": ErrorMeaning.PASSES,
    "WriterNotClosedException": ErrorMeaning.PASSES,
    "ZookeeperError": ErrorMeaning.PASSES,
    "ZookeeperStoppedError": ErrorMeaning.PASSES,
    "SessionExpiredError": ErrorMeaning.EXPIRED,
    "UnknownSessionError": ErrorMeaning.EXPIRED,
    "AuthFailedError": ErrorMeaning.REFUSED,
    "InvalidACLError": ErrorMeaning.REFUSED,
    "NoAuthError": ErrorMeaning.REFUSED,
    "SASLException": ErrorMeaning.REFUSED,
    "SessionClosedRequireSaslError": ErrorMeaning.REFUSED,
    "APIError": ErrorMeaning.LASTS,
    "BadArgumentsError": ErrorMeaning.LASTS,
    "ConfigurationError": ErrorMeaning.LASTS,
    "EphemeralOnLocalSessionError": ErrorMeaning.LASTS,
    "InvalidCallbackError": ErrorMeaning.LASTS,
    "MarshallingError": ErrorMeaning.LASTS,
    "QuotaExceededError": ErrorMeaning.LASTS,
    "ReconfigDisabledError": ErrorMeaning.LASTS,
    "UnimplementedError": ErrorMeaning.LASTS,
}
"""The meaning of each error, by its class."""


def meaning_of(error: BaseException) -> ErrorMeaning:
    """Return what an error means; of a class that is not known, what its base class means."""
    for kind in type(error).__mro__:
        if kind.__name__ in MEANINGS:
            return MEANINGS[kind.__name__]
    return ErrorMeaning.PASSES
