"""The spout that reads a RabbitMQ queue, each message at least once: QueueSpout.

The server keeps a message until it is acked. When a connection ends, for whatever reason, its
unacked messages become available to any client. So the spout has nothing to store: a lost task, a
killed driver and a broken connection are the same case.

A delivery has a number, its tag, which is valid only on its connection. A message that was
delivered on a lost connection is delivered again under another tag. An ack or failure of the old
delivery must be ignored, since the same tag on the new connection belongs to another message. So
message ids are (number of the connection, delivery tag).

The tables at the end list which errors of RabbitMQ and of its client pika are transient. An error
that is in no table counts as transient. A test compares the tables with the errors of the installed
client.
"""

from __future__ import annotations

import math
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from txtopo.config import AtLeastOnceConfig
from txtopo.context import TaskContext
from txtopo.errors import (
    AuthError,
    ConfigError,
    ErrorMeaning,
    FailedException,
    FieldsError,
    InfrastructureError,
    PromiseError,
    SourceDataLost,
)
from txtopo.extras import require
from txtopo.reliable.collector import SpoutOutputCollector
from txtopo.reliable.spout import Spout
from txtopo.retries import warn_of_retry
from txtopo.servers import Server
from txtopo.setting_checks import check_text
from txtopo.tuples import Fields

if TYPE_CHECKING:
    from pika import BlockingConnection
    from pika.adapters.blocking_connection import BlockingChannel
    from pika.spec import Basic, BasicProperties

Decode = Callable[[bytes], Sequence[Any] | None]

# Messages that the server sends ahead of their acks when max_spout_pending sets no other limit: a
# few turns of the spout. Without any limit a long queue would move into this process.
PREFETCH = 10_000

PREFETCH_MAX = 65_535

# A spout that waits for acks is not called, so its heartbeats are late. The server must not
# consider it dead before its trees have timed out.
HEARTBEAT_S = 60

# After n failures in a row the next 2^n calls do not connect, at most this many: some seconds, with
# the pauses of an idle spout.
SKIPPED_CALLS_MAX = 64

# This many refusals in a row end the run: some 15 seconds, with the pauses of an idle spout. That
# is enough time to change rights or recreate a queue.
REFUSALS_MAX = 10

MESSAGE = Fields("message string")


def text(body: bytes) -> Sequence[Any]:
    """Decode a message as UTF-8 into one value; the default of ``QueueSpout(decode=…)``."""
    return [body.decode()]


