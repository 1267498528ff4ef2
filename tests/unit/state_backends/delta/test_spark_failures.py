"""What an error of Spark's during a merge means; texts as Spark and Delta gave them."""

from __future__ import annotations

import pytest

from state_backends.delta.spark import translated_of_spark
from txtopo.errors import StoreContended, UnknownOutcomeError, ValueRefusedError

JAVA = "An error occurred while calling o172.execute.\n: "
WORKER = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed "
    "1 times: org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
    '  File "words.py", line 7, in plain\n'
    "ValueError: no word: None\n"
    "\tat org.apache.spark.api.python.BasePythonRunner"
)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (WORKER, ValueRefusedError, "got ValueError: no word: None; fix what commit does"),
        (
            "org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION] late SQLSTATE: P0001",
            ValueRefusedError,
            "plan failed on its rows; got USER_RAISED_EXCEPTION late; repair",
        ),
        (
            "org.apache.spark.SparkException: [FAILED_EXECUTE_UDF] f (int) SQLSTATE: 39000",
            ValueRefusedError,
            "got FAILED_EXECUTE_UDF f (int); repair",
        ),
        (
            WORKER.replace("ValueError", "txtopo.errors.FailedException"),
            UnknownOutcomeError,
            "the ledger will show",
        ),
        ("x: [ARITHMETIC_OVERFLOW] long overflow SQLSTATE: 22003", ValueRefusedError, "exactly"),
        ("x: txtopo refuses: a key of state s is NULL", ValueRefusedError, "is NULL"),
        ("io.delta.exceptions.ConcurrentAppendException: other", StoreContended, "another writer"),
        (
            "java.io.IOException: no space left",
            UnknownOutcomeError,
            "java.io.IOException: no space",
        ),
        ("org.apache.spark.SparkException: Python worker exited", UnknownOutcomeError, "exited"),
    ],
)
def test_only_what_would_fail_for_ever_is_no_fault_of_the_machines(
    text: str, kind: type[Exception], said: str
) -> None:
    found = translated_of_spark(RuntimeError(JAVA + text), "state 's'")

    assert type(found) is kind
    assert said in str(found)
