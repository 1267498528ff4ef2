"""A source with figures that are written down, of the shapes that a board has."""

from __future__ import annotations

from typing import Any

from txtopo import open_state
from txtopo.state.registry import State
from txtopo.ui.pages.sources import unknown


def summary(id: str) -> dict[str, Any]:
    """Return the summary of a topology that runs."""
    return {
        "topology": id,
        "kind": "transactional",
        "status": "running",
        "epoch": 3,
        "txid": 7,
        "rows_per_second": 1200.5,
        "lag_records": 311,
        "rows_total": 84_000,
        "last_failure": None,
        "started_at_s": 1_700_000_000.0,
        "updated_at_s": 1_700_000_060.0,
        "page": None,
        "process": {"host": "host-3", "pid": 4711},
    }


class LiteralSource:
    """Answers for topologies that do not run."""

    title = "literal"

    def __init__(self, *ids: str, url: str = "memory:") -> None:
        self.ids = ids or ("payments",)
        self.version = 1
        self.error: Exception | None = None
        self.commands: list[tuple[str, str, float | None]] = []
        self.url = url

    def ready(self) -> bool:
        self._check(self.ids[0])
        return True

    def topologies(self) -> list[dict[str, Any]]:
        self._check(self.ids[0])
        return [summary(id) for id in self.ids]

    def figures(self, topology: str) -> dict[str, Any]:
        self._check(topology)
        return {
            **summary(topology),
            "phases": {"PROCESSING": 1},
            "adopted": None,
            "restarts": 0,
            "failures_total": 0,
            "attempts_failed": {},
            "partitions": [],
            "partitions_total": 0,
            "components": [],
            "latency": {},
            "states": [
                {"state": "count.state", "url": self.url, "table": "counts", "kind": "opaque"}
            ],
            "trees": None,
        }

    def txids(self, topology: str, last: int) -> list[dict[str, Any]]:
        self._check(topology)
        return [{"txid": txid, "rows": 3, "attempts": []} for txid in range(1, 9)][-last:]

    def failures(self, topology: str, last: int) -> list[dict[str, Any]]:
        self._check(topology)
        return []

    def history(self, topology: str) -> list[dict[str, Any]]:
        self._check(topology)
        return []

    def graph(self, topology: str) -> dict[str, Any]:
        self._check(topology)
        return {"components": [], "edges": [], "svg": "<svg></svg>"}

    def state(self, topology: str, name: str) -> State:
        self._check(topology)
        if name != "count.state":
            raise unknown("state", name, ["count.state"])
        return open_state(self.url, table="counts")

    def changes(self, topology: str, since: int) -> dict[str, Any]:
        self._check(topology)
        figures = self.figures(topology) if since < self.version else None
        return {"version": self.version, "figures": figures, "txids": [], "failures": []}

    def command(self, topology: str, verb: str, wait_s: float | None) -> dict[str, Any]:
        self._check(topology)
        self.commands.append((topology, verb, wait_s))
        return {"answer": {"epoch": 3, "status": "deactivated", "at_s": 1_700_000_061.0}}

    def metrics(self) -> bytes:
        return b"txtopo_committed_txid 7\n"

    def _check(self, topology: str) -> None:
        if self.error is not None:
            raise self.error
        if topology not in self.ids:
            raise unknown("topology", topology, list(self.ids))