class QueueSpout(Spout):
    """Emits the messages of a RabbitMQ queue, and acks each when its tree is complete.

    Delivery: at least once. The server keeps a message until it is acked, even while this process
    is down. With ``AtLeastOnceConfig(ackers=0)``, a message is acked when it is emitted: at most
    once. After a failure, a timeout or a lost connection, messages are delivered again, in any
    order. All tasks, and other programs, share the messages of the queue.

    A message that *fails* is returned to the server, which immediately delivers it again, to any
    client. To limit this, let the server count: a quorum queue with ``x-delivery-limit`` moves a
    message that was returned too often to the queue's dead letter exchange. If *decode* raises
    ``FailedException``, the message is rejected and goes there immediately.

    ``process_all_available`` waits until the server reports that no message of the queue is ready.
    It does not wait for messages that other clients hold.

    A lost connection is reported (``ErrorReported``) and reopened, with growing pauses;
    ``process_all_available`` waits meanwhile. If the server refuses, or has no such queue,
    :data:`REFUSALS_MAX` times in a row, the run ends. A deactivated run returns the messages that
    it has not emitted.

    Args:
        url: ``amqp://user:password@host:port/vhost`` or ``amqps://…``, with settings of ``pika``
            after a ``?``, such as ``heartbeat``.
        queue: Name of the queue, which must exist.
        fields: The fields of its tuples.
        decode: Turns a message into the values of a tuple, in the task; picklable. If it returns
            None, the message is skipped and acked. ``FailedException`` rejects the message. Any
            other exception ends the run. By default, a message is UTF-8 text, as one value.
        prefetch: How many unacked messages a task may hold; by default,
            ``AtLeastOnceConfig.max_spout_pending``, or 10,000 if that is not set.

    Raises:
        ConfigError: An argument is wrong, or ``txtopo[rabbitmq]`` is not installed.
        AuthError: The server refuses the user or password, when the run starts or repeatedly.
        SourceDataLost: There is no such queue, when the run starts or repeatedly.
        InfrastructureError: The server cannot be reached, when the run starts.
        FieldsError: A message is not UTF-8 text; set *decode*. This ends the run.
    """

    client_modules = ("pika",)

    def __init__(
        self,
        url: str,
        queue: str,
        fields: Fields = MESSAGE,
        decode: Decode = text,
        prefetch: int | None = None,
    ) -> None:
        require("pika", "QueueSpout")
        if not isinstance(url, str) or not url.startswith(("amqp://", "amqps://")):
            raise ConfigError(
                f"the url of a QueueSpout is wrong; got {type(url).__name__} that does not begin "
                "with 'amqp://' or 'amqps://'; expected amqp://user:password@host:port/vhost",
                setting="url",
            )
        check_text("the url of a QueueSpout", unquote(url))
        check_text("the queue of a QueueSpout", queue)
        whole = type(prefetch) is int
        if prefetch is not None and not (whole and 1 <= prefetch <= PREFETCH_MAX):
            raise ConfigError(
                f"prefetch of a QueueSpout is wrong; got {prefetch!r}; expected a whole number "
                f"from 1 to {PREFETCH_MAX}, or None",
                setting="prefetch",
            )
        self.output_fields = fields
        # Without user and password, which are never shown.
        place = url.partition("//")[2].rpartition("@")[2].partition("?")[0]
        self.takes_from = [f"queue {queue!r} of {place}"]
        secure = url.startswith("amqps:")
        self.connects_to = [Server.of("RabbitMQ", url, 5671 if secure else 5672)]
        self._url = url
        self._queue = queue
        self._decode = decode
        self._prefetch = prefetch

    def open(
        self, config: AtLeastOnceConfig, context: TaskContext, collector: SpoutOutputCollector
    ) -> None:
        """Connect; the class lists the errors."""
        self._collector, self._config = collector, config
        self._id, self._consuming = context.component_id, False
        self._connection: BlockingConnection | None = None
        self._topology, self._task = context.topology_id, context.task_index
        self._number = self._failures = self._refusals = self._skip = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        # Messages of this connection that were emitted and neither acked nor failed.
        self._pending = 0
        self._connect()

    def activate(self) -> None:
        """Start to receive messages."""
        self._consuming = True
        self._guarded(self._consume)

    def deactivate(self) -> None:
        """Stop receiving, and return the messages that were not emitted yet."""
        self._consuming = False
        if self._connection is not None:
            self._guarded(self._give_back)

    def next_tuple(self) -> None:
        """Emit the next message if there is one; connect again if the connection is lost."""
        if not self._waiting:
            self._guarded(self._receive)
        while self._waiting:
            tag, body = self._waiting.popleft()
            values = self._decoded(tag, body)
            if values is not None:
                self._pending += 1
                self._collector.emit(values, (self._number, tag))
                return

    def tend(self) -> None:
        """Answer the heartbeats of the server."""
        connection = self._connection
        if connection is not None:
            self._guarded(lambda: connection.process_data_events(0))

    def may_have_more(self) -> bool:
        """Return whether messages are pending or ready, or the server cannot tell."""
        self._more = True
        if self._connection is not None and not self._pending:
            self._guarded(self._look)
        return self._more

    def ack(self, message_id: Any) -> None:
        """Ack the message at the server, which then forgets it."""
        number, tag = message_id
        if number == self._number:
            self._pending -= 1
            self._guarded(lambda: self._channel.basic_ack(tag))

    def fail(self, message_id: Any) -> None:
        """Return the message to the server."""
        number, tag = message_id
        if number == self._number:
            self._pending -= 1
            self._guarded(lambda: self._channel.basic_nack(tag))

    def close(self) -> None:
        """Close the connection; the server delivers unacked messages to others."""
        if self._connection is not None:
            self._guarded(self._connection.close)

    def _look(self) -> None:
        """Ask whether the queue is empty.

        A message that the server sent before it counted may arrive after its first answer, but not
        after its second, since a channel answers in order.
        """
        assert self._connection is not None
        for _ in range(2):
            told = self._channel.queue_declare(self._queue, passive=True)
            self._connection.process_data_events(0)
            if self._waiting or told.method.message_count:
                return
        self._more = False

    def _give_back(self) -> None:
        # The client returns messages that it has not passed to us; those in `_waiting` are ours.
        self._channel.basic_cancel(self._tag)
        while self._waiting:
            self._channel.basic_nack(self._waiting.popleft()[0])

    def _decoded(self, tag: int, body: bytes) -> Sequence[Any] | None:
        try:
            values = self._decode(body)
        except FailedException as error:
            self._collector.report_error(error)
            self._guarded(lambda: self._channel.basic_reject(tag, requeue=False))
            return None
        except UnicodeDecodeError as error:
            raise FieldsError(
                f"a message of queue {self._queue!r} is not text in UTF-8; got {body[:80]!r}; "
                "pass QueueSpout(…, decode=…), which may raise FailedException to reject a "
                "message",
                component=self._id,
                queue=self._queue,
            ) from error
        if values is None:
            self._guarded(lambda: self._channel.basic_ack(tag))
        return values

    def _receive(self) -> None:
        if self._connection is None:
            if self._skip:
                self._skip -= 1
                return
            self._connect()
            self._consume()
        assert self._connection is not None
        self._connection.process_data_events(0)
        if self._cancelled:
            raise InfrastructureError(
                f"the server stopped sending messages of queue {self._queue!r} to spout "
                f"{self._id!r}; was the queue deleted, or is its node down? trying again",
                component=self._id,
                queue=self._queue,
            )
        self._failures = self._refusals = 0

    def _guarded(self, call: Callable[[], object]) -> None:
        """Call the server; if the call fails, drop the connection and report the error."""
        from pika.exceptions import AMQPError

        try:
            call()
        except (AMQPError, OSError, PromiseError, InfrastructureError) as error:
            self._drop()
            named = self._named(error)
            self._skip = min(2**self._failures, SKIPPED_CALLS_MAX)
            self._failures += 1
            self._refusals = self._refusals + 1 if isinstance(named, PromiseError) else 0
            if self._refusals >= REFUSALS_MAX:
                raise named from error
            self._collector.report_error(named)
            warn_of_retry(
                f"spout {self._id!r}, task {self._task},",
                named,
                topology=self._topology,
                failures=self._failures,
                pause_s=self._skip * self._config.poll_interval_s,
                component=self._id,
            )

    def _drop(self) -> None:
        from pika.exceptions import AMQPError

        connection, self._connection = self._connection, None
        self._waiting.clear()
        # From now on, acks and failures of its deliveries are ignored.
        self._number += 1
        if connection is not None and connection.is_open:
            try:
                connection.close()
            except (AMQPError, OSError):
                return

    def _connect(self) -> None:
        from pika import BlockingConnection, URLParameters
        from pika.exceptions import AMQPError

        parameters = URLParameters(self._url)
        if "heartbeat=" not in self._url:
            parameters.heartbeat = max(HEARTBEAT_S, math.ceil(3 * self._config.message_timeout_s))
        self._number += 1
        self._pending = 0
        self._cancelled = False
        limit = self._prefetch or self._config.max_spout_pending or PREFETCH
        try:
            self._connection = BlockingConnection(parameters)
            self._channel: BlockingChannel = self._connection.channel()
            self._channel.basic_qos(prefetch_count=min(limit, PREFETCH_MAX))
            self._channel.queue_declare(self._queue, passive=True)
            self._channel.add_on_cancel_callback(self._on_cancel)
        except (AMQPError, OSError) as error:
            self._drop()
            raise self._named(error) from error

    def _consume(self) -> None:
        if self._connection is not None and self._consuming:
            self._tag = self._channel.basic_consume(self._queue, self._on_message)

    def _on_message(
        self, _: BlockingChannel, method: Basic.Deliver, __: BasicProperties, body: bytes
    ) -> None:
        self._waiting.append((method.delivery_tag, body))

    def _on_cancel(self, _: object) -> None:
        self._cancelled = True

    def _named(self, error: Exception) -> Exception:
        """Return an error of the client as one of ours."""
        if isinstance(error, PromiseError | InfrastructureError):
            return error
        about = f"spout {self._id!r} queue {self._queue!r}; got {error!r:.200}"
        match meaning_of(error):
            case ErrorMeaning.REFUSED:
                return AuthError(
                    f"RabbitMQ refuses {about}; check the user, password and vhost of the url, "
                    "and the user's permissions",
                    component=self._id,
                    queue=self._queue,
                )
            case ErrorMeaning.GONE:
                return SourceDataLost(
                    f"spout {self._id!r} found no queue {self._queue!r}; got {error!r:.200}; "
                    "expected an existing queue; declare it first",
                    component=self._id,
                    queue=self._queue,
                )
            case ErrorMeaning.LASTS:
                return PromiseError(
                    f"RabbitMQ cannot serve {about}; expected a server of AMQP 0.9.1 that "
                    "supports the request; check the url",
                    component=self._id,
                    queue=self._queue,
                )
            case _:
                return InfrastructureError(
                    f"spout {self._id!r} has no connection to RabbitMQ for queue {self._queue!r}; "
                    f"got {error!r:.200}; unacknowledged messages will be delivered again; it "
                    "reconnects by itself, unless the run has just been started",
                    component=self._id,
                    queue=self._queue,
                )


