"""Readings of a state in Redis, which keeps no old versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from state_backends.redis.failures import FAILURES, translated
from state_backends.redis.layout import Names, head_of
from txtopo.errors import StoreUnavailable
from txtopo.state import Key, Ledger, Row, RowText, Snapshot

if TYPE_CHECKING:
    from redis import Redis

# So many rows are fetched at once when the reading is opened (about 20 ms), so that it stays what
# it is. Of a larger state only what is asked for is fetched, as long as nobody writes: committers
# read few keys of many.
ROWS_AT_ONCE = 10_000


class RedisSnapshot(Snapshot):
    """One reading: the whole hash in one ``HGETALL``, or keys of a state that nobody changes.

    A large state that is written while it is read in pieces cannot be read on: an error says so,
    and the next reading begins anew. ``items()`` first fetches all in one piece.
    """

    def __init__(self, client: Redis, names: Names, text: RowText, place: str) -> None:
        self._client = client
        self._names = names
        self._text = text
        self._place = place
        self._whole: dict[str, str] | None = None
        head, count = self._asked("hlen", names.rows)
        if count <= ROWS_AT_ONCE:
            head, self._whole = self._asked("hgetall", names.rows)
            count = len(self._whole)
        self._head = head_of(head, place)
        if self._head is not None:
            self._head.check_rows(count, place)

    @property
    def ledger(self) -> Ledger | None:
        """The ledger of the reading."""
        return None if self._head is None else self._head.ledger

    def rows(self, keys: Sequence[Key]) -> dict[Key, Row]:
        """Return the rows of those of *keys* that exist, tombstones too."""
        names = {self._text.key(key): key for key in keys}
        if self._whole is not None:
            texts = [self._whole.get(name) for name in names]
        else:
            texts = self._fetched("hmget", self._names.rows, list(names)) if names else []
        found = zip(names.values(), texts, strict=True)
        return {key: self._text.row_of(text) for key, text in found if text is not None}

    def items(self) -> Iterator[tuple[Key, Row]]:
        """Yield every row, tombstones too."""
        if self._whole is None:
            self._whole = self._fetched("hgetall", self._names.rows)
        for name, text in self._whole.items():
            yield self._text.key_of(name), self._text.row_of(text)

    def _fetched(self, command: str, *arguments: Any) -> Any:
        try:
            head, answer = self._asked(command, *arguments)
        except FAILURES as error:
            raise translated(error, self._place) from error
        if head_of(head, self._place) != self._head:
            raise StoreUnavailable(
                f"{self._place} was written while it was read; got another ledger than that of the "
                "opened reading; open a reader anew, and call items() first to have all of it"
            )
        return answer

    def _asked(self, command: str, *arguments: Any) -> tuple[str | None, Any]:
        """Ask for the head and something else, of one instant."""
        with self._client.pipeline(transaction=True) as pipe:
            pipe.get(self._names.head)
            getattr(pipe, command)(*arguments)
            head, answer = pipe.execute()
        return head, answer
