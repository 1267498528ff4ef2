"""What an error of a disk, a file system or the network means, by its errno.

For all that reads and writes files: spouts of files, tables of Delta. What is not in the table
passes, and so does a file that is missing, for whoever does not know that it must be there.
"""

from __future__ import annotations

import errno
import re
from enum import Enum

from txtopo.errors import AuthError, InfrastructureError, PromiseError, TxtopoError


class DiskMeaning(Enum):
    """What an error leads to."""

    PASSES = "passes"
    """The disk is full, or something is away or busy: tried again, for as long as it takes."""
    REFUSED = "refused"
    """No right to it, or a file system that is read-only. Somebody may be changing rights; to go
    on trying would look like a run that works, and a start is all it takes afterwards."""
    LASTS = "lasts"
    """The disk fails, or the path can be none."""


ERRNOS = {
    "EACCES": DiskMeaning.REFUSED,
    "EPERM": DiskMeaning.REFUSED,
    "EROFS": DiskMeaning.REFUSED,
    "EFBIG": DiskMeaning.LASTS,
    "EILSEQ": DiskMeaning.LASTS,
    "EINVAL": DiskMeaning.LASTS,
    "EIO": DiskMeaning.LASTS,
    "EISDIR": DiskMeaning.LASTS,
    "ELOOP": DiskMeaning.LASTS,
    "EMLINK": DiskMeaning.LASTS,
    "ENAMETOOLONG": DiskMeaning.LASTS,
    "ENODEV": DiskMeaning.LASTS,
    "ENOSYS": DiskMeaning.LASTS,
    "ENOTDIR": DiskMeaning.LASTS,
    "ENOTSUP": DiskMeaning.LASTS,
    "ENXIO": DiskMeaning.LASTS,
    "EUCLEAN": DiskMeaning.LASTS,
} | dict.fromkeys(
    (
        *("EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EDEADLK", "EDQUOT"),
        *("EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EMFILE", "ENETDOWN", "ENETRESET", "ENETUNREACH"),
        *("ENFILE", "ENOBUFS", "ENOENT", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTCONN", "EPIPE"),
        *("EREMOTEIO", "ESTALE", "ETIMEDOUT", "ETXTBSY"),
    ),
    DiskMeaning.PASSES,
)
"""The meaning of errnos, by their names."""

# Libraries in Rust, C++ and Java say it in the text.
_IN_TEXT = re.compile(r"\(os error (\d+)\)|\bcode: (\d+), kind|\[errno (\d+)\]|\[Errno (\d+)\]")
_WORDS = (
    (re.compile(r"Permission denied|AccessDenied|AccessControlException"), DiskMeaning.REFUSED),
    (re.compile(r"Read-only file system"), DiskMeaning.REFUSED),
    # What object stores answer.
    (
        re.compile(r"\b40[13] (?:Forbidden|Unauthorized)\b|HTTP status 40[13]\b"),
        DiskMeaning.REFUSED,
    ),
    (re.compile(r"Status Code: 40[13]\b|ACCESS_DENIED"), DiskMeaning.REFUSED),
    (
        re.compile(
            r"\b(?:InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
            r"|AuthenticationFailed|AuthorizationFailure)\b"
        ),
        DiskMeaning.REFUSED,
    ),
    (re.compile(r"\b(?:NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound)\b"), DiskMeaning.LASTS),
    (re.compile(r"Input/output error"), DiskMeaning.LASTS),
)


# What readers of Parquet and of compressed files say as an OSError without a number.
_CORRUPT = re.compile(r"[Cc]orrupt|deserialize thrift|Truncated compressed")


def number_in(text: str) -> int | None:
    """Return the errno that a message names, if it does."""
    found = _IN_TEXT.search(text)
    return None if found is None else int(next(each for each in found.groups() if each))


def meaning_of(number: int | None, text: str = "") -> DiskMeaning:
    """Return what an errno means, or where there is none, the words of a message."""
    if number is not None:
        return ERRNOS.get(errno.errorcode.get(number, ""), DiskMeaning.PASSES)
    return next((each for words, each in _WORDS if words.search(text)), DiskMeaning.PASSES)


def meaning_of_error(error: BaseException) -> DiskMeaning:
    """Return what an ``OSError`` means, or what a library made of one."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number is None and _CORRUPT.search(text):
        return DiskMeaning.LASTS
    return meaning_of(number_in(text) if number is None else number, text)


def failure(doing: str, error: Exception) -> TxtopoError:
    """Return the error for something that could not be done to a file, such as ``read 'x'``."""
    match meaning_of_error(error):
        case DiskMeaning.REFUSED:
            return AuthError(
                f"may not {doing}: {error}; check the rights to it, the credentials, and whether "
                "its file system is read-only"
            )
        case DiskMeaning.LASTS:
            return PromiseError(f"cannot {doing}, now or later: {error}; look at its disk or path")
        case DiskMeaning.PASSES:
            return InfrastructureError(f"cannot {doing}: {error}")
