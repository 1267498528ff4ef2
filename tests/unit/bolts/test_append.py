"""Append keeps each row under the txid of its batch, and no other row under its number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.harness.polling import LIMIT_S
from tests.harness.runs import LOCAL, Storage, run_to_end
from txtopo import Fields, StreamBuilder, Topology, TransactionalTopologyBuilder
from txtopo.bolts import Append
from txtopo.errors import TopologyError, TxtopoError
from txtopo.spouts import MemoryTransactionalSpout
from txtopo.state import StateKind, open_state

ROWS = Fields("n long, text string")
STATE = open_state("memory:")


def numbers(rows: int, fields: Fields = ROWS) -> MemoryTransactionalSpout:
    return MemoryTransactionalSpout(
        {0: [[n, f"row {n}"][: len(fields)] for n in range(rows)]}, fields, 5
    )


def appending(
    storage: Storage,
    tasks: int = 1,
    rows: int = 20,
    fields: Fields = ROWS,
    bolt: Append | None = None,
) -> Topology:
    builder = TransactionalTopologyBuilder("appending", "spout", numbers(rows, fields))
    bolt = bolt or Append(open_state(storage.url, storage.kind), fields)
    builder.set_bolt("outbox", bolt, tasks).shuffle_grouping("spout")
    return builder.build_topology()


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
@pytest.mark.parametrize("tasks", [1, 3])
def test_each_row_has_a_key_of_its_own(kind: StateKind, tasks: int) -> None:
    storage = Storage.in_memory(kind)

    run_to_end(appending(storage, tasks), storage)

    rows = storage.read("outbox")
    assert sorted((batch, row["n"]) for (batch, _), row in rows.items()) == [
        (n // 5 + 1, n) for n in range(20)
    ]


def test_a_value_of_one_column_is_appended_as_it_is() -> None:
    storage = Storage.in_memory()

    run_to_end(appending(storage, 1, 6, Fields("n long")), storage)

    assert storage.read("outbox") == {(1, n + 1): n for n in range(5)} | {(2, 1): 5}


@pytest.mark.parametrize("kind", ["opaque", "transactional"])
def test_in_a_group_each_batch_keeps_its_own_txid(kind: StateKind) -> None:
    storage = Storage.in_memory(kind)
    config = replace(LOCAL, group_txids_max=4, max_spout_pending=4, poll_interval_s=LIMIT_S)

    run_to_end(appending(storage), storage, config)

    assert storage.ledger("outbox").first_txid < storage.ledger("outbox").txid == 4
    assert {key: row["n"] for key, row in storage.read("outbox").items()} == {
        (n // 5 + 1, n % 5 + 1): n for n in range(20)
    }


def test_a_stream_is_appended_to_a_state() -> None:
    storage, streams = Storage.in_memory(), StreamBuilder("streams")
    rows = streams.source("numbers", numbers(7)).filter(lambda row: row["n"] != 3)

    rows.append(open_state(storage.url, table="outbox"), parallelism=2)
    rows.select("n").append(open_state(storage.url), id="others")

    run_to_end(streams.build_topology(), storage)
    kept = [n for n in range(7) if n != 3]
    assert sorted(row["n"] for row in storage.read("outbox").values()) == kept
    assert sorted(storage.read("others").values()) == kept


def append_twice() -> None:
    rows = StreamBuilder("twice").source("numbers", numbers(1))
    rows.append(STATE, id="numbers")


MISTAKES: dict[str, tuple[Callable[[], object], str]] = {
    "a URL": (
        lambda: Append("sqlite:///a.db", ROWS),  # type: ignore[arg-type]
        "the state of an Append is of the wrong type; got 'sqlite:///a.db'",
    ),
    "names": (
        lambda: Append(STATE, "n long"),  # type: ignore[arg-type]
        r"the fields of Append are of the wrong type; got 'n long'; expected e\.g\. Fields",
    ),
    "a log": (
        lambda: Append(open_state("sqlite:///a.db", mode="log"), ROWS),
        "the state of an Append must not be in mode 'log', which is for aggregates",
    ),
    "a column of the key": (
        lambda: Append(STATE, Fields("number int")),
        "has two columns 'number'; rename the key or the value",
    ),
    "other fields": (
        lambda: appending(Storage.in_memory(), bolt=Append(STATE, Fields("n int, text string"))),
        "the rows of Append have other fields; got Fields.* expected Fields",
    ),
    "an id that is taken": (append_twice, "append id 'numbers' is used twice"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_named(mistake: str) -> None:
    make, text = MISTAKES[mistake]

    with pytest.raises(TxtopoError, match=text) as caught:
        make()

    assert isinstance(caught.value, TopologyError)
