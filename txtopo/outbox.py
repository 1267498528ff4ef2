"""Publisher: hands the rows of an outbox to a function that sends them elsewhere.

An outbox is a state whose rows are only appended (:class:`~txtopo.bolts.Append`), with the txid of
their batch and a number as the key. The publisher is a process of its own. It needs the store and
ZooKeeper, and neither the topology nor its leader.

Rules
-----
1. Only txids before ``current`` are published. All later ones may be done again, also those that
   the state holds already, and a redo may bring other rows, or cut a batch elsewhere. Which kind of
   spout there is, and whether bolts bring the same rows again, does not matter.
2. Txids are published in their order, each whole, and the rows of one by number.
3. How far it has begun to publish is durable before it reads the rows, and how far it has published
   once the function has returned. So a crash leaves no row out. Rows that were begun come again, as
   they were and with the same key.
4. While a verb of an operator is unfinished, nothing is begun. So a row that the verb takes out of
   the state is published only if that was begun before, as the plan of the verb says.
5. Only one process publishes under a name. A second one begins where the first has stored that it
   is, and the next write of the first is refused. A process knows its own writes by a token that it
   draws, so a write whose answer was lost is not taken for that of another.
6. If the state holds less than was committed, because it was restored from a backup, nothing is
   published: what is missing would be passed over.
"""

from __future__ import annotations

import secrets
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Coroutine,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import ExitStack
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from txtopo.bolts.dead_letters import KEY
from txtopo.config import Config
from txtopo.ensemble.memory import MemoryEnsemble
from txtopo.ensemble.nodes import CURRENT, EPOCH, current_of, ensemble_of, operation_of
from txtopo.ensemble.opening import open_transactional_state
from txtopo.ensemble.published import Published, published_of
from txtopo.ensemble.store import Check, CompareAndSet, Step, TransactionalState, VersionConflict
from txtopo.errors import (
    ConfigError,
    FencedError,
    StateUsageError,
    StoreBehindCoordinator,
    escaped,
)
from txtopo.state.backend import StateBackend, held_ledger
from txtopo.state.columns import Columns
from txtopo.state.ledger import RELEASED, Ledger, check_ensemble
from txtopo.state.registry import State

__all__ = ["OutboxRow", "Publisher"]

