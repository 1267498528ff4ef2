"""ZooKeeperSession: a kazoo client with limited waits and classified errors.

**Connection.** kazoo reconnects by itself, and opens a new session when the old one has expired.
While the connection is down (SUSPENDED) the session may still live, and a request waits. Only LOST
ends a leadership. While it connects, kazoo queues requests without limit. So nothing is sent before
there is a connection, and every wait for an answer is limited.

**Login.** A SASL login takes several messages on an open connection. kazoo 2.11 treats every
failure in between as a refusal and gives up permanently, even if the server was just stopped or
lost its quorum. ZooKeeper 3.9 sends an error when it refuses; old servers close the connection. So:

* An error that the server sends is final, even after an earlier login succeeded: somebody changed
  the password.
* After a lost connection the login is tried again. Before the first successful login this is done
  only :data:`LOSSES_MAX` times in a row; then it counts as the refusal of an old server.
* An error of the client's own library (a missing Kerberos ticket) is final before the first
  successful login, and tried again afterwards.

A login that is tried again keeps its session, and a leader keeps its leadership while the session
lives. kazoo has no public hook for this: :func:`judge_logins` replaces one private method of its
connection, and tests log in to a real server.

**Errors.** :data:`MEANINGS` lists what each error of kazoo means for a request. A test compares the
table with the installed kazoo. An error that is not in the table, from a later version, counts as a
lost answer: the request may have been done or not, so the caller checks, and sends it again if
needed.
"""

from __future__ import annotations

import contextlib
import logging
import math
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import (
    AuthFailedError,
    ConnectionDropped,
    KazooException,
    NodeExistsError,
    NoNodeError,
    SASLException,
    SessionClosedRequireSaslError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, KeeperState

from txtopo.ensemble.nodes import INNER_NODE
from txtopo.ensemble.zookeeper.access import ZooKeeperAccess
from txtopo.ensemble.zookeeper.diagnosis import why_unreachable
from txtopo.errors import AuthError, ConfigError, CoordinatorUnavailable, ErrorMeaning, PromiseError
from txtopo.log_records import logger_of
from txtopo.retries import warn_of_retry

SLICE_S = 0.1
"""Length of one wait. After each, the state of the session is checked."""

READS_MAX = 3
"""How often a read is sent if its answer is lost with the connection."""

UNDER_WAY_MAX = 500
"""How many requests of :meth:`ZooKeeperSession.read_all` are sent before the first is awaited."""

# Short, so that clients are back soon when a standby takes over an embedded server; long enough not
# to burden an ensemble.
_CONNECTION_RETRY = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}

# kazoo logs each refused connection as a warning and, at DEBUG, credentials.
_kazoo_log = logger_of("txtopo.ensemble.zookeeper")

_kazoo_log.setLevel(logging.ERROR)


class OutcomeUnknown(CoordinatorUnavailable):
    """The connection was lost between a request and its answer."""


