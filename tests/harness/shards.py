"""Parts of a whole for several machines: ``2/6`` is the second of six."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections.abc import Sequence
from typing import TypeVar

Thing = TypeVar("Thing")
Shard = tuple[int, int]
"""Which part of how many, from 1 on."""


def read_shard(text: str) -> Shard:
    """Read ``K/N``, as an argument of a command.

    Raises:
        ArgumentTypeError: It is not a part of a whole.
    """
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None or not 1 <= int(found[1]) <= int(found[2]):
        raise ArgumentTypeError(f"not a part of a whole: {text!r}; expected for instance 2/6")
    return int(found[1]), int(found[2])


def share(things: Sequence[Thing], shard: Shard) -> Sequence[Thing]:
    """Return every N-th thing, from the K-th on; the shards together have each thing once."""
    number, shards = shard
    return things[number - 1 :: shards]