TXIDS_MAX = 100
"""How many txids are handed over at once. Their rows are in memory together, as those of a group
are when it is committed."""


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row of an outbox.

    Attributes:
        key: Identifies the row wherever it is published: topology, component, txid and number. It
            is the same whenever the row is published again.
        txid: The txid of its batch.
        number: Its number in the batch, from 1.
        values: Its values by column.
    """

    key: str
    txid: int
    number: int
    values: Mapping[str, Any]


class Publisher:
    """Publishes the rows of an outbox in the order of their txids. Use it in a ``with`` block.

    Delivery: at least once. Rows are published again after a crash, or if the function raises. A
    row that is published again is the same, with the same key, by which a consumer drops it.

    It publishes only what is committed, so no redo changes a row or takes it out. An operator's
    ``rewind`` may, and its plan names the txids that are published.

    It may run in any process, beside the topology or while nothing runs, and is used by one thread.

    Args:
        state: The outbox, e.g. ``open_state(url, table="outbox")``.
        name: Name of the publisher. How far it has published is kept in ZooKeeper under this name,
            so two publishers with two names both publish all rows.
        config: The settings of the topology, of which ``zookeeper`` counts.
        ensemble: The ensemble of runs in this process, for ``zookeeper="memory"``.

    Example:
        >>> def send(rows):
        ...     for row in rows:
        ...         print(row.key, row.values)
        >>> outbox = open_state("sqlite:///mails.db", table="outbox")
        >>> with Publisher(outbox, "mails", config) as publisher:
        ...     print(publisher.publish_ready(send))
        shop/outbox/1/1 {'to': 'ann'}
        shop/outbox/2/1 {'to': 'bob'}
        2
    """

    def __init__(
        self,
        state: State,
        name: str,
        config: Config = Config(),
        *,
        ensemble: MemoryEnsemble | None = None,
    ) -> None:
        for setting, given, kind in (("state", state, State), ("config", config, Config)):
            if not isinstance(given, kind):
                raise ConfigError(
                    f"the {setting} of a Publisher is a {type(given).__name__}; expected a "
                    f"{kind.__name__}",
                    setting=setting,
                    got=type(given).__name__,
                )
        if not isinstance(name, str) or not name or escaped(name) != name:
            raise ConfigError(
                f"the name of a Publisher is wrong; got {name!r:.100}; expected printable text; "
                "the Publisher stores its progress under this name",
                setting="name",
                got=f"{name!r:.100}",
            )
        if config.zookeeper.hosts == "memory" and ensemble is None:
            raise ConfigError(
                "zookeeper='memory' is lost when the process of a run ends, so a Publisher "
                "cannot read what is committed; expected the hosts of a ZooKeeper, an embedded "
                "one, or 'file:progress.db'",
                setting="zookeeper.hosts",
            )
        self._outbox, self._name = state, name
        self._config, self._ensemble = config, ensemble
        self._stack = ExitStack()
        self._opened: _Opened | None = None

    def publish_ready(self, publish: Callable[[Sequence[OutboxRow]], object]) -> int:
        """Publish all rows that are ready, and return their number.

        Args:
            publish: Called with rows, at least one, in this thread. When it returns, they must be
                durable where they were sent. If it raises, the call ends with that error, and the
                next call begins with the same rows. It is no coroutine and no generator, which
                have sent nothing when they return.

        Raises:
            StateUsageError: The function has returned a coroutine or a generator. The rows count as
                not published.
            InfrastructureError: ZooKeeper or the store cannot be reached; call it again later.
            FencedError: Another process publishes under the same name; end this one.
            StoreBehindCoordinator: The state was restored from a backup; restore the newer one, or
                call ``txtopo.operations.rebuild``.
        """
        opened, count = self._open(), 0
        while (up_to := opened.begin()) is not None:
            rows = opened.rows(up_to)
            number = len(rows)
            if rows:
                _check_done(publish(rows))
            opened.end(up_to)
            count += number
        return count

    @property
    def published_up_to(self) -> int:
        """The last txid whose rows this publisher has published; 0 for none."""
        return self._open().position.up_to

    def __enter__(self) -> Self:
        with self._outbox.reader() as reader:
            table, ledger = reader.table, reader.ledger
        if table.key != KEY:
            raise StateUsageError(
                f"state {table.name!r} is not an outbox; got the key {table.key!r}; expected "
                f"{KEY!r}, the key that Append uses for rows that do not expire; rows that expire "
                "might be lost before they are published",
                state=table.name,
                got=repr(table.key),
                expected=repr(KEY),
            )
        if ledger is None or ledger.topology == RELEASED:
            raise StateUsageError(
                f"no topology has claimed state {table.name!r}, so it is unknown what is "
                "committed; has its topology run yet?",
                state=table.name,
            )
        # Read by ranges of the first key column, which needs no index of its own.
        declared = replace(
            self._outbox,
            table=table.name,
            kind=table.kind,
            key=table.key,
            value=table.value,
            range_by="batch",
        )
        with ExitStack() as stack:
            ensemble = self._transactional_state(ledger.topology, stack)
            backend = declared.open()
            stack.callback(backend.close)
            self._opened = _Opened(ensemble, backend, declared, ledger, self._name)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._opened = None
        self._stack.close()

    def _transactional_state(self, topology: str, stack: ExitStack) -> TransactionalState:
        zookeeper, locate = self._config.zookeeper, None
        if zookeeper.hosts == "embedded":
            # It needs py4j, which may be missing where this module is only imported.
            from txtopo.operations.folder import EmbeddedFolder

            folder = EmbeddedFolder(zookeeper.dir)
            stack.callback(folder.close)
            locate = folder.locate
        state = open_transactional_state(
            zookeeper, topology, None, self._ensemble, locate, create=False
        )
        stack.callback(state.close)
        return state

    def _open(self) -> _Opened:
        if self._opened is None:
            raise StateUsageError("the publisher is not open; use it in a with statement")
        return self._opened


def _check_done(returned: object) -> None:
    """Refuse what a function returns before it has done anything."""
    if isinstance(returned, Awaitable | Generator | AsyncGenerator):
        if isinstance(returned, Coroutine):
            returned.close()  # or Python warns that nobody has awaited it
        raise StateUsageError(
            f"the function of a Publisher returned a {type(returned).__name__}, which has not "
            "sent anything yet; expected a function that has sent the rows when it returns; use "
            "e.g. asyncio.run inside it",
            got=type(returned).__name__,
        )


class _Opened:
    """An outbox that is open: its rows, what is committed, and how far it is published."""

    def __init__(
        self,
        ensemble: TransactionalState,
        backend: StateBackend,
        declared: State,
        ledger: Ledger,
        name: str,
    ) -> None:
        self._ensemble = ensemble
        self._backend = backend
        self._table = declared.layout()
        self._columns = Columns(self._table.name, "value", self._table.value)
        self._owner = ledger.owner
        self._label = f"{ledger.component}.{ledger.state}"
        self.position = Published(self._label, name)
        ensemble.synchronize()
        epoch = ensemble.get(EPOCH)
        if epoch is None:
            raise StateUsageError(
                f"the ensemble has no topology {ledger.topology!r}, to which state "
                f"{self._label!r} belongs; expected the zookeeper= of its runs",
                topology=ledger.topology,
                state=self._label,
            )
        check_ensemble(ledger, ensemble_of(epoch))
        self._token = secrets.token_hex(8)
        if (node := ensemble.get(self.position.path)) is not None:
            self.position = published_of(self.position.path, node)

    def begin(self) -> int | None:
        """Store that the next txids are begun, and return the last one; None if none is ready."""
        while True:
            version = self._look()
            node = self._ensemble.get(CURRENT)
            if node is None:
                raise StateUsageError(
                    f"topology {self._owner.topology!r} no longer has nodes in ZooKeeper; was it "
                    "given up with txtopo forget? open the publisher again once it has run",
                    topology=self._owner.topology,
                    state=self._label,
                )
            up_to = min(current_of(node) - 1, self.position.up_to + TXIDS_MAX)
            if operation_of(node) is not None or up_to <= self.position.up_to:
                return None
            self._check_held(held_ledger(self._backend), up_to)
            begun = replace(self.position, begun_up_to=max(up_to, self.position.begun_up_to))
            # No verb can begin in between.
            if self._stored(begun, version, Check(CURRENT, node.version)):
                return up_to

    def rows(self, up_to: int) -> list[OutboxRow]:
        """Return the rows of the txids that are begun, in order."""
        above, table = self.position.up_to, self._table
        with self._backend.snapshot() as snapshot:
            ledger = self._check_held(snapshot.ledger, up_to)
            # It may return other rows as well, and all that the txid of the last argument wrote.
            found = {
                key: values
                for key, row in snapshot.between(table, above, up_to, ledger.txid + 1)
                if above < key[0] <= up_to and (values := row.visible()) is not None
            }
        names, opened = table.value.names, self._columns.opened
        return [
            OutboxRow(
                f"{self._owner.topology}/{self._owner.component}/{txid}/{number}",
                txid,
                number,
                dict(zip(names, opened(found[txid, number]), strict=True)),
            )
            for txid, number in sorted(found)
        ]

    def _check_held(self, ledger: Ledger | None, up_to: int) -> Ledger:
        """Return the ledger, which must hold all that is committed."""
        if ledger is not None and ledger.owner == self._owner and ledger.txid >= up_to:
            return ledger
        held = 0 if ledger is None else ledger.txid
        raise StoreBehindCoordinator(
            f"state {self._label!r} holds txid {held}, but ZooKeeper says that txid {up_to} is "
            "committed; expected the same or more; was the store restored from a backup, or its "
            "table dropped? restore the newer one, or call txtopo.operations.rebuild",
            state=self._label,
            ledger_txid=held,
            committed_txid=up_to,
        )

    def end(self, up_to: int) -> None:
        """Store that the rows of the txids are published."""
        # After a conflict it looks again, which raises if another process was the cause.
        while not self._stored(replace(self.position, up_to=up_to), self._look()):
            pass

    def _look(self) -> int | None:
        """Read the node, and return its version; None if there is none.

        Raises:
            FencedError: Somebody else has written it.
        """
        node = self._ensemble.get(self.position.path)
        found = Published(self._label, self.position.publisher)
        if node is not None:
            found = published_of(self.position.path, node)
        if found != self.position and found.token != self._token:
            raise FencedError(
                f"publisher {self.position.publisher!r} of state {self._label!r} was replaced: "
                f"another process or a verb has written {self.position.path}; expected one "
                "process for each name; end this one, or give it another name",
                path=self.position.path,
                state=self._label,
            )
        # Perhaps a write whose answer was lost, or a verb has set it back.
        self.position = found
        return None if node is None else node.version

    def _stored(self, position: Published, version: int | None, *checks: Step) -> bool:
        """Write the position; return False if it or what is checked has changed meanwhile."""
        position = replace(position, token=self._token)
        write = CompareAndSet(position.path, position.to_json(), version)
        try:
            self._ensemble.apply([*checks, write])
        except VersionConflict:
            return False
        self.position = position
        return True
