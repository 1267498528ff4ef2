"""What connections say and do, for the tests of stores that use SQLAlchemy."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import sqlalchemy as sa

from txtopo.state import State
from txtopo.testing.conformance.driver import StateDriver


def work(state: State) -> None:
    """Make tables, claim, write, write again, in two epochs."""
    for epoch in (1, 2):
        store = StateDriver(state, epoch=epoch)
        store.puts(epoch, {"a": 1, "b": None})
        store.puts(epoch, {"a": 2}, attempt=1)
        store.close()


@contextmanager
def statements_said() -> Iterator[list[str]]:
    """Collect the statements of this process."""
    said: list[str] = []

    def listen(connection: sa.Connection, cursor: object, statement: str, *_: object) -> None:
        said.append(statement)

    sa.event.listen(sa.Engine, "before_cursor_execute", listen)
    try:
        yield said
    finally:
        sa.event.remove(sa.Engine, "before_cursor_execute", listen)
