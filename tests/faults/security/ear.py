"""Collect everything that a run lets out, in one text, to look for secrets in it."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from txtopo.runtime.progress import BatchFailed, Stopped, TopologyEvent, TopologyListener


class Ear(TopologyListener):
    """Hears logs at every level, output, events, errors with all that they stem from, and more.

    Args:
        logs: Pytest's.
        output: Pytest's.
    """

    def __init__(self, logs: pytest.LogCaptureFixture, output: pytest.CaptureFixture[str]) -> None:
        self._logs, self._output = logs, output
        self._heard: list[str] = []
        logs.set_level(logging.DEBUG)
        for name in ("txtopo", "sqlalchemy", "psycopg", "pymysql", "redis", "kazoo"):
            logs.set_level(logging.DEBUG, name)

    def on_change(self, change: TopologyEvent) -> None:
        """Hear an event, and who can be seen to run meanwhile."""
        self.hear(change)
        if isinstance(change, BatchFailed | Stopped) and change.error is not None:
            self.hear_error(change.error)
        self._heard += command_lines()

    def hear(self, *things: object) -> None:
        """Hear what is shown of things."""
        for each in things:
            self._heard += [repr(each), str(each)]
            if (
                is_dataclass(each)
                and not isinstance(each, type)
                and isinstance(each, TopologyEvent)
            ):
                self._heard.append(str(asdict(each)))

    def hear_error(self, error: BaseException) -> None:
        """Hear an error, what it carries, and every error that it stems from."""
        self._heard += traceback.format_exception(error)
        known: set[int] = set()
        waiting: list[BaseException | None] = [error]
        while waiting:
            each = waiting.pop()
            if each is not None and id(each) not in known:
                known.add(id(each))
                self._heard += [repr(each), str(each), repr(vars(each)), repr(each.args)]
                waiting += [each.__cause__, each.__context__]

    def hear_nodes(self, hosts: str, digest: str) -> None:
        """Hear every node of a chroot."""
        silent = logging.getLogger("tests.silent")
        silent.setLevel(logging.ERROR)
        client = KazooClient(hosts, auth_data=[("digest", digest)], logger=silent)
        client.start(30)
        self._heard += [str(client.get(path)[0]) for path in _below(client, "/")]
        client.stop()
        client.close()

    def told(self) -> str:
        """Return all that was heard."""
        out, err = self._output.readouterr()
        self._heard += [self._logs.text, out, err, *command_lines()]
        return "\n".join(self._heard)

    def lines_with(self, *secrets: str) -> list[str]:
        """Return what was heard of secrets, each with a little around it."""
        told = self.told()
        storages = [at for each in secrets for at in _places(told, each)]
        return [told[max(0, at - 100) : at + 60] for at in storages]


def command_lines() -> Iterator[str]:
    """Return the command line of this process and of all that it started, themselves or not."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents[int(folder.name)] = int(stat[1])
    for pid in parents:
        line, above = "", pid
        while above not in (0, os.getpid()):
            above = parents.get(above, 0)
        if above:
            try:
                line = (Path("/proc") / str(pid) / "cmdline").read_text(errors="replace")
            except OSError:
                continue
            yield line


def _below(client: KazooClient, path: str) -> list[str]:
    children = [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
    return [path, *(node for child in children for node in _below(client, child))]


def _places(text: str, part: str) -> Iterator[int]:
    at = text.find(part)
    while at >= 0:
        yield at
        at = text.find(part, at + 1)