class ZooKeeperSession:
    """A kazoo client with limits on every wait.

    Attributes:
        id: Unique for each object; part of the names of nodes and of the ids of writes.
        generation: Grows when ZooKeeper's session is lost, and with it all ephemeral nodes.
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
                f"zookeeper hosts cannot be read; got {hosts!r}; expected 'host:port,host:port'",
                hosts=hosts,
            ) from error
        judge_logins(self._client)
        self._negotiated = note_timeout(self._client)
        self._client.add_listener(self._changed)
        self._live = self._client.start_async()

    @property
    def negotiated_s(self) -> float | None:
        """How long the server keeps a silent session; None before it has answered."""
        return self._negotiated.session_s

    def wait_connected(self, timeout_s: float | None = None) -> None:
        """Return once there is a connection.

        Raises:
            CoordinatorUnavailable: There was none for *timeout_s*, by default the session timeout.
            AuthError: The credentials were refused; a retry cannot help.
        """
        limit_s = self._session_timeout_s if timeout_s is None else timeout_s
        patience = Patience(limit_s)
        while not self._client.connected:
            self._check_alive()
            self.locate()
            if not patience.wait(self._live):
                raise self._unreachable(limit_s, first=timeout_s is not None)

    def locate(self) -> None:
        """If there is no connection, find out the server's current address."""
        if self._locate is not None and not self._client.connected and not self._closed:
            self._hosts = self._locate()
            self._client.set_hosts(self._hosts)

    def ask(self, path: str, question: Callable[[KazooClient], Any]) -> Any:
        """Send a request once and return the answer.

        Args:
            path: The node that the request concerns, for errors.
            question: Takes the client and returns kazoo's asynchronous result.

        Raises:
            OutcomeUnknown: The request may have been done or not.
            CoordinatorUnavailable: There is no connection, or the session expired.
            AuthError: The credentials do not allow it.
            PromiseError: The server refuses it, and always will.
            KazooException: The answer concerns a node: it is missing, or has another version.
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
        """Send a request that may be repeated; repeat it if the answer was lost."""
        for _ in range(READS_MAX - 1):
            try:
                return self.ask(path, question)
            except OutcomeUnknown:
                continue
        return self.ask(path, question)

    def read_all(self, questions: Sequence[tuple[str, Callable[[KazooClient], Any]]]) -> list[Any]:
        """Send many requests that may be repeated, up to a limit at the same time.

        Returns:
            The answer to each, in their order: None for a node that is missing, an
            :class:`AuthError` for one that may not be read.
        """
        answers: list[Any] = []
        for begin in range(0, len(questions), UNDER_WAY_MAX):
            some = questions[begin : begin + UNDER_WAY_MAX]
            self.wait_connected()
            under_way = [question(self._client) for _, question in some]
            for (path, question), result in zip(some, under_way, strict=True):
                answers.append(self._answer(path, question, result))
        return answers

    def _answer(self, path: str, question: Callable[[KazooClient], Any], result: Any) -> Any:
        try:
            try:
                return result.get(timeout=2 * self._session_timeout_s)
            except (KazooException, KazooTimeoutError) as error:
                if isinstance(self.named(path, error), OutcomeUnknown):
                    return self.read(path, question)
                raise
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            named = self.named(path, error)
            if isinstance(named, AuthError):
                return named
            raise named from error
        except AuthError as error:
            return error

    def ensure(self, path: str) -> None:
        """Create a node and the nodes above it if they are missing, without values."""
        if self.read(path, lambda client: client.exists_async(path)) is not None:
            return
        parent = path.rpartition("/")[0]
        if parent:
            self.ensure(parent)
        # It already exists if another client was faster, or if the answer to an earlier request was
        # lost.
        with contextlib.suppress(NodeExistsError):
            self.read(path, lambda client: client.create_async(path, INNER_NODE))

    def watch_loss(self, key: object, lost: Callable[[], None] | None) -> None:
        """Call *lost* from kazoo's thread when the session is lost; None removes the call."""
        if lost is None:
            self._on_loss.pop(id(key), None)
        else:
            self._on_loss[id(key)] = lost

    def event(self) -> Any:
        """Return an event that a watch can set."""
        return self._client.handler.event_object()

    def refused(self, path: str) -> AuthError:
        """Return the error for credentials that do not allow access to a node."""
        return AuthError(
            f"zookeeper refuses access to {path}; scheme {self._access.scheme!r} at {self._hosts}; "
            "check zookeeper.auth, and the ACL of the node",
            path=path,
            scheme=self._access.scheme,
        )

    def close(self) -> None:
        """End the session; may be called twice."""
        if self._closed:
            return
        self._closed = True
        try:
            self._client.stop()
            self._client.close()
        except (KazooException, OSError):
            _kazoo_log.debug("the session could not be closed", exc_info=True)

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
        """Return the error to raise for an error of kazoo; see :data:`MEANINGS`."""
        match meaning_of(error):
            case ErrorMeaning.ANSWER:
                return error
            case ErrorMeaning.REFUSED:
                return self.refused(path)
            case ErrorMeaning.EXPIRED:
                return CoordinatorUnavailable(
                    f"the session with zookeeper at {self._hosts} expired; a process that led "
                    "must contend again",
                    hosts=self._hosts,
                )
            case ErrorMeaning.LASTS:
                return PromiseError(
                    f"zookeeper at {self._hosts} refuses a request about {path}; got "
                    f"{type(error).__name__}: {error}; expected a server of version 3.5 or later, "
                    "and a node below its quota",
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
                CoordinatorUnavailable(
                    "the connection was lost; its session lives until its timeout"
                ),
                topology=None,
                failures=self._suspended,
                pause_s=_CONNECTION_RETRY["delay"],
            )
        elif state == KazooState.CONNECTED:
            self._suspended = 0
        if state != KazooState.LOST or self._closed:
            return
        # kazoo gives up permanently only when a login failed; it then ends in the state CLOSED.
        if self._client.client_state in (KeeperState.AUTH_FAILED, KeeperState.CLOSED):
            self._refused = True
        self.generation += 1
        for lost in list(self._on_loss.values()):
            lost()


