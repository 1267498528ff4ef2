"""The page on security names only tests that exist, and all tests of this folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.bad_inputs.test_numbers import defined_in

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "reference" / "security.md").read_text()
NAMED = re.compile(r"`(tests/[\w/]+\.py::\w+(?:::\w+)?)`")
# They show that other tests can fail.
_OF_THE_TESTS = {"test_the_canary_dies_when_it_is_read"}


def test_the_named_tests_exist() -> None:
    named = NAMED.findall(PAGE)

    assert len(named) > 40
    for test in named:
        file, _, name = test.partition("::")
        assert name in defined_in(file), test


def test_no_test_of_security_is_left_out() -> None:
    named = set(NAMED.findall(PAGE))
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path == Path(__file__):
            continue
        file = str(path.relative_to(ROOT))
        tests = {name for name in defined_in(file) if name.startswith("test_")} - _OF_THE_TESTS
        left_out = {name for name in tests if f"{file}::{name}" not in named}
        assert left_out <= {"test_a_url_without_secrets_is_shown_as_it_is"}, path


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 7, 9])
def test_each_point_has_a_table(number: int) -> None:
    section = re.split(r"^## ", PAGE, flags=re.MULTILINE)
    (point,) = (part for part in section if part.startswith(f"{number}. "))

    assert NAMED.search(point)


@pytest.mark.integration
def test_a_plug_in_is_loaded_only_for_its_scheme() -> None:
    """Naming a state of one scheme imports the code of that one alone."""
    code = (
        "import sys; from txtopo.state import open_state; open_state('memory:'); "
        "print(*(name for name in sys.modules if name.startswith('state_backends.')))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.split() == ["state_backends.memory"]
