"""In which order a sink takes over, with a producer that only notes what it is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from txtopo.bolts import KafkaSink
from txtopo.kafka.sink import LedgerTopic, PublishedRecords


class Noting:
    """A producer whose records get offset 41."""

    calls: ClassVar[list[str]] = []

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.delivered: list[Callable[[None, Any], None]] = []

    def init_transactions(self, timeout_s: float) -> None:
        self.calls.append("init_transactions")

    def begin_transaction(self) -> None:
        self.calls.append("begin")

    def produce(self, topic: str, *, on_delivery: Callable[[None, Any], None], **_: Any) -> None:
        self.calls.append(f"produce to {topic}")
        self.delivered.append(on_delivery)

    def flush(self, timeout_s: float) -> None:
        for tell in self.delivered:
            tell(None, SimpleNamespace(offset=lambda: 41))

    def commit_transaction(self, timeout_s: float) -> None:
        self.calls.append("commit")


@pytest.mark.rule("txtopo.kafka.sink", "Rules", 2)
def test_the_ledger_is_read_up_to_a_record_that_was_written_after_the_fence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ledger that its predecessor has committed may become visible a little later."""
    monkeypatch.setattr("confluent_kafka.Producer", Noting)
    monkeypatch.setattr(Noting, "calls", [])
    note = Noting.calls.append
    monkeypatch.setattr(LedgerTopic, "read", lambda self, bound: note(f"read to {bound}"))
    backend = KafkaSink("127.0.0.1:1", "words").state.open()
    assert isinstance(backend, PublishedRecords)

    backend._taken_over()

    ledger = "produce to words.txtopo-ledger"
    assert Noting.calls == ["init_transactions", "begin", ledger, "commit", "read to 41"]
