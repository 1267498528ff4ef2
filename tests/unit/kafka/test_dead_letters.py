"""Records of Kafka that cannot be decoded become dead letters with their offset and key."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from tests.harness.runs import Storage, run_to_end
from tests.harness.servers.kafka import KafkaBroker
from tests.unit.kafka.logs import Log
from tests.unit.kafka.test_decoding import Record
from txtopo import (
    Fields,
    PersistentAggregate,
    Sum,
    TooManyDeadLetters,
    TransactionalTopologyBuilder,
    open_state,
)
from txtopo.collector import BatchOutputCollector
from txtopo.errors import EmitError
from txtopo.kafka.reading import RecordColumns
from txtopo.tuples import Stream

AMOUNTS = Fields("amount long")


class Taken:
    """What records become: rows and dead letters, by the collector of a spout."""

    def __init__(self, columns: RecordColumns, dead_letters_max: int | None = 100) -> None:
        self.columns = columns
        self.batches: list[Any] = []
        self.letters: list[Any] = []
        streams = {"default": Stream(columns.fields())}
        self.collector = BatchOutputCollector(
            "spout", streams, self._rows, lambda _, b: self.batches.append(b), dead_letters_max
        )

    def emit(self, *records: Record) -> list[Any]:
        schema = self.columns.fields().arrow_schema()
        self.columns.emit(cast(Any, list(records)), schema, self.collector)
        self.collector.close()
        return [row for batch in self.batches for row in batch.to_pylist()]

    def _rows(self, stream: str, rows: list[Any], targets: Any) -> None:
        assert stream == "dead_letters"
        self.letters += rows


def values(*data: bytes | None) -> list[Record]:
    return [Record(each, at, name=f"k{at}".encode()) for at, each in enumerate(data, 40)]


def test_the_good_records_go_on_in_order_as_one_batch() -> None:
    taken = Taken(RecordColumns(("offset", "value"), value=AMOUNTS))
    bad = [b"{", b'{"amount": "x"}', b"", b"7", b'{"amount": 1} {"amount": 2}', b"\xff"]
    data: list[bytes | None] = [b'{"amount": %d}' % n for n in range(1000)]
    for at, each in enumerate(bad):
        data[at * 150 + at] = each
    data[999] = None

    rows = taken.emit(*values(*data))

    assert len(taken.batches) == 1
    good = [n for n in range(999) if data[n] not in bad]
    assert [row["offset"] - 40 for row in rows] == [*good, 999]
    assert [row["amount"] for row in rows] == [*good, None]
    places = [json.loads(letter[3]) for letter in taken.letters]
    assert [data[place["offset"] - 40] for place in places] == bad
    assert places[0] == {"topic": "words", "partition": 3, "offset": 40, "key": "k40"}
    assert [letter[5] for letter in taken.letters] == ["text"] * 5 + ["base64"]
    assert "record at offset 191 of partition 3 of topic 'words'" in taken.letters[1][2]


@pytest.mark.parametrize(
    ("columns", "record"),
    [
        (RecordColumns(("key",), key="string"), Record(b"a", name=b"\xff")),
        (RecordColumns(("value",), value="string"), Record(b"\xff", name=b"k")),
        (RecordColumns(("timestamp",)), Record(b"a", stamp=(1, 2**62))),
    ],
    ids=["key", "value", "timestamp"],
)
def test_each_column_that_cannot_be_decoded_makes_one_dead_letter(
    columns: RecordColumns, record: Record
) -> None:
    taken = Taken(columns)

    rows = taken.emit(record, Record(b"good", 1, name=b"good"))

    assert len(rows) == len(taken.letters) == 1
    key = json.loads(taken.letters[0][3]).get("key")
    assert key == ({"base64": "/w=="} if record.name == b"\xff" else record.name and "k")


def test_a_record_without_a_required_field_is_a_dead_letter() -> None:
    """A tombstone has no field at all."""
    taken = Taken(RecordColumns(("value",), value=Fields("user string!, amount long")))
    given = [b'{"user": "a"}', b'{"usr": "b"}', b'{"user": null}', None, b'{"user": ""}']

    assert [row["user"] for row in taken.emit(*values(*given))] == ["a", ""]
    assert [json.loads(letter[3])["offset"] for letter in taken.letters] == [41, 42, 43]
    assert all("'user' is NULL or missing" in letter[2] for letter in taken.letters)


def test_no_good_record_emits_nothing() -> None:
    taken = Taken(RecordColumns(("value",), value=AMOUNTS))

    assert taken.emit(*values(b"x", b"y")) == []
    assert len(taken.letters) == 2


def test_without_dead_letters_the_first_bad_record_is_named() -> None:
    taken = Taken(RecordColumns(("value",), value=AMOUNTS), None)

    with pytest.raises(EmitError, match="the value of the record at offset 41"):
        taken.emit(*values(b"{}", b"x"))


def test_a_topic_of_bad_records_stops_at_the_limit() -> None:
    taken = Taken(RecordColumns(("value",), value=AMOUNTS), 5)

    with pytest.raises(
        TooManyDeadLetters, match=r'got 6 or more; expected at most 5.*"offset": 40'
    ):
        taken.emit(*values(*[b"x"] * 10_000))


@pytest.mark.service("kafka")
@pytest.mark.parametrize("kind", ["transactional", "opaque"])
def test_a_topic_with_bad_records_is_read_to_its_end(kafka: KafkaBroker, kind: str) -> None:
    log, storage = Log(kafka, partitions=2), Storage.in_memory()
    texts = [json.dumps({"amount": n}) if n % 25 else f"bad {n}" for n in range(200)]
    log.write(texts)
    spout: Any = getattr(log, kind)(value=AMOUNTS, columns=("value",), batch_rows_max=30)
    builder = TransactionalTopologyBuilder(
        "kafka", "amounts", spout, 2, dead_letters=open_state(storage.url)
    )
    sums = PersistentAggregate(storage.state("sums"), (), Sum("amount"))
    builder.set_bolt("sums", sums).global_grouping("amounts")

    run_to_end(builder.build_topology(), storage)

    assert list(storage.read("sums").values()) == [sum(n for n in range(200) if n % 25)]
    letters = list(storage.read("dead_letters").values())
    assert {each["record"] for each in letters} == {f"bad {n}" for n in range(0, 200, 25)}
    assert len({each["place"] for each in letters}) == 8
