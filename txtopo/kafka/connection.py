"""How clients of Kafka are configured, and how their errors become ours.

Every setting that decides which records are read is set here and cannot be overridden. Offsets are
kept by txtopo, or committed by a ``KafkaSpout``, but never by the client itself. An offset that is
out of range is an error, since with ``earliest`` or ``latest`` deleted records would be skipped
silently. All other settings of librdkafka (SASL, TLS, sizes of fetches) are passed on unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from txtopo.errors import (
    AuthError,
    ConfigError,
    ErrorMeaning,
    InfrastructureError,
    PromiseError,
    TxtopoError,
    ValueRefusedError,
)
from txtopo.kafka.errors import may_pass, meaning_of
from txtopo.servers import Server

if TYPE_CHECKING:
    from confluent_kafka import KafkaError

Heard = deque["KafkaError"]
"""The latest errors that a client reported in the background."""
HEARD_MAX = 8
LEDGER_END = ".txtopo-ledger"
"""The suffix of the topic with the ledger of a ``KafkaSink``. A sink refuses a topic with such a
name, and patterns do not match it."""
Isolation = Literal["read_committed", "read_uncommitted"]
Setting = str | int | float | bool | Callable[..., object]
ISOLATIONS = ("read_committed", "read_uncommitted")
# These settings would change what a batch is.
_OURS = {
    "bootstrap.servers": "servers",
    "isolation.level": "isolation",
    "auto.offset.reset": "start",
    "enable.auto.commit": "nothing instead: txtopo keeps track of processed records",
    "enable.auto.offset.store": "nothing instead: txtopo keeps track of processed records",
    "enable.partition.eof": "nothing instead: a range is read to its end",
}
_CONSUMER = {
    # librdkafka wants a name, but without a subscription it joins no group and stores nothing.
    "group.id": "txtopo",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    # Only existing records are read, so a broker need not wait for more. But if a range ends with
    # the marker of a transaction, only an empty answer shows that it has ended.
    "fetch.wait.max.ms": 10,
    # A consumer reads ahead while it is idle; librdkafka's own limit is 64 MB for each.
    "queued.max.messages.kbytes": 16_384,
}
# When a broker is back, it is used again within a second; librdkafka's default is ten.
_ALL = {"reconnect.backoff.max.ms": 1000}
# Settings of consumers only; an AdminClient warns of them on stderr.
_OF_CONSUMERS = ("fetch.", "queued.", "max.partition.", "group.", "session.", "check.crcs")


@dataclass(frozen=True, slots=True)
class Connection:
    """A cluster, and how to read from it. Picklable if the settings are.

    Attributes:
        servers: Bootstrap servers, ``host:port,…``.
        settings: More settings of librdkafka; may hold secrets, so they are never shown.
        isolation: Which records of transactions are read.
        timeout_s: An attempt fails after this time without an answer.
    """

    servers: str
    settings: Mapping[str, Setting] = field(default_factory=dict, repr=False)
    isolation: Isolation = "read_committed"
    timeout_s: float = 20.0

    def __post_init__(self) -> None:
        if not isinstance(self.servers, str) or not self.servers:
            raise ConfigError(
                f"servers of Kafka are wrong; got {self.servers!r}; expected 'host:port,…'",
                setting="servers",
            )
        if self.isolation not in ISOLATIONS:
            raise ConfigError(
                f"unknown isolation; got {self.isolation!r}; expected {' or '.join(ISOLATIONS)}",
                setting="isolation",
            )
        if type(self.timeout_s) not in (int, float) or not self.timeout_s > 0:
            raise ConfigError(
                f"timeout_s is wrong; got {self.timeout_s!r}; expected a number of seconds "
                "greater than 0",
                setting="timeout_s",
            )
        for name in _OURS.keys() & self.settings.keys():
            raise ConfigError(
                f"the Kafka setting {name!r} is reserved for txtopo; got {self.settings[name]!r}; "
                f"remove it; use {_OURS[name]}",
                setting=name,
            )

    def of_consumer(self, heard: Heard) -> dict[str, Any]:
        """Return the configuration of a consumer that appends its errors to *heard*."""
        return {
            **self._common(heard),
            **_CONSUMER,
            "isolation.level": self.isolation,
            **self.settings,
        }

    def of_client(self, heard: Heard) -> dict[str, Any]:
        """Return the configuration of a client that does not consume."""
        settings = self.settings.items()
        return self._common(heard) | {n: v for n, v in settings if not n.startswith(_OF_CONSUMERS)}

    @property
    def server(self) -> Server:
        """The brokers at which a client begins."""
        return Server.of("Kafka", self.servers, 9092)

    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for equal connections."""
        settings = sorted((name, repr(value)) for name, value in self.settings.items())
        return (self.servers, self.isolation, *settings)

    def _common(self, heard: Heard) -> dict[str, Any]:
        # librdkafka's log only repeats the errors.
        return {
            **_ALL,
            "bootstrap.servers": self.servers,
            "log_level": 0,
            "error_cb": heard.append,
        }

    @contextmanager
    def checked_settings(self) -> Iterator[None]:
        """Turn the error of a client that is created with wrong settings into ours.

        Raises:
            ConfigError: A setting is wrong; repair it.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            told = error.args[0]
            if told.name() != "_INVALID_ARG":
                raise
            raise ConfigError(
                f"the Kafka client refuses its settings; got {told.str()}; expected settings of "
                "librdkafka; check the argument settings",
                setting="settings",
            ) from error

    @contextmanager
    def named_errors(self, doing: str, heard: Heard) -> Iterator[None]:
        """Turn the exceptions of confluent-kafka into ours.

        With wrong credentials a call only times out; the errors in *heard* show why.

        Raises:
            AuthError: The cluster refuses the credentials.
            PromiseError: The cluster or the client would refuse the call each time.
            InfrastructureError: The cluster cannot be reached, or cannot do it now; try again.
        """
        from confluent_kafka import KafkaException

        try:
            yield
        except KafkaException as error:
            raise self.fault(doing, error.args[0], heard) from error

    def fault(self, doing: str, error: KafkaError, heard: Heard) -> TxtopoError:
        """Return our error for one of librdkafka's, see :mod:`txtopo.kafka.errors`."""
        error = next((each for each in heard if not may_pass(each)), error)
        said = f"{error.name()}: {error.str()}"
        match meaning_of(error.name()):
            case ErrorMeaning.REFUSED:
                return AuthError(
                    f"Kafka at {self.servers} refused to {doing}; got {error.str()}; expected "
                    "credentials with the right to do it; check the settings security.protocol, "
                    "sasl.*, ssl.*",
                    servers=self.servers,
                )
            case ErrorMeaning.VALUE:
                return ValueRefusedError(
                    f"Kafka at {self.servers} refuses a record; got {said}; nothing of its batch "
                    "is visible; check max.message.bytes and cleanup.policy of the topic: a "
                    "compacted topic accepts no record without a key",
                    servers=self.servers,
                )
            case ErrorMeaning.LASTS:
                return PromiseError(
                    f"cannot {doing} at Kafka {self.servers}, and a retry will not help; got "
                    f"{said}; check the settings of the client and of the topic",
                    servers=self.servers,
                )
            case _:
                return InfrastructureError(
                    f"cannot {doing} at Kafka {self.servers}: {said}", servers=self.servers
                )
