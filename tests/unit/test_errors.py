"""Each error has its facts by keyword, under known names, and pickles with them."""

from __future__ import annotations

import ast
import pickle
import re
from collections.abc import Iterator
from functools import cache
from inspect import isclass

import pytest

from tests.unit.test_layout import PACKAGES, ROOT, SOURCES, name_of, text_of
from txtopo import errors
from txtopo.errors import TEXT_CHARACTERS_MAX, TxtopoError, ValueRefusedError
from txtopo.stages.user_errors import pickled_error

KINDS = [
    thing for thing in vars(errors).values() if isclass(thing) and issubclass(thing, TxtopoError)
]


@cache
def nodes() -> list[tuple[str, ast.AST]]:
    """Return the classes and the calls of the product, each with its place."""
    return [
        (f"{name_of(path)}:{node.lineno}", node)
        for path in SOURCES
        if name_of(path).startswith(PACKAGES)
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.ClassDef | ast.Call)
    ]


def last_name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def calls_of_errors() -> Iterator[tuple[str, ast.Call]]:
    """Yield the calls of error classes, of those outside ``txtopo/errors.py`` as well."""
    classes = [node for _, node in nodes() if isinstance(node, ast.ClassDef)]
    bases = {node.name: set(map(last_name, node.bases)) for node in classes}
    known = {"TxtopoError"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    for where, node in nodes():
        if isinstance(node, ast.Call) and last_name(node.func) in known:
            yield where, node


@pytest.mark.integration
def test_an_error_whose_message_shows_a_value_has_a_fact() -> None:
    """Whoever handles the error would have to parse the message otherwise, which may change."""
    lacking = [
        where
        for where, call in calls_of_errors()
        if not call.keywords
        and any(isinstance(each, ast.FormattedValue) for each in ast.walk(call))
    ]

    assert not lacking, "give it a fact of docs/reference/errors.md: " + ", ".join(lacking)


@pytest.mark.integration
def test_a_fact_has_a_name_that_is_documented() -> None:
    """The same thing would soon have three names otherwise."""
    page = text_of(ROOT / "docs" / "reference" / "errors.md").partition("## Facts")[2]
    rows = re.findall(r"^\| (`.*?) \|", page.partition("\n## ")[0], re.MULTILINE)
    listed = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    declared = {name for kind in KINDS for name in kind.__annotations__}
    used = {
        keyword.arg: where
        for where, call in calls_of_errors()
        for keyword in call.keywords
        if keyword.arg is not None
    }

    unknown = {name: where for name, where in used.items() if name not in listed | declared}
    assert not unknown, "add a name to docs/reference/errors.md, or use one that is there"
    assert listed <= used.keys(), "docs/reference/errors.md lists facts that no error has"
    assert not listed & declared, "docs/reference/errors.md lists attributes of a class again"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_pickles_with_its_facts(kind: type[TxtopoError]) -> None:
    error = kind("n is wrong; got 3", setting="n", got=3, expected=("1", "2"))

    copy = pickle.loads(pickle.dumps(error))

    assert type(copy) is kind
    assert str(copy) == str(error)
    assert copy.facts == {"setting": "n", "got": 3, "expected": ("1", "2")}
    assert (copy.setting, copy.got, copy.component) == ("n", 3, None)


def test_a_long_fact_is_shortened_as_the_message_is() -> None:
    """An error that is too large for the driver is replaced by one of another kind."""
    long = "é" * 1_000_000
    error = ValueRefusedError(f"cannot store {long}", got=long)

    assert len(str(error.got)) == len(str(error)) < TEXT_CHARACTERS_MAX + 10
    assert type(pickle.loads(pickled_error(error, "counts"))) is ValueRefusedError
