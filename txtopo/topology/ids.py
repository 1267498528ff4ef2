"""What an id may look like: it becomes a path in ZooKeeper, a job tag and a default table name."""

from __future__ import annotations

from txtopo.errors import TopologyError

ID_CHARACTERS_MAX = 255


def check_id(what: str, id: object) -> str:
    """Return *id* if it may be the id of a topology, component, stream or state.

    Args:
        what: What the id is for, as the message shall call it.
        id: The id.

    Raises:
        TopologyError: It may not; choose another.
    """
    if not isinstance(id, str):
        raise TopologyError(f"{what} id is of the wrong type; got {id!r}; expected a string", id=id)
    fault = _fault(id)
    if fault:
        shown = repr(id) if len(id) <= ID_CHARACTERS_MAX else f"{id[:40]!r}…"
        raise TopologyError(
            f"{what} id {fault}; got {shown}; expected 1 to {ID_CHARACTERS_MAX} characters without "
            "'/', '..' and control characters that do not start with '__'; rename it",
            id=id,
        )
    return id


def _fault(id: str) -> str | None:
    if not id.strip():
        return "is empty"
    if len(id) > ID_CHARACTERS_MAX:
        return f"is too long, {len(id)} characters"
    if "/" in id:
        return "has a '/'"
    if ".." in id or id == ".":
        return "has a '..'" if ".." in id else "is '.'"
    if id.startswith("__"):
        return "starts with '__', which is reserved"
    # ZooKeeper refuses control characters and surrogates in a path.
    if any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xF900 for c in id):
        return "has a NUL or another control character"
    # It counts in UTF-16, where signs beyond these are made of surrogates.
    if any(ord(c) >= 0xFFF0 for c in id):
        return "has a sign beyond U+FFEF, such as an emoji"
    return None
