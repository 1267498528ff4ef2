"""Values of a column of type ``json``: what they may be, and the one text that each has.

A column keeps the text, in every store alike: ASCII, one line, names sorted, no blanks. A value
comes back as the very same Python value, so whatever JSON would change on the way is refused.
"""

from __future__ import annotations

import json
import math
from typing import Any

from txtopo.errors import SchemaDrift

_LIMIT = 2**63
# Made once: json.dumps would make one for each text.
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


class NotExactlyJson(Exception):
    """JSON would give the value back as another one."""


def json_text(value: Any) -> str:
    """Return the text of a value.

    Raises:
        TypeError: It is no dict, list, str, int, float, bool or None, or holds something else.
        NotExactlyJson: It is of such types, but JSON cannot hold it.
    """
    try:
        _check(value)
        return _ENCODER.encode(value)
    except RecursionError as error:
        raise NotExactlyJson("it is nested too deep, or holds itself") from error


def json_value(text: str) -> Any:
    """Return the value that has this text.

    Raises:
        SchemaDrift: It has no value; somebody else wrote it.
    """
    try:
        return json.loads(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise SchemaDrift(
            f"a column of json holds something else: {error}; got {text!r:.80}; was it changed by "
            "hand?"
        ) from error


def _check(value: Any) -> None:
    kind = type(value)
    if kind is dict:
        for name, part in value.items():
            if type(name) is not str:
                raise TypeError(f"names in json are text; got {name!r:.100}")
            _check(part)
    elif kind is list:
        for part in value:
            _check(part)
    elif kind is int:
        if not -_LIMIT <= value < _LIMIT:
            raise NotExactlyJson("a whole number in json has 64 bits at most")
    elif kind is float:
        if not math.isfinite(value):
            raise NotExactlyJson("json has no NaN and no infinity")
    elif value is not None and kind not in (str, bool):
        raise TypeError(f"json has no {kind.__name__}; got {value!r:.100}")
