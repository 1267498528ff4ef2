"""Election: which candidate leads, by a queue of ephemeral nodes (ZooKeeper's lock recipe).

It differs from kazoo's lock in three ways that a standby needs. A call ends within its time limit
even when the connection is down. A candidate keeps its place in the queue from one call to the
next. A leader whose process is known to have ended is removed without waiting for its session. Like
every lock it elects a leader and does not protect the data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from kazoo.exceptions import NoNodeError

from txtopo.ensemble.nodes import NodeRecord, decode, encode
from txtopo.ensemble.store import Json, Leadership, is_gone
from txtopo.ensemble.zookeeper.session import OutcomeUnknown, Patience, ZooKeeperSession
from txtopo.errors import CoordinatorUnavailable


class Election:
    """The queue of candidates below one node.

    Args:
        session: The session that owns the ephemeral nodes.
        path: The node above them.
    """

    def __init__(self, session: ZooKeeperSession, path: str) -> None:
        self._session = session
        self._path = path
        self._places = 0
        self._mine: str | None = None

    def lead(
        self, candidate: Json, *, timeout_s: float, on_lost: Callable[[], None]
    ) -> Leadership | None:
        """Wait for the first place in the queue; return None after *timeout_s*."""
        patience = Patience(timeout_s)
        while True:
            generation = self._session.generation
            try:
                mine, ahead = self._stand_in_queue(candidate)
                if ahead is None:
                    return self._leadership(mine, generation, on_lost)
                if is_gone(self._candidate(ahead)):
                    self._remove(ahead)
                    continue
                free = self._watch(ahead)
            except OutcomeUnknown:
                if not patience.wait(self._session.event()):
                    raise  # None would mean that another candidate leads
                continue
            if free is not None and not patience.wait_for(free):
                return None

    def leader(self) -> Json:
        """Return the candidate in the first place, or None."""
        for name in self._queue():
            candidate = self._candidate(name)
            if candidate is not None:
                return candidate
        return None

    def announce(self, candidate: Json, summary: Json) -> None:
        """Write *summary* into the node of this candidate, if it has one, for others to read."""
        name = self._mine
        if name is None:
            return
        path = f"{self._path}/{name}"
        data = encode(path, candidate, self._session.id, summary)
        # Without an answer, the next summary follows in a second.
        with contextlib.suppress(NoNodeError):
            self._session.ask(path, lambda client: client.set_async(path, data))

    def announced(self) -> Json:
        """Return the last summary of the first candidate."""
        for name in self._queue():
            record = self._record(name)
            if record is not None:
                return record.announced
        return None

    def leave(self, name: str) -> None:
        """Give up a place. If ZooKeeper cannot be reached, the place ends with the session."""
        self._places += 1
        self._mine = None
        try:
            self._remove(name)
        except CoordinatorUnavailable:
            return

    def _leadership(
        self, mine: str, generation: int, on_lost: Callable[[], None]
    ) -> _ZooKeeperLeadership:
        self._mine = mine
        leadership = _ZooKeeperLeadership(self, self._session, mine, on_lost)
        self._session.watch_loss(leadership, leadership.lose)
        if self._session.generation != generation:
            leadership.lose()
        return leadership

    def _stand_in_queue(self, candidate: Json) -> tuple[str, str | None]:
        """Join the queue, unless already in it; return the own node and the node right before it.

        An earlier place of this candidate is given up first. Usually it has ended with its session.
        But it may belong to the current session: if it was created there under the number of the
        previous session, which had just expired, or if it could not be removed when it was given
        up. Then this candidate would wait for itself, and all others for it.
        """
        # A new session must not mistake an ephemeral node of the previous session for its own.
        token = f"{self._session.id}-{self._session.generation}-{self._places}-"
        queue = self._queue()
        for name in queue:
            if name.startswith(f"{self._session.id}-") and not name.startswith(token):
                self._remove(name)
        if not any(name.startswith(token) for name in queue):
            self._create(token, candidate)
            queue = self._queue()
        at = next((at for at, name in enumerate(queue) if name.startswith(token)), None)
        if at is None:
            raise OutcomeUnknown(
                f"the place of this candidate below {self._path} no longer exists", path=self._path
            )
        return queue[at], queue[at - 1] if at else None

    def _create(self, token: str, candidate: Json) -> None:
        prefix = f"{self._path}/{token}"
        data = encode(prefix, candidate, self._session.id)
        self._session.ensure(self._path)
        self._session.ask(
            prefix,
            lambda client: client.create_async(prefix, data, ephemeral=True, sequence=True),
        )

    def _queue(self) -> list[str]:
        path = self._path
        try:
            names = self._session.read(path, lambda client: client.get_children_async(path))
        except NoNodeError:
            return []
        return sorted(names, key=lambda name: str(name)[-10:])

    def _candidate(self, name: str) -> Json:
        record = self._record(name)
        return record.value if record else None

    def _record(self, name: str) -> NodeRecord | None:
        path = f"{self._path}/{name}"
        try:
            data, _ = self._session.read(path, lambda client: client.get_async(path))
        except NoNodeError:
            return None
        return decode(path, data)

    def _watch(self, name: str) -> Any:
        """Return an event that is set when a place becomes free, or None if it is free now."""
        path = f"{self._path}/{name}"
        event = self._session.event()
        found = self._session.read(
            path, lambda client: client.exists_async(path, watch=lambda _: event.set())
        )
        return event if found is not None else None

    def _remove(self, name: str) -> None:
        path = f"{self._path}/{name}"
        try:
            self._session.read(path, lambda client: client.delete_async(path))
        except NoNodeError:
            return


class _ZooKeeperLeadership(Leadership):
    def __init__(
        self,
        election: Election,
        session: ZooKeeperSession,
        name: str,
        on_lost: Callable[[], None],
    ) -> None:
        self._election = election
        self._session = session
        self._name = name
        self._on_lost = [on_lost]

    def release(self) -> None:
        if self._on_lost:
            self._on_lost.clear()
            self._session.watch_loss(self, None)
            self._election.leave(self._name)

    def lose(self) -> None:
        try:
            on_lost = self._on_lost.pop()
        except IndexError:
            return  # already released or reported
        self._session.watch_loss(self, None)
        on_lost()
