"""What a declaration of fields is understood as, and what its errors say to write."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from txtopo.errors import FieldsError
from txtopo.tuples import Field, Fields


@pytest.mark.parametrize(
    ("declaration", "fields"),
    [
        ("word string", [Field("word", "string")]),
        ("word: string", [Field("word", "string")]),
        ("word:STRING", [Field("word", "string")]),
        ("`a, b`string, n\tbigint", [Field("a, b", "string"), Field("n", "long")]),
        ("größe decimal(5, 2), n int", [Field("größe", "decimal(5,2)"), Field("n", "int")]),
    ],
)
def test_a_declaration_is_names_with_types(declaration: str, fields: list[Field]) -> None:
    assert list(Fields(declaration)) == fields


def test_fields_without_any_are_declared_without_a_text() -> None:
    assert list(Fields()) == []
    assert Fields.of([]) == Fields()
    assert repr(Fields()) == "Fields()"


NO_TYPE = "field 'word' has no type; write 'word string'"


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ("word", NO_TYPE),
        (" word ", NO_TYPE),
        ("`word`", NO_TYPE),
        ("word, count long", NO_TYPE),
        ("count long, word", NO_TYPE),
        ("word str", "field 'word' has unknown type 'str'; did you mean 'string'?"),
        ("word strnig", "field 'word' has unknown type 'strnig'; did you mean 'string'?"),
        ("word varchar(20)", "unknown type 'varchar(20)'; did you mean 'string'?"),
        ("n int64", "field 'n' has unknown type 'int64'; did you mean 'long'?"),
        ("words array<string>", "unknown type 'array<string>'; did you mean 'json'?"),
        ("n decimal(50,2)", "'decimal(50,2)'; expected decimal(p,s), with p from 1 to 38"),
        ("", "no fields are declared; got ''; expected 'name type, name type'"),
        ("word string,", "after its last comma; remove that comma"),
        ("word string; n int", "at '; n int'; expected a comma"),
        ("a int, b int, a long", "field names must be distinct; used twice: a; rename one"),
    ],
)
def test_a_declaration_that_cannot_be_read_says_what_to_write(
    declaration: str, message: str
) -> None:
    with pytest.raises(FieldsError) as caught:
        Fields(declaration)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("word", "count"), "got 'word', 'count'; write Fields('word string, count string')"),
        (("word", "count long"), "write Fields('word string, count long')"),
        ((["word", "count"],), "write Fields('word string, count string')"),
        ((["word", 3],), "got 'word', 3; pass one string, with types"),
        (({"word": "string"},), "write Fields(**mapping)"),
        ((3,), "cannot read fields from 3"),
    ],
)
def test_names_in_storms_way_are_answered_with_the_declaration(
    arguments: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(FieldsError) as caught:
        Fields(*arguments)
    assert message in str(caught.value)


def test_the_error_of_a_field_has_its_name() -> None:
    with pytest.raises(FieldsError) as caught:
        Fields("count long, word")
    assert caught.value.field == "word"


def test_an_unknown_field_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(FieldsError, match=r"unknown field 'wrd'; .* did you mean 'word'\?"):
        Fields("word string, n long").select(["wrd"])


def test_a_mark_after_the_type_makes_a_field_required() -> None:
    fields = Fields("user string!, n decimal(9,2) !, more long")

    assert fields.required == ("user", "n")
    assert fields == Fields("user string, n decimal(9,2), more long")
    assert Fields(user="string!").required == ("user",)
    assert pickle.loads(pickle.dumps(fields)).required == fields.required
    assert repr(fields) == "Fields('user string!, n decimal(9,2)!, more long')"
    assert fields.select(["user"]).required == ()
    with pytest.raises(FieldsError, match=r"mark of a required field .*; write 'user string!'"):
        Fields("user! string")
