"""Cases of calls to services, carried over from Flink's AsyncWaitOperatorTest and RetryStrategies.

Each row of a case says how the service answers it, try by try:

* ``ok``: with the row's name;
* ``raise``: with a ConnectionError, ``bad`` with a ValueError, ``record`` with RecordFailed;
* ``hang``: not at all.

The last one counts for all further tries.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CallCase:
    """One case.

    Attributes:
        peer: The test of the peer.
        rows: The answers to each row, by try.
        answered: The rows that are answered, in order; None if the batch fails.
        tries: How often each row is asked.
        error: A part of the error of a batch that fails.
        set_aside: The rows that become dead letters.
        retries: The setting.
        listed: The setting ``dead_letters_on``.
    """

    peer: str
    rows: tuple[str, ...]
    answered: tuple[int, ...] | None = None
    tries: tuple[int, ...] = ()
    error: str = ""
    set_aside: tuple[int, ...] = ()
    retries: int = 0
    listed: tuple[type[Exception], ...] = ()


CASES = (
    CallCase("ordered: the answers of all elements", ("ok",) * 6, tuple(range(6)), (1,) * 6),
    CallCase("a user exception fails the job", ("raise",), None, (1,), "ConnectionError"),
    CallCase("completed exceptionally", ("bad",), None, (1,), "ValueError"),
    CallCase("a timeout fails the job", ("hang",), None, (1,), "no answer within 0.01 s"),
    CallCase(
        "a timeout that is handled is ignored",
        ("ok", "hang", "ok"),
        (0, 2),
        (1, 1, 1),
        set_aside=(1,),
        listed=(TimeoutError,),
    ),
    CallCase("a retry that succeeds", ("ok", "raise ok", "ok"), (0, 1, 2), (1, 2, 1), retries=1),
    CallCase(
        "fixed delay: several retries",
        ("raise raise raise ok", "ok"),
        (0, 1),
        (4, 1),
        retries=3,
    ),
    CallCase(
        "retries are exhausted", ("raise raise ok",), None, (2,), "ConnectionError", retries=1
    ),
    CallCase("a retry after a timeout", ("hang ok",), (0,), (2,), retries=1),
    CallCase("a timeout in the last retry", ("raise hang",), None, (2,), "no answer", retries=1),
    CallCase(
        "a predicate on the exception: no retry of what a retry cannot repair",
        ("record", "ok"),
        (1,),
        (1, 1),
        set_aside=(0,),
        retries=5,
    ),
    CallCase(
        "an error that is handled after its retries",
        ("bad", "bad ok"),
        (1,),
        (2, 2),
        set_aside=(0,),
        retries=1,
        listed=(ValueError,),
    ),
    CallCase("an empty batch", (), (), ()),
)
