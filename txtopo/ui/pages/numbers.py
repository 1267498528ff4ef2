"""Numbers in REST answers: a whole number that JavaScript would round is sent as text.

JSON has whole numbers of any size, and so does Python. A browser reads each as a double: beyond
2**53 it silently shows a different number. An id or a sum may be that large, in a key, a value or
the position of a source.
"""

from __future__ import annotations

import json

from starlette.responses import JSONResponse

from txtopo.metadata import Json

LARGEST = 2**53 - 1
"""Number.MAX_SAFE_INTEGER of JavaScript."""


def exact(value: Json) -> Json:
    """Return JSON in which each whole number beyond ``LARGEST`` is text."""
    match value:
        case bool() | str() | None | float():
            return value
        case int():
            return value if -LARGEST <= value <= LARGEST else str(value)
        case dict():
            return {name: exact(part) for name, part in value.items()}
        case list() | tuple():
            return [exact(part) for part in value]
        case _:
            return value


class ExactJson(JSONResponse):
    """A JSON answer whose whole numbers every reader reads exactly."""

    def render(self, content: Json) -> bytes:
        """Return the answer as text."""
        return super().render(exact(content))


def text_of_json(value: Json) -> str:
    """Return JSON on one line, in ASCII, whose whole numbers every reader reads exactly."""
    return json.dumps(exact(value), default=str)