CODES = {
    311: ErrorMeaning.LASTS,  # content too large
    312: ErrorMeaning.PASSES,  # no route
    313: ErrorMeaning.PASSES,  # no consumers
    320: ErrorMeaning.PASSES,  # connection forced: the server stops, or an operator closed it
    402: ErrorMeaning.REFUSED,  # invalid path: no such vhost
    403: ErrorMeaning.REFUSED,  # access refused
    404: ErrorMeaning.GONE,  # not found
    405: ErrorMeaning.PASSES,  # resource locked: another connection has the queue for itself
    406: ErrorMeaning.PASSES,  # precondition failed: a message was not acked in time
    501: ErrorMeaning.PASSES,  # frame error
    502: ErrorMeaning.LASTS,  # syntax error
    503: ErrorMeaning.LASTS,  # command invalid
    504: ErrorMeaning.PASSES,  # channel error
    505: ErrorMeaning.PASSES,  # unexpected frame
    506: ErrorMeaning.PASSES,  # resource error
    530: ErrorMeaning.REFUSED,  # not allowed: no such vhost, or none for this user
    540: ErrorMeaning.LASTS,  # not implemented
    541: ErrorMeaning.PASSES,  # internal error
}
"""The meaning of each reply code with which the server closes a channel or a connection."""

