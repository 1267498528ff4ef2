"""BatchMetadata: everything that is stored of a batch, to emit it again.

One spout
---------
``planned`` is what its coordinator part returned, and the keys of ``cut`` and ``content`` are the
numbers of its partitions or tasks.

Several spouts
--------------
All of them are in each txid, with one metadata. ``spouts`` has the plan of each, and the keys of
``cut`` and ``content`` are ``spout/partition``; an id has no ``/``. A spout that is not ready, or
out of reach, is *absent* from the txid: it emits nothing, and its positions carry forward, in the
cut or, for one that plans whole batches, as ``{"absent": last plan}``. A replay has the same spouts
absent. When a batch is cut anew, only the opaque spouts cut theirs anew: what the others have cut
is *kept*, so they repeat it.

Facts
-----
What the outside said when the batch was planned, for a topology that asks for it:
``{"time": milliseconds since 1970, "tables": {id: version}}``. They are part of the plan: durable
before any commit work, kept when a batch is cut anew, and equal in every replay. The time of a txid
is never before that of the txid before, whatever clocks do. Without lookups there are no tables.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
"""The type of metadata. Nothing is ever pickled into the transactional state."""


@dataclass(frozen=True, slots=True)
class BatchMetadata:
    """Everything that is stored of a batch, to emit it again.

    Attributes:
        planned: The metadata from the spout's coordinator part (``initialize_transaction``); for a
            partitioned spout the number of partitions.
        cut: The metadata from the emitters, by partition; a partition that emitted nothing keeps
            that of an earlier batch. None for a spout whose emitters return none, and for a batch
            that was never processed.
        content: The content of the first processed attempt, by partition or task, as
            ``[tuples, digest]`` (:mod:`txtopo.stages.replays`); None if replays are not compared.
            It is stored apart from *planned* and *cut*.
        pace: The limit of the batch, as :mod:`txtopo.pacing` stores it; None without one. It is
            stored beside *planned* and *cut*.
        spouts: With several spouts the plan of each, ``{"planned": …}`` or ``{"absent": …}``; then
            *planned* is None. None with one spout.
        kept: With several spouts, while *cut* is None: the cut of those that repeat it, if it is
            known.
        facts: What the outside said at planning; None for a topology that asks for nothing.
    """

    planned: Json = None
    cut: dict[str, Json] | None = None
    content: dict[str, Json] | None = None
    pace: dict[str, Json] | None = None
    spouts: dict[str, dict[str, Json]] | None = None
    kept: dict[str, Json] | None = None
    facts: dict[str, Json] | None = None

    def takes_part(self, spout: str) -> bool:
        """Return whether a spout emits something in the batch; it does not if it is absent."""
        return self.spouts is None or "planned" in self.spouts.get(spout, {})

    def of(self, spout: str) -> BatchMetadata:
        """Return the share of one spout, as if it were the only one.

        The cut is that of the batch, or else what the spout will repeat of it.
        """
        if self.spouts is None:
            return self
        plan = self.spouts.get(spout, {})
        cut = self.kept if self.cut is None else self.cut
        return BatchMetadata(
            plan.get("planned", plan.get("absent")),
            None if cut is None else of_spout(spout, cut),
            None if self.content is None else of_spout(spout, self.content),
            facts=self.facts,
        )

    def cut_anew(self, repeatable: Collection[str] = ()) -> BatchMetadata:
        """Return what an attempt starts from that cuts the batch anew: the plans.

        Args:
            repeatable: With several spouts, those that repeat what they have cut.
        """
        if self.cut is None:
            return self
        kept = {part: end for part, end in self.cut.items() if _spout_of(part) in repeatable}
        return replace(self, cut=None, kept=kept or None)


def absent(last: Json = None) -> dict[str, Json]:
    """Return the plan of a spout that is absent; *last* is its newest plan of a whole batch."""
    return {"absent": last}


def part_of(spout: str, part: object) -> str:
    """Return the key of a partition or task of a spout, among those of several spouts."""
    return f"{spout}/{part}"


def of_spout(spout: str, parts: Mapping[str, Json]) -> dict[str, Json]:
    """Return the partitions or tasks of one of several spouts, by their own keys."""
    prefix = part_of(spout, "")
    return {name.removeprefix(prefix): v for name, v in parts.items() if name.startswith(prefix)}


def _spout_of(part: str) -> str:
    return part.partition("/")[0]


def json_flaw(value: object) -> str | None:
    """Return why JSON would not give *value* back unchanged; None if it would.

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
