"""Register the tests of each bad input, give the reason where there is none, and write the page.

A number is *tested*, by tests of this folder or of others. It is tested *in part* if something of
it belongs to a component that does not exist yet. Else it is *open*.
``python -m tests.faults.bad_inputs.numbers`` writes the page ``docs/proof/bad-inputs.md``.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from tests.faults.bad_inputs.inputs import INPUTS
from tests.harness.report_page import DOCS, table, write_page

PAGE = DOCS / "proof" / "bad-inputs.md"
Test = TypeVar("Test", bound=Callable[..., Any])

_BUILDERS = "tests/unit/builders/test_mistakes.py::test_"
_BOLTS = "tests/unit/builders/test_bolt_mistakes.py::test_"
_PROTOTYPES = "tests/unit/builders/test_prototypes.py::test_"
_ZOOKEEPER = "tests/unit/ensemble/test_zookeeper.py::test_"
_EMBEDDED = "tests/unit/ensemble/test_embedded.py::test_"
_DELTA = "tests/unit/state_backends/delta/test_delta_table.py::test_"
_EXISTING = "tests/unit/state_backends/existing_suite.py::ExistingSuite::test_"
_MARIADB = "tests/unit/state_backends/test_existing.py::TestMariadb::test_"
_LOSS = "tests/unit/kafka/test_loss.py::test_"
_DATA_SOURCE = "tests/unit/sources/test_data_source.py::test_"
_REWIND = "tests/unit/operations/test_rewind.py::test_"
_YAML = "tests/unit/yaml/test_loading.py::test_"
_BAD_YAML = (
    "tests/unit/command/test_verbs.py::"
    "test_a_bad_yaml_file_or_pace_is_refused_in_a_line_that_says_where"
)
_PACED = "tests/unit/runtime/test_paced_runs.py::test_"
_RUN_VERBS = "tests/services/integration/test_run_verbs.py::test_"
_FENCE = "txtopo/testing/conformance/ledger_suites.py::FenceSuite::test_"
_SCHEMA = "tests/unit/state_backends/schema_suite.py::SchemaSuite::test_"

ELSEWHERE: dict[int, tuple[str, ...]] = {
    1: (f"{_BUILDERS}1_no_spout", f"{_BUILDERS}1_a_bolt_is_no_spout"),
    2: (f"{_BUILDERS}2_a_spout_without_bolts_is_warned_of",),
    3: (f"{_BUILDERS}3_duplicate_id",),
    4: (f"{_BUILDERS}4_unknown_source_suggests_the_nearest",),
    5: (f"{_BUILDERS}5_unknown_stream_suggests_the_nearest",),
    6: (f"{_BUILDERS}6_grouping_on_an_undeclared_field",),
    7: (f"{_BUILDERS}7_cycle",),
    8: (f"{_BUILDERS}8_bad_ids", f"{_BUILDERS}8_an_id_that_is_no_string"),
    9: (f"{_BUILDERS}9_bad_parallelism",),
    10: (f"{_BUILDERS}10_max_spout_pending_below_one",),
    11: (f"{_BOLTS}11_a_basic_bolt_cannot_be_a_committer",),
    12: (f"{_BUILDERS}12_no_committer_is_warned_of",),
    13: ("tests/unit/builders/test_state_mistakes.py::test_13_two_committers_on_one_table",),
    14: (
        f"{_BOLTS}14_a_class_instead_of_an_instance",
        f"{_BOLTS}14_a_missing_method_of_an_object_that_is_no_bolt",
        f"{_BOLTS}14_a_missing_abstract_method",
    ),
    19: (
        "tests/unit/stages/test_stage.py::test_what_a_bolt_sets_on_itself_is_gone_after_the_batch",
    ),
    21: (f"{_PROTOTYPES}21_an_unpicklable_attribute_is_named_by_its_path",),
    22: (f"{_PROTOTYPES}22_a_session_and_a_dataframe_live_in_the_driver_only",),
    23: (
        f"{_PROTOTYPES}23_a_class_of_the_main_module_travels_by_value",
        "tests/unit/stages/test_missing_modules.py::test_23_a_missing_module_says_what_to_ship_and_how",
    ),
    24: (f"{_PROTOTYPES}24_a_large_bolt_is_warned_of",),
    37: (
        f"{_ZOOKEEPER}nodes_of_another_user_are_refused_with_path_and_scheme",
        f"{_ZOOKEEPER}a_step_that_touches_a_forbidden_node_is_refused",
        "tests/unit/ensemble/test_refused_credentials.py::"
        "test_refused_credentials_are_not_tried_again",
    ),
    46: (
        f"{_EMBEDDED}a_directory_that_cannot_be_made_is_refused",
        f"{_EMBEDDED}a_port_that_a_stranger_took_is_left_to_it",
        "tests/unit/ensemble/test_opening.py::test_embedded_without_a_jvm_names_the_ways_out",
    ),
    53: (
        f"{_SCHEMA}a_lost_table_is_not_recreated",
        "tests/unit/state_backends/test_sqlite.py::test_a_reading_of_no_file_makes_none",
        f"{_EXISTING}a_table_that_is_not_there_is_refused",
    ),
    54: (f"{_EXISTING}a_table_that_cannot_hold_the_state_is_refused_with_the_reason",),
    55: (f"{_EXISTING}a_view_is_refused",),
    57: (
        "tests/unit/state_backends/test_mariadb_server.py::test_a_table_of_another_engine_is_refused",
        f"{_MARIADB}a_table_without_transactions_is_refused",
    ),
    59: ("tests/unit/state_backends/test_sqlite.py::test_a_file_in_memory_is_refused",),
    65: (f"{_FENCE}of_two_attempts_at_once_the_newer_one_stays",),
    66: (f"{_DELTA}properties_that_break_the_promise_are_refused",),
    67: (f"{_DELTA}a_table_of_another_topology_is_refused",),
    69: (f"{_LOSS}a_topic_that_is_missing_at_the_start_is_named",),
    70: (
        f"{_LOSS}a_range_beyond_the_log_is_an_error_in_bounded_time",
        f"{_LOSS}deleted_records_stop_a_transactional_spout",
    ),
    71: (
        "tests/unit/kafka/test_batches.py::"
        "test_a_start_that_depends_on_the_time_is_durable_before_records_come",
    ),
    73: (f"{_DATA_SOURCE}a_reader_without_partitions_is_refused_at_the_start",),
    74: (f"{_DATA_SOURCE}a_simple_reader_that_has_rows_and_does_not_advance_is_told",),
    75: (f"{_DATA_SOURCE}a_reader_that_begins_again_in_each_process_reads_nothing_twice",),
    79: (f"{_YAML}a_mistake_is_refused_with_its_place", _BAD_YAML),
    80: (f"{_YAML}a_mistake_is_refused_with_its_place", _BAD_YAML),
    81: (f"{_YAML}a_file_that_is_missing_or_empty_is_refused",),
    82: (f"{_RUN_VERBS}an_unknown_topology_names_the_similar_one",),
    83: (
        f"{_REWIND}further_back_than_a_store_keeps_is_refused_with_its_reason",
        f"{_REWIND}only_committed_txids_before_the_last_can_be_gone_back_to",
    ),
    84: (f"{_RUN_VERBS}a_second_interrupt_drops_the_commit_in_hand",),
    85: (f"{_YAML}a_mistake_is_refused_with_its_place", _BAD_YAML),
    86: (f"{_YAML}a_mistake_is_refused_with_its_place", _BAD_YAML),
    87: (f"{_PACED}settings_that_make_no_sense_are_refused", _BAD_YAML),
    88: (f"{_PACED}settings_that_make_no_sense_are_refused", _BAD_YAML),
    89: (
        f"{_PACED}a_minimum_above_the_limit_of_the_spout_is_refused",
        f"{_PACED}a_minimum_above_what_all_partitions_give_is_refused",
        "tests/unit/kafka/test_batches.py::"
        "test_a_minimum_above_what_all_partitions_give_is_refused",
    ),
    90: ("tests/unit/docker/test_files.py::test_without_a_secret_nothing_starts",),
    91: (
        "tests/unit/kafka/test_positions.py::"
        "test_a_compacted_topic_is_refused_before_anything_is_planned",
    ),
    92: (
        "tests/unit/kafka/test_decoding.py::"
        "test_a_value_that_nobody_could_hold_is_named_with_its_field",
        "tests/unit/sources/test_files_reading.py::"
        "test_a_column_of_parquet_with_other_values_than_its_field_is_named",
        "tests/unit/sources/test_files_reading.py::"
        "test_a_number_beyond_its_range_is_named_and_not_infinite",
        "tests/unit/sources/test_files_reading.py::test_a_line_that_cannot_be_read_is_named",
        "tests/unit/sources/test_bad_values.py::test_a_row_of_a_query_is_named",
    ),
    93: (
        "tests/unit/sources/test_delta.py::test_a_damaged_log_ends_the_run_and_is_named",
        "tests/unit/state_backends/delta/test_delta_failures.py::test_what_delta_rs_says_is_sorted",
    ),
}
"""Tests in other folders, by number."""

OPEN: dict[int, str] = {
    15: "the list has no input with this number",
    48: "kazoo has no public way to ask which timeout was negotiated",
}
"""Why a number has no test."""

REST: dict[int, str] = {
    26: "NULL keys are always rejected; other policies (group, dead letters) do not exist yet",
    31: "MySQL itself was not tested; MariaDB was",
    35: "results too large for the driver as files of the tasks, a later issue",
}
"""What is still open of a number that is tested in part."""

_here: dict[int, dict[str, None]] = {}


def bad_input(*numbers: int) -> Callable[[Test], Test]:
    """Register a test for these bad inputs."""

    def register(test: Test) -> Test:
        place = f"{test.__module__.replace('.', '/')}.py::{test.__qualname__.replace('.', '::')}"
        for number in numbers:
            _here.setdefault(number, {})[place] = None
        return test

    return register


def by_number() -> dict[int, tuple[str, ...]]:
    """Return the tests of each number that has any."""
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        importlib.import_module(f"tests.faults.bad_inputs.{path.stem}")
    numbers = sorted({*ELSEWHERE, *_here})
    return {number: (*ELSEWHERE.get(number, ()), *_by_file(number)) for number in numbers}


def _by_file(number: int) -> list[str]:
    """Return the tests of this folder by file, whatever order the files were imported in."""
    return sorted(_here.get(number, ()), key=lambda test: test.partition("::")[0])


def page() -> Iterator[str]:
    """Yield the page of all bad inputs."""
    tests = by_number()
    inputs, part = len(INPUTS) - 1, len(REST)
    opened = len(OPEN) - 1
    yield from HEAD.splitlines()
    yield ""
    yield f"{inputs} inputs: {len(tests) - part} tested, {part} tested in part, {opened} open."
    yield ""
    yield from table(("number", "input", "response", "test, or what is open"), _rows(tests))


HEAD = """\
# Bad inputs

Each bad input, how txtopo responds, and the test that proves it: the class of the error, its
message, and that nothing was written. Written by `python -m tests.faults.bad_inputs.numbers`; do
not edit."""


def _rows(tests: dict[int, tuple[str, ...]]) -> Iterator[tuple[object, ...]]:
    for number, (given, gets) in INPUTS.items():
        cells = [f"`{test}`" for test in tests.get(number, ())]
        if number in OPEN:
            cells.append(f"open: {OPEN[number]}")
        if number in REST:
            cells.append(f"still open: {REST[number]}")
        yield number, given, gets, "<br>".join(cells)


if __name__ == "__main__":
    # The tests register with the module of this name, which is not the one that runs as a program.
    write_page(PAGE, importlib.import_module("tests.faults.bad_inputs.numbers").page())