# A refusal with one of these texts is transient: the node of a queue or vhost is down, or too many
# clients are connected.
_PASSING_TEXTS = ("is down", "inaccessible", "stopped by supervisor", "limit")

CLASSES = {
    "AuthenticationError": ErrorMeaning.REFUSED,
    "BodyTooLongError": ErrorMeaning.LASTS,
    "DuplicateConsumerTag": ErrorMeaning.LASTS,
    "DuplicateGetOkCallback": ErrorMeaning.LASTS,
    "IncompatibleProtocolError": ErrorMeaning.LASTS,
    "InvalidChannelNumber": ErrorMeaning.LASTS,
    "InvalidFieldTypeException": ErrorMeaning.LASTS,
    "MethodNotImplemented": ErrorMeaning.LASTS,
    "ProtocolVersionMismatch": ErrorMeaning.LASTS,
    "ReentrancyError": ErrorMeaning.LASTS,
    "ShortStringTooLong": ErrorMeaning.LASTS,
    "UnsupportedAMQPFieldException": ErrorMeaning.LASTS,
    # Unless the server said so, this is only pika's guess, even for lost connections.
    "ProbableAccessDeniedError": ErrorMeaning.PASSES,
    "ProbableAuthenticationError": ErrorMeaning.PASSES,
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
    ErrorMeaning.PASSES,
)
"""The meaning of each exception of pika that has no reply code."""


def meaning_of(error: Exception) -> ErrorMeaning:
    """Return the meaning of an exception of pika or of the network."""
    from pika import exceptions

    if isinstance(error, ssl.SSLCertVerificationError):
        return ErrorMeaning.REFUSED
    if isinstance(error, exceptions.ChannelClosed | exceptions.ConnectionClosed):
        meaning = CODES.get(error.reply_code, ErrorMeaning.PASSES)
        passing = any(part in error.reply_text for part in _PASSING_TEXTS)
        return ErrorMeaning.PASSES if passing else meaning
    probable = exceptions.ProbableAuthenticationError, exceptions.ProbableAccessDeniedError
    # A server that refuses sends its reason before it closes the connection.
    if isinstance(error, probable) and "ClosedByBroker" in str(error):
        return ErrorMeaning.REFUSED
    return CLASSES.get(type(error).__name__, ErrorMeaning.PASSES)
