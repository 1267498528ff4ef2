"""What an error of a disk means: by its number, wherever a library puts that."""

from __future__ import annotations

import errno

import pytest

from txtopo.errors import AuthError, InfrastructureError, PromiseError, TxtopoError
from txtopo.state.disk_errors import ERRNOS, DiskMeaning, failure, meaning_of_error

KINDS: dict[DiskMeaning, type[TxtopoError]] = {
    DiskMeaning.PASSES: InfrastructureError,
    DiskMeaning.REFUSED: AuthError,
    DiskMeaning.LASTS: PromiseError,
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
        (OSError("No space left on device (os error 28)"), DiskMeaning.PASSES),
        (OSError("Read-only file system (os error 30)"), DiskMeaning.REFUSED),
        (PermissionError(13, "Permission denied"), DiskMeaning.REFUSED),
        (OSError("Server returned non-2xx status code: 403 Forbidden: no"), DiskMeaning.REFUSED),
        (OSError("AWS Error ACCESS_DENIED during HeadObject"), DiskMeaning.REFUSED),
        (OSError("503 Service Unavailable: SlowDown"), DiskMeaning.PASSES),
        (OSError("<Code>NoSuchBucket</Code>"), DiskMeaning.LASTS),
        (OSError("Couldn't deserialize thrift: TProtocolException"), DiskMeaning.LASTS),
        (OSError("of next year"), DiskMeaning.PASSES),
        (OSError(99_999, "of next year"), DiskMeaning.PASSES),
    ],
)
def test_words_decide_where_there_is_no_number(error: Exception, meaning: DiskMeaning) -> None:
    assert meaning_of_error(error) is meaning