class Patience:
    """A limit on waiting, counted in slices of time instead of read from a clock."""

    def __init__(self, timeout_s: float) -> None:
        self._slices = math.ceil(timeout_s / SLICE_S)

    def wait(self, event: Any) -> bool:
        """Wait for the event for one slice; return False if the limit was already used up."""
        if self._slices <= 0:
            return False
        self._slices -= 1
        event.wait(SLICE_S)
        return True

    def wait_for(self, event: Any) -> bool:
        """Wait for the event; return False if the limit is used up."""
        while not event.is_set():
            if not self.wait(event):
                return False
        return True


LOSSES_MAX = 3
"""Servers hardly ever stop in the middle of a login this often in a row. kazoo pauses only after it
has tried all hosts, so an ensemble of three that stops at that moment counts as one that
refuses."""


def judge_logins(client: KazooClient) -> None:
    """Make *client* retry a failed login, or give up, by the rules in this module's docstring."""
    connection = client._connection
    connection._authenticate_with_sasl = _Logins(connection._authenticate_with_sasl).log_in


def note_timeout(client: KazooClient) -> NegotiatedTimeout:
    """Return the session timeout that *client* negotiates, which kazoo does not expose."""
    connection = client._connection
    negotiated = NegotiatedTimeout(connection._connect)
    connection._connect = negotiated.connect
    return negotiated


class NegotiatedTimeout:
    """Notes the negotiated session timeout, each time a connection is made.

    Attributes:
        session_s: The last negotiated timeout; None before the first connection.
    """

    def __init__(self, connect: Callable[..., tuple[float, float]]) -> None:
        self._connect = connect
        self.session_s: float | None = None

    def connect(self, *where: Any) -> tuple[float, float]:
        """Connect, and return kazoo's limits in milliseconds, which follow from that timeout."""
        read_ms, connect_ms = self._connect(*where)
        self.session_s = read_ms * 3 / 2 / 1000
        return read_ms, connect_ms


class _Logins:
    def __init__(self, authenticate: Callable[[str, float], None]) -> None:
        self._authenticate = authenticate
        self._went_well = False
        self._lost = 0

    def log_in(self, host: str, timeout_s: float) -> None:
        """Log in; on failure, raise the error that makes kazoo try again, or give up."""
        try:
            self._authenticate(host, timeout_s)
        except SessionClosedRequireSaslError as error:
            raise AuthFailedError("the server requires a login by sasl") from error
        except (AuthFailedError, SASLException, ConnectionDropped) as error:
            if not self._may_try_again(error):
                raise AuthFailedError(str(error)) from error
            raise ConnectionDropped(f"the login was not completed: {error}") from error
        self._went_well, self._lost = True, 0

    def _may_try_again(self, error: Exception) -> bool:
        # An error that the server sent has no cause; kazoo raises all others from their cause.
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
    "NotReadOnlyCallError": ErrorMeaning.PASSES,  # the server has lost its quorum, and is read-only
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
"""The meaning of each error, by the name of its class."""


def meaning_of(error: BaseException) -> ErrorMeaning:
    """Return the meaning of an error: that of its class, or of the nearest base class."""
    for kind in type(error).__mro__:
        if kind.__name__ in MEANINGS:
            return MEANINGS[kind.__name__]
    return ErrorMeaning.PASSES
