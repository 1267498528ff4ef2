"""What an error of a disk, a file system or the network means, by its errno.

For all that reads and writes files: spouts of files, tables of Delta. What is not in the table
passes, and so does a file that is missing, for whoever does not know that it must be there.
"""

from __future__ import annotations

import errno
import re
from enum import Enum

from txtopo.errors import AuthError, InfrastructureError, PromiseError, TxtopoError


class Meaning(Enum):
    """What an error leads to."""

    PASSES = "passes"
    """The disk is full, or something is away or busy: tried again, for as long as it takes."""
    REFUSED = "refused"
    """No right to it, or a file system that is read-only. Somebody may be changing rights; to go
    on trying would look like a run that works, and a start is all it takes afterwards."""
    LASTS = "lasts"
    """The disk fails, or the path can be none."""


ERRNOS = {
    "EACCES": Meaning.REFUSED,
    "EPERM": Meaning.REFUSED,
    "EROFS": Meaning.REFUSED,
    "EFBIG": Meaning.LASTS,
    "EILSEQ": Meaning.LASTS,
    "EINVAL": Meaning.LASTS,
    "EIO": Meaning.LASTS,
    "EISDIR": Meaning.LASTS,
    "ELOOP": Meaning.LASTS,
    "EMLINK": Meaning.LASTS,
    "ENAMETOOLONG": Meaning.LASTS,
    "ENODEV": Meaning.LASTS,
    "ENOSYS": Meaning.LASTS,
    "ENOTDIR": Meaning.LASTS,
    "ENOTSUP": Meaning.LASTS,
    "ENXIO": Meaning.LASTS,
    "EUCLEAN": Meaning.LASTS,
} | dict.fromkeys(
    (
        *("EAGAIN", "EBUSY", "ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EDEADLK", "EDQUOT"),
        *("EHOSTDOWN", "EHOSTUNREACH", "EINTR", "EMFILE", "ENETDOWN", "ENETRESET", "ENETUNREACH"),
        *("ENFILE", "ENOBUFS", "ENOENT", "ENOLCK", "ENOMEM", "ENOSPC", "ENOTCONN", "EPIPE"),
        *("EREMOTEIO", "ESTALE", "ETIMEDOUT", "ETXTBSY"),
    ),
    Meaning.PASSES,
)
"""The meaning of errnos, by their names."""

# Libraries in Rust, C++ and Java say it in the text.
_IN_TEXT = re.compile(r"\(os error (\d+)\)|\bcode: (\d+), kind|\[errno (\d+)\]|\[Errno (\d+)\]")
_WORDS = (
    (re.compile(r"Permission denied|AccessDenied|AccessControlException"), Meaning.REFUSED),
    (re.compile(r"Read-only file system"), Meaning.REFUSED),
    # What object stores answer.
    (re.compile(r"\b40[13] (?:Forbidden|Unauthorized)\b|HTTP status 40[13]\b"), Meaning.REFUSED),
    (re.compile(r"Status Code: 40[13]\b|ACCESS_DENIED"), Meaning.REFUSED),
    (
        re.compile(
            r"\b(?:InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|InvalidToken"
            r"|AuthenticationFailed|AuthorizationFailure)\b"
        ),
        Meaning.REFUSED,
    ),
    (re.compile(r"\b(?:NoSuchBucket|NO_SUCH_BUCKET|ContainerNotFound)\b"), Meaning.LASTS),
    (re.compile(r"Input/output error"), Meaning.LASTS),
)


# What readers of Parquet and of compressed files say as an OSError without a number.
_CORRUPT = re.compile(r"[Cc]orrupt|deserialize thrift|Truncated compressed")


def number_in(text: str) -> int | None:
    """Return the errno that a message names, if it does."""
    found = _IN_TEXT.search(text)
    return None if found is None else int(next(each for each in found.groups() if each))


def meaning_of(number: int | None, text: str = "") -> Meaning:
    """Return what an errno means, or where there is none, the words of a message."""
    if number is not None:
        return ERRNOS.get(errno.errorcode.get(number, ""), Meaning.PASSES)
    return next((each for words, each in _WORDS if words.search(text)), Meaning.PASSES)


def meaning_of_error(error: BaseException) -> Meaning:
    """Return what an ``OSError`` means, or what a library made of one."""
    number = error.errno if isinstance(error, OSError) else None
    text = str(error)
    if number is None and _CORRUPT.search(text):
        return Meaning.LASTS
    return meaning_of(number_in(text) if number is None else number, text)


def failure(doing: str, error: Exception) -> TxtopoError:
    """Return the error for something that could not be done to a file, such as ``read 'x'``."""
    match meaning_of_error(error):
        case Meaning.REFUSED:
            return AuthError(
                f"may not {doing}: {error}; check the rights to it, the credentials, and whether "
                "its file system is read-only"
            )
        case Meaning.LASTS:
            return PromiseError(f"cannot {doing}, now or later: {error}; look at its disk or path")
        case Meaning.PASSES:
            return InfrastructureError(f"cannot {doing}: {error}")
