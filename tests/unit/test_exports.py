"""The public names, and that importing them needs no third party."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "txtopo",
    "txtopo.bolts",
    "txtopo.builders",
    "txtopo.operations",
    "txtopo.plugins.stores",
    "txtopo.spouts",
    "txtopo.state",
    "txtopo.topology",
    "txtopo.transactional_state",
]


@pytest.mark.parametrize("package", [*PACKAGES, "txtopo.testing", "txtopo.testing.conformance"])
def test_all_names_are_sorted_and_there(package: str) -> None:
    module = importlib.import_module(package)

    assert list(module.__all__) == sorted(module.__all__)
    assert all(hasattr(module, name) for name in module.__all__)


def test_an_import_pulls_in_no_third_party() -> None:
    code = (
        f"import sys; before = set(sys.modules); import {', '.join(PACKAGES)}; "
        "new = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(new - set(sys.stdlib_module_names) - {'txtopo'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"


def test_only_the_conformance_suites_need_pytest() -> None:
    suites = ROOT / "txtopo" / "testing" / "conformance"

    needs = {
        path.parent
        for path in (ROOT / "txtopo").rglob("*.py")
        if re.search(r"^\s*(?:import|from) pytest\b", path.read_text(), re.MULTILINE)
    }
    assert needs == {suites}


def test_the_names_of_the_first_example_are_there() -> None:
    names = (
        "TransactionalTopologyBuilder Config Fields Stream Tuple TransactionAttempt BasicBolt "
        "BatchBolt ArrowBolt DataFrameBolt Committer PersistentAggregate FailedException"
    )

    assert set(names.split()) <= set(importlib.import_module("txtopo").__all__)


def test_the_face_of_states_is_what_users_need() -> None:
    names = (
        "Aggregate Count CountDistinct First FrameStateHandle FrameTransaction Last Ledger Max "
        "Mean Min OwnAggregate State StateHandle StateKind StateMode StateReader StateTransaction "
        "Sum TopN open_state register_backend"
    )

    assert set(importlib.import_module("txtopo.state").__all__) == set(names.split())


def test_the_face_of_stores_is_what_their_authors_need() -> None:
    names = (
        "Aggregate AnchoredFactory BackendFactory BackingMap Claim ComparesAndPuts Contents Field "
        "Fields FrameBackend FrameFactory FrameWrites Key LEDGER_SCHEMA Ledger MapFactory Merges "
        "NamingFactory OpaqueMap Owner Puts Row RowBackend RowText Snapshot Standing StateBackend "
        "StateKind StateMode StateTable TransactionAttempt TransactionalMap Values Writes "
        "backing_map_factory changed_rows checked_partials claimed combines_in_store declaration "
        "final_values listed_states log_rows mean_names parsed_declaration redacted_url "
        "register_backend standing written_keys"
    )

    assert set(importlib.import_module("txtopo.plugins.stores").__all__) == set(names.split())
