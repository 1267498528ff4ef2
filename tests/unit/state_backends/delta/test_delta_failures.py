"""What delta-rs and Spark say, sorted into what passes and what lasts."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from deltalake import exceptions
from deltalake.exceptions import (
    CommitFailedError,
    DeltaError,
    DeltaProtocolError,
    SchemaMismatchError,
    TableNotFoundError,
)

from state_backends.delta.failures import translated
from state_backends.delta.spark import translated_of_spark
from txtopo.errors import (
    AuthError,
    LedgerGapError,
    PromiseError,
    SchemaDrift,
    StoreContended,
    StoreDamagedError,
    StoreUnavailable,
    TxtopoError,
    UnknownOutcomeError,
    ValueRefusedError,
)

ROWS: list[tuple[Exception, type[TxtopoError], type[TxtopoError]]] = [
    # What was said, what it is at a reading, what it is at a write.
    (OSError("cannot open x (os error 13)"), AuthError, AuthError),
    (OSError("Read-only file system (os error 30)"), AuthError, AuthError),
    (PermissionError(13, "no"), AuthError, AuthError),
    (DeltaError("status code: 403 Forbidden: <Code>AccessDenied"), AuthError, AuthError),
    (OSError("No space left on device (os error 28)"), StoreUnavailable, UnknownOutcomeError),
    (OSError("Connection refused (os error 111)"), StoreUnavailable, UnknownOutcomeError),
    (OSError("503 Service Unavailable: SlowDown"), StoreUnavailable, UnknownOutcomeError),
    (OSError("Input/output error (os error 5)"), PromiseError, PromiseError),
    (OSError("<Code>NoSuchBucket</Code>"), PromiseError, PromiseError),
    # Of our own sync: the version is there, and the ledger says so.
    (OSError(5, "Input/output error"), PromiseError, UnknownOutcomeError),
    (SchemaMismatchError("other columns"), SchemaDrift, SchemaDrift),
    (DeltaProtocolError("reader version 9"), PromiseError, PromiseError),
    (TableNotFoundError("no log files"), LedgerGapError, LedgerGapError),
    (CommitFailedError("a concurrent transaction"), StoreUnavailable, StoreContended),
    (DeltaError("Invalid JSON in log"), StoreDamagedError, StoreDamagedError),
    (DeltaError("Kernel error: Json error: non-UTF-8 data"), StoreDamagedError, StoreDamagedError),
    (json.JSONDecodeError("Expecting value", "x", 0), StoreDamagedError, StoreDamagedError),
    (ValueError("invalid literal for int()"), StoreDamagedError, StoreDamagedError),
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no"), StoreDamagedError, StoreDamagedError),
    (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), ValueRefusedError, ValueRefusedError),
    (pa.ArrowInvalid("of next year"), StoreUnavailable, UnknownOutcomeError),
    (DeltaError("Cast error: 9"), ValueRefusedError, ValueRefusedError),
    (DeltaError("of next year"), StoreUnavailable, UnknownOutcomeError),
]


@pytest.mark.parametrize(("error", "reading", "writing"), ROWS)
def test_what_delta_rs_says_is_sorted(
    error: Exception, reading: type[TxtopoError], writing: type[TxtopoError]
) -> None:
    assert type(translated(error, "state 's'", uri="/x")) is reading
    assert type(translated(error, "state 's'", uri="/x", writing=True)) is writing


def test_a_path_is_no_reason() -> None:
    uri = "/data/AccessDenied"
    found = translated(DeltaError(f"Generic error at {uri}: lost"), "state 's'", uri=uri)

    assert type(found) is StoreUnavailable


def test_each_class_of_delta_rs_has_a_row() -> None:
    classes = {
        kind
        for kind in vars(exceptions).values()
        if isinstance(kind, type) and issubclass(kind, DeltaError)
    }

    assert classes == {type(error) for error, _, _ in ROWS if isinstance(error, DeltaError)}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("java.nio.file.AccessDeniedException: /x: Permission denied", AuthError),
        ("java.nio.file.FileSystemException: /x: Read-only file system", AuthError),
        (
            "org.apache.hadoop.security.AccessControlException: Permission denied: user=a",
            AuthError,
        ),
        (
            "com.amazonaws.services.s3.model.AmazonS3Exception: Forbidden (Status Code: 403; Er",
            AuthError,
        ),
        ("[INSUFFICIENT_PERMISSIONS] no SQLSTATE: 42501", AuthError),
        ("[DELTA_MERGE_UNRESOLVED_EXPRESSION] no v SQLSTATE: 42601", SchemaDrift),
        ("[DELTA_UNSUPPORTED_FEATURE] no SQLSTATE: 0A000", SchemaDrift),
        ("java.io.IOException: Input/output error", PromiseError),
        ("java.io.IOException: No space left on device", UnknownOutcomeError),
        ("java.io.FileNotFoundException: /x", UnknownOutcomeError),
        ("org.apache.spark.SparkException: Job aborted: executor lost", UnknownOutcomeError),
    ],
)
def test_what_spark_says_is_sorted(text: str, kind: type[TxtopoError]) -> None:
    said = f"An error occurred while calling o1.execute.\n: {text}\n\tat a.B.c(D.java:1)"

    assert type(translated_of_spark(RuntimeError(said), "state 's'")) is kind
