"""What a format of Kafka records is: the columns that a key or value becomes, and who reads it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from txtopo.servers import Server

if TYPE_CHECKING:
    from confluent_kafka import Message

    from txtopo.tuples import Fields

Part = str
"""The part of a record that has the format: "key" or "value"."""

Row = Mapping[str, Any]
"""The values of the columns of one record; a column that is missing is NULL."""


class RecordFormat(ABC):
    """The format of the keys or values of a topic. Picklable."""

    @property
    @abstractmethod
    def modules(self) -> tuple[str, ...]:
        """The modules that read the format, beside confluent-kafka's client."""

    @property
    def connects_to(self) -> tuple[Server, ...]:
        """The server that has the schemas, if there is one."""
        return ()

    @abstractmethod
    def fields(self, part: Part) -> Fields:
        """Return the columns."""

    @abstractmethod
    def reader(self, part: Part) -> RowReader:
        """Return a decoder for the records of one reading."""


class RowReader(Protocol):
    """Decodes the keys or values of records, in one reading."""

    @property
    def expected(self) -> str:
        """The form that a record must have, for messages."""
        ...

    def read(self, record: Message) -> Row | None:
        """Return the values of the columns; None if the record makes no row, such as a heartbeat.

        Raises:
            ValueError: It cannot be decoded; the text explains why.
            InfrastructureError: A schema registry does not answer; try again.
            AuthError: A schema registry refuses the credentials.
        """
        ...
