"""What it means that a plan of the user's failed: their mistake, their wish, or lost machines."""

from __future__ import annotations

import re

from txtopo.errors import BoltError, FailedException, RunLostError, TxtopoError
from txtopo.runtime.spark_failures import failure_of_job

# Data exceptions, failed functions of the user's, raise_error: SQLSTATE classes 22, 38, 39, P0.
_OF_THE_DATA = re.compile(r"\[([A-Z][A-Z0-9_.]+)\] ([^\n]*?) ?SQLSTATE: (?:22|38|39|P0)\w{3}")
_FAILED = re.compile(r"^(?:txtopo\.errors\.)?FailedException: (.*)$", re.M)
_IN_A_JOB = ("Job aborted", "cancelled")
_TEXT_MAX = 2000


def failure_of_plan(error: Exception, component: str, *, computing: bool) -> Exception | None:
    """Return what failed the batch, or None if the machines did and the job may be tried again.

    Args:
        error: What was raised in the driver.
        component: Whose plan it was.
        computing: Whether the plan was being computed; else it was being made, in user code.
    """
    text = str(error)
    if isinstance(error, TxtopoError):
        return None if isinstance(error, RunLostError) else error
    wish = _FAILED.search(text)
    if wish is not None:
        return FailedException(wish.group(1))
    if not computing and not any(sign in text for sign in _IN_A_JOB):
        return error
    found = _OF_THE_DATA.search(text)
    if found is not None:
        return BoltError(
            f"the plan of {component!r} failed on its rows; got {found.group(1)}: "
            f"{found.group(2)}; mend the plan, or filter such rows",
            component=component,
            condition=found.group(1),
        )
    meaning = failure_of_job(error, component)
    if not isinstance(meaning, BoltError):
        return None
    last = text.strip().splitlines()
    raised = next((line for line in reversed(last) if re.match(r"\w[\w.]*(Error|Exc)", line)), "")
    return BoltError(
        f"a function in the plan of {component!r} failed in a worker; got {raised or last[0]:.300}",
        component=component,
        text=text[-_TEXT_MAX:],
    )
