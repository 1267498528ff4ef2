"""Writes what each promise has as its test: a section of docs/how-to/conformance.md.

It is made from the marks ``proves`` of the suites: ``python -m
tests.unit.testing.conformance.rules_page``.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from tests.harness.report_page import DOCS, table, write_section
from txtopo.testing.conformance import EnsembleRule, MapRule, Rule, SpoutRule
from txtopo.testing.conformance.rules import PROVED

PAGE = DOCS / "how-to" / "conformance.md"
TITLE = "What each promise has as its test"
KINDS: dict[str, type[Enum]] = {
    "a store": Rule,
    "a backing map": MapRule,
    "a spout": SpoutRule,
    "an ensemble": EnsembleRule,
}


def rule_lines() -> Iterator[str]:
    """Yield the section in Markdown: each promise, and its tests."""
    yield "A test that fails names the promise. txtopo's own tests break each promise on purpose,"
    yield "in a plug-in that the suite has to notice there."
    for kind, rules in KINDS.items():
        yield ""
        yield from table((f"promise of {kind}", "its tests"), map(_row, rules))


def _row(rule: Enum) -> tuple[str, str]:
    tests = [name.removeprefix("test_").replace("_", " ") for name in PROVED[rule]]
    return f"`{rule.name}`: {rule.value}", "; ".join(tests)


def main() -> None:
    """Write the section."""
    write_section(PAGE, TITLE, rule_lines(), "")


if __name__ == "__main__":
    main()
