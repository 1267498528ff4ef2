"""What an error of a disk means: by its number, wherever a library puts that."""

from __future__ import annotations

import errno

import pytest

from txtopo.disk_errors import ERRNOS, failure, meaning_of_error
from txtopo.errors import AuthError, ErrorMeaning, InfrastructureError, PromiseError, TxtopoError

KINDS: dict[ErrorMeaning, type[TxtopoError]] = {
    ErrorMeaning.PASSES: InfrastructureError,
    ErrorMeaning.REFUSED: AuthError,
    ErrorMeaning.LASTS: PromiseError,
}


@pytest.mark.parametrize("name", sorted(ERRNOS))
def test_an_errno_becomes_what_the_table_says_wherever_it_stands(name: str) -> None:
    number = getattr(errno, name)
    says = (
        OSError(number, "it says"),
        RuntimeError(f"Generic LocalFileSystem error: (os error {number})"),
        RuntimeError(f"Os {{ code: {number}, kind: Other }}"),
        OSError(f"cannot do it. Detail: [errno {number}] it says"),
    )

    for error in says:
        assert type(failure("read 'x'", error)) is KINDS[ERRNOS[name]], error


@pytest.mark.parametrize(
    ("error", "meaning"),
    [
        (OSError("No space left on device (os error 28)"), ErrorMeaning.PASSES),
        (OSError("Read-only file system (os error 30)"), ErrorMeaning.REFUSED),
        (PermissionError(13, "Permission denied"), ErrorMeaning.REFUSED),
        (OSError("Server returned non-2xx status code: 403 Forbidden: no"), ErrorMeaning.REFUSED),
        (OSError("AWS Error ACCESS_DENIED during HeadObject"), ErrorMeaning.REFUSED),
        (OSError("503 Service Unavailable: SlowDown"), ErrorMeaning.PASSES),
        (OSError("<Code>NoSuchBucket</Code>"), ErrorMeaning.LASTS),
        (OSError("Couldn't deserialize thrift: TProtocolException"), ErrorMeaning.LASTS),
        (OSError("of next year"), ErrorMeaning.PASSES),
        (OSError(99_999, "of next year"), ErrorMeaning.PASSES),
    ],
)
def test_words_decide_where_there_is_no_number(error: Exception, meaning: ErrorMeaning) -> None:
    assert meaning_of_error(error) is meaning
