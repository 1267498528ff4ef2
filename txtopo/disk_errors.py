"""What an error of a disk, a file system or the network means, by its errno.

For spouts that read files and for Delta tables. An error that is not in the table passes. So does a
missing file, unless the caller knows that it must exist.
"""

from __future__ import annotations

import errno
import re

from txtopo.errors import AuthError, ErrorMeaning, InfrastructureError, PromiseError, TxtopoError

ERRNOS = {
    "EACCES": ErrorMeaning.REFUSED,
    "EPERM": ErrorMeaning.REFUSED,
    "EROFS": ErrorMeaning.REFUSED,
    "EFBIG": ErrorMeaning.LASTS,
    "EILSEQ": ErrorMeaning.LASTS,
    "EINVAL": ErrorMeaning.LASTS,
    "EIO": ErrorMeaning.LASTS,
    "EISDIR": ErrorMeaning.LASTS,
    "ELOOP": ErrorMeaning.LASTS,
    "EMLINK": ErrorMeaning.LASTS,
    "ENAMETOOLONG": ErrorMeaning.LASTS,
    "ENODEV": ErrorMeaning.LASTS,
    "ENOSYS": ErrorMeaning.LASTS,
    "ENOTDIR": ErrorMeaning.LASTS,
    "ENOTSUP": ErrorMeaning.LASTS,
    "ENXIO": ErrorMeaning.LASTS,
    "EUCLEAN": ErrorMeaning.LASTS,
} | dict.fromkeys(
    (
        *("EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EDEADLK", "EDQUOT"),
        *("EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EMFILE", "ENETDOWN", "ENETRESET", "ENETUNREACH"),
        *("ENFILE", "ENOBUFS", "ENOENT", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTCONN", "EPIPE"),
        *("EREMOTEIO", "ESTALE", "ETIMEDOUT", "ETXTBSY"),
    ),
    ErrorMeaning.PASSES,
)
"""The meaning of errnos, by their names."""

# Libraries in Rust, C++ and Java have the errno in the message.
_IN_TEXT = re.compile(r"\(os error (\d+)\)|\bcode: (\d+), kind|\[errno (\d+)\]|\[Errno (\d+)\]")
_WORDS = (
    (re.compile(r"Permission denied|AccessDenied|AccessControlException"), ErrorMeaning.REFUSED),
    (re.compile(r"Read-only file system"), ErrorMeaning.REFUSED),
    # Answers of object stores.
    (
        re.compile(r"\b40[13] (?:Forbidden|Unauthorized)\b|HTTP status 40[13]\b"),
        ErrorMeaning.REFUSED,
    ),
    (re.compile(r"Status Code: 40[13]\b|ACCESS_DENIED"), ErrorMeaning.REFUSED),
    (
        re.compile(
            r"\b(?:InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
            r"|AuthenticationFailed|AuthorizationFailure)\b"
        ),
        ErrorMeaning.REFUSED,
    ),
    (re.compile(r"\b(?:NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound)\b"), ErrorMeaning.LASTS),
    (re.compile(r"Input/output error"), ErrorMeaning.LASTS),
)


# Readers of Parquet and of compressed files raise an OSError without a number.
_CORRUPT = re.compile(r"[Cc]orrupt|deserialize thrift|Truncated compressed")


def number_in(text: str) -> int | None:
    """Return the errno in a message, or None."""
    found = _IN_TEXT.search(text)
    return None if found is None else int(next(each for each in found.groups() if each))


def meaning_of(number: int | None, text: str = "") -> ErrorMeaning:
    """Return the meaning of an errno; without one, the meaning of the words in a message."""
    if number is not None:
        return ERRNOS.get(errno.errorcode.get(number, ""), ErrorMeaning.PASSES)
    return next((each for words, each in _WORDS if words.search(text)), ErrorMeaning.PASSES)


def meaning_of_error(error: BaseException) -> ErrorMeaning:
    """Return the meaning of an ``OSError``, or of a library's error that was made from one."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number is None and _CORRUPT.search(text):
        return ErrorMeaning.LASTS
    return meaning_of(number_in(text) if number is None else number, text)


def failure(doing: str, error: Exception) -> TxtopoError:
    """Return the error to raise if *doing* failed, for example ``read 'x'``."""
    match meaning_of_error(error):
        case ErrorMeaning.REFUSED:
            return AuthError(
                f"may not {doing}: {error}; check the rights to it, the credentials, and whether "
                "its file system is read-only",
                got=str(error),
            )
        case ErrorMeaning.LASTS:
            return PromiseError(
                f"cannot {doing}, and a retry will not help: {error}; look at its disk or path",
                got=str(error),
            )
        case _:
            return InfrastructureError(f"cannot {doing}: {error}", got=str(error))
