"""What the bytes of a node may be."""

from __future__ import annotations

import json

import pytest

from tests.harness.metadata import of_one
from txtopo.ensemble.nodes import (
    INNER_NODE,
    NodeRecord,
    decode,
    encode,
    metadata_from_json,
    metadata_to_json,
)
from txtopo.errors import CorruptNodeError, SchemaVersionError
from txtopo.metadata import NOT_BEGUN, BatchMetadata, Json, SpoutShare


def test_a_record_names_the_write_that_made_it() -> None:
    assert decode("/a", encode("/a", [1], "client-7")) == NodeRecord([1], "client-7")


def test_a_node_that_only_has_children_has_no_record() -> None:
    assert decode("/batches", INNER_NODE) is None


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"\xff",
        b"null",
        b"[1]",
        b'{"value":1}',
        b'{"schema":"1","write":"a","value":1}',
        b'{"schema":true,"write":"a","value":1}',
        b'{"schema":0,"write":"a","value":1}',
        b'{"schema":1,"value":1}',
        b'{"schema":1,"write":"a"}',
    ],
)
@pytest.mark.row(3)
def test_other_bytes_are_an_error_and_never_empty(data: bytes) -> None:
    with pytest.raises(CorruptNodeError, match=r"node /t/epoch .* .*repair_node") as error:
        decode("/t/epoch", data)

    assert error.value.path == "/t/epoch"


@pytest.mark.row(4)
def test_a_newer_schema_asks_for_an_upgrade() -> None:
    with pytest.raises(SchemaVersionError, match=r"node /t/epoch .* schema 2; .* upgrade txtopo"):
        decode("/t/epoch", b'{"schema":2,"anything":"else"}')


def test_a_batch_without_a_limit_has_none_in_its_node() -> None:
    stored = json.dumps(metadata_to_json(of_one(3, {"0": [0, 2]})))

    assert stored == '{"spouts": {"spout": {"planned": 3, "cut": {"0": [0, 2]}}}}'


@pytest.mark.parametrize("rows_max", [0, 7, [3, 0, 4]])
@pytest.mark.rule("txtopo.pacing", "Rules", 3)
def test_a_limit_is_stored_and_comes_back(rows_max: Json) -> None:
    metadata = of_one(3, pace={"rows_max": {"spout": rows_max}, "credit": 0.5, "at_s": 9.25})

    assert metadata_from_json(1, json.loads(json.dumps(metadata_to_json(metadata)))) == metadata


@pytest.mark.parametrize(
    "pace",
    [None, 5, {}, {"rows_max": 5}, {"rows_max": {"spout": -1}}, {"rows_max": {"spout": [1, "2"]}}],
)
def test_a_limit_that_cannot_be_read_is_never_taken_for_none(pace: Json) -> None:
    with pytest.raises(CorruptNodeError, match="stored metadata of txid 4 cannot be read"):
        metadata_from_json(4, {"spouts": {"spout": {"planned": 3}}, "pace": pace})


@pytest.mark.parametrize(
    "value",
    [
        {"planned": 3, "cut": None},
        {"spouts": [3]},
        {"spouts": {"spout": 3}},
        {"spouts": {"spout": {}}},
        {"spouts": {"spout": {"planned": 3, "absent": 3}}},
        {"spouts": {"spout": {"planned": 3, "more": 3}}},
        {"spouts": {"spout": {"planned": 3, "cut": [0, 2]}}},
        {"spouts": {"spout": {"planned": 3}}, "cut": {"0": [0, 2]}},
    ],
)
def test_metadata_of_another_form_is_never_taken_for_empty(value: Json) -> None:
    with pytest.raises(CorruptNodeError, match="stored metadata of txid 4 cannot be read"):
        metadata_from_json(4, value)


def test_an_absent_spout_comes_back_with_its_newest_plan_and_its_cut() -> None:
    shares = {"ranges": SpoutShare([40, 60], absent=True), "new": NOT_BEGUN}
    metadata = BatchMetadata(shares)

    assert metadata_from_json(1, json.loads(json.dumps(metadata_to_json(metadata)))) == metadata
