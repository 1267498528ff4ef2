"""BatchMetadata: everything that is stored of a batch, to emit it again.

Spouts
------
All spouts of a topology are in each txid, whether it has one or several. The metadata has the
*share* of each, by its id:

* what its coordinator part *planned*; for a partitioned spout that is the number of partitions;
* its *cut*: where its emitters stopped, by partition. A partition that emitted nothing keeps the
  position of an earlier batch. The cut is unknown until the batch was processed. A spout that plans
  whole batches has none.

A spout that is not ready, or out of reach, is *absent* from the txid: it emits nothing, and its
positions carry forward, in its cut or, if it plans whole batches, in *planned*, which is its newest
plan then. A replay has the same spouts absent. When a batch is cut again, only the opaque spouts
lose their cut: the others repeat what they have cut.

Metadata that does not name a spout is of a time before the spout: it is absent, at its beginning.

Stamp
-----
What the outside said when the batch was planned, for a topology that asks for it:
``{"time": milliseconds since 1970, "tables": {id: version}}``. It is part of the plan: durable
before any commit work, kept when a batch is cut again, and equal in every replay. The time of a
txid is never before that of the previous txid, whatever clocks do. Without lookups there are no
tables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""The type of metadata. Nothing is ever pickled into the transactional state."""


@dataclass(frozen=True, slots=True)
class SpoutShare:
    """What is stored of one spout in a batch.

    Attributes:
        planned: The metadata from the spout's coordinator part (``initialize_transaction``); for a
            partitioned spout the number of partitions. Of a spout that is absent and plans whole
            batches, its newest plan; None if it has not planned any.
        cut: The metadata from the emitters, by partition. None while it is unknown, and for a spout
            whose emitters return none.
        absent: Whether the spout emits nothing in the batch.
    """

    planned: Json = None
    cut: dict[str, Json] | None = None
    absent: bool = False


NOT_BEGUN = SpoutShare(cut={}, absent=True)
"""The share of a spout that stands before its first record."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Everything that is stored of a batch, to emit it again.

    Attributes:
        spouts: The share of each spout, by its id.
        content: The content of the first processed attempt, by spout, or bolt that was answered
            outside, and then by partition or task, as ``[tuples, digest]``
            (:mod:`txtopo.stages.replays`); None if replays are not compared. It is stored beside
            the rest.
        pace: The limit of the batch, as :mod:`txtopo.pacing` stores it; None without one.
        stamp: The planned time and the versions of lookups; None if the topology asks for neither.
    """

    spouts: Mapping[str, SpoutShare] = field(default_factory=dict)
    content: dict[str, dict[str, Json]] | None = None
    pace: dict[str, Json] | None = None
    stamp: dict[str, Json] | None = None

    def of(self, spout: str) -> SpoutShare:
        """Return the share of a spout."""
        return self.spouts.get(spout, NOT_BEGUN)

    def takes_part(self, spout: str) -> bool:
        """Return whether a spout emits something in the batch; it does not if it is absent."""
        return not self.of(spout).absent

    def is_cut(self, cutting: Collection[str]) -> bool:
        """Return whether it is known where the batch ends.

        Args:
            cutting: The spouts whose emitters decide that.
        """
        # The coordinator asks this of each batch in flight at each event: no generator, no call.
        for spout in cutting:
            share = self.spouts.get(spout)
            if share is not None and share.cut is None:
                return False
        return True

    def cut_again(self, repeatable: Collection[str] = ()) -> BatchMetadata:
        """Return the metadata from which an attempt cuts the batch again.

        Args:
            repeatable: The spouts that repeat what they have cut.
        """
        shares = {
            spout: share if spout in repeatable else replace(share, cut=None)
            for spout, share in self.spouts.items()
        }
        return replace(self, spouts=shares)

    def read_for(self, spouts: Iterable[str]) -> BatchMetadata:
        """Return the metadata as a topology with these spouts reads it.

        What it has of a spout that the topology does not have is left out.
        """
        shares = {spout: self.of(spout) for spout in spouts}
        content = None
        if self.content is not None:
            kept = self.content.items()
            content = {id: parts for id, parts in kept if id in shares or id not in self.spouts}
        return replace(self, spouts=shares, content=content)


def json_flaw(value: object) -> str | None:
    """Return why *value* would not survive JSON unchanged; None if it would.

    A key that is a number would come back as a string; the spout would not find it, and start from
    the beginning. (A tuple comes back as a list, which does no harm.)
    """
    try:
        json_copy(value)
    except ValueError as error:
        return str(error)
    return None


def json_copy(value: object) -> Json:
    """Return a copy of *value*, as JSON would give it back.

    It is called for each partition of each batch, and several times for all partitions together.
    Most positions are a number or a few, and those are copied without JSON.

    Raises:
        ValueError: JSON would not give it back unchanged; the text says why, see :func:`json_flaw`.
    """
    kind = type(value)
    if kind in _ATOMS:
        return value  # type: ignore[return-value]
    if kind is list and _ATOMS.issuperset(map(type, value)):  # type: ignore[call-overload]
        return value[:]  # type: ignore[index,no-any-return]
    if kind is dict and _TEXT.issuperset(map(type, value)):  # type: ignore[call-overload]
        if _ATOMS.issuperset(map(type, value.values())):  # type: ignore[attr-defined]
            return value.copy()  # type: ignore[attr-defined,no-any-return]
        if all(_is_list_of_atoms(each) for each in value.values()):  # type: ignore[attr-defined]
            return {key: each[:] for key, each in value.items()}  # type: ignore[attr-defined]
    return _there_and_back(value)[1]


def json_text(value: object) -> str:
    """Return *value* as JSON without spaces.

    Raises:
        ValueError: JSON would not give it back unchanged; the text says why, see :func:`json_flaw`.
    """
    return _there_and_back(value)[0]


# What JSON gives back as it is. Not float: NaN is not JSON.
_ATOMS = frozenset({type(None), bool, int, str})

_TEXT = frozenset({str})


def _is_list_of_atoms(value: object) -> bool:
    return type(value) is list and _ATOMS.issuperset(map(type, value))


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _there_and_back(value: object) -> tuple[str, Json]:
    try:
        text = _encode(value)
        copy: Json = json.loads(text)
        # Looking for the key takes longer, and with a tuple there may be none.
        flaw = None if copy == value else _changed_key(value)
    except RecursionError:
        flaw = "it is nested too deep"
    except (TypeError, ValueError) as error:
        flaw = str(error)
    if flaw is not None:
        raise ValueError(flaw)
    return text, copy


def shown(value: object) -> str:
    """Return the beginning of a value for a message, or its type if it is nested too deep."""
    try:
        return f"{value!r:.200}"
    except RecursionError:
        return f"a {type(value).__name__}"


def _changed_key(value: object) -> str | None:
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                return f"the key {key!r} is of type {type(key).__name__}, not a string"
        value = list(value.values())
    if isinstance(value, list | tuple):
        return next((flaw for part in value if (flaw := _changed_key(part))), None)
    return None
