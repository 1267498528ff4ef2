"""What the bytes of a node may be."""

from __future__ import annotations

import json

import pytest

from txtopo.errors import CorruptNodeError, SchemaVersionError
from txtopo.transactional_state.nodes import INNER_NODE, NodeRecord, decode, encode


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


def test_a_node_with_a_token_is_refused_by_who_would_drop_it() -> None:
    """A txtopo before the token reads up to schema 1, and writes the node anew without it."""
    written = json.loads(encode("/epoch", {"epoch": 1}, "client-7"))
    other = json.loads(encode("/current", {"current": 1}, "client-7"))

    assert (written["schema"], other["schema"]) == (2, 1)


@pytest.mark.row(4)
def test_a_newer_schema_asks_for_an_upgrade() -> None:
    with pytest.raises(SchemaVersionError, match=r"node /t/epoch .* schema 3; .* upgrade txtopo"):
        decode("/t/epoch", b'{"schema":3,"anything":"else"}')
