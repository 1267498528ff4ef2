"""What may write elsewhere than to the states of its topology, and therefore commits alone.

A state refuses a txid that is not the next one. A database of the user's own does not, so what
Storm promises has to hold without its help: "once you commit a particular transaction id for the
first time, all prior transaction ids will never be committed again". That is so if one txid is
committed at a time. The user's code in the commit phase may write to such a database, unless its
class says that it does not: ``writes_nowhere_else = True``.

What a class of txtopo's declares is said of the methods that it has. A subclass of a user's that
overrides one of them speaks for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txtopo.spouts.sequence import SequenceSpout
from txtopo.spouts.spout import Emitter
from txtopo.traits import traits_of

if TYPE_CHECKING:
    from txtopo.topology.component import Component
    from txtopo.topology.graph import Graph

DECLARATION = "writes_nowhere_else"
"""The attribute that declares it, of a bolt or of an emitter."""

CALLED = frozenset({"prepare", "execute", "finish_batch", "cleanup", "commit"})
"""The methods that are called in the commit phase."""


def declares_it(part: object) -> bool:
    """Return whether a bolt or an emitter declares that it writes nowhere else."""
    if getattr(part, DECLARATION, False) is not True:
        return False
    if DECLARATION in getattr(part, "__dict__", {}):
        return True
    overridden: set[str] = set()
    for kind in type(part).__mro__:
        if DECLARATION in vars(kind):
            return not (_is_ours(kind) and overridden)
        if not _is_ours(kind):
            overridden |= CALLED & vars(kind).keys()
    return True


def may_write_elsewhere(graph: Graph) -> frozenset[str]:
    """Return the ids of the bolts whose code in the commit phase may write elsewhere."""
    return frozenset(id for id in graph.committing if _may_write(graph.components[id]))


def emitter_may_write_elsewhere(emitter: object) -> bool:
    """Return whether an emitter has a ``commit`` that may write anywhere."""
    parts = getattr(emitter, "part_emitters", None)
    if parts is not None:  # of a sequence, which only passes the call on
        return any(map(emitter_may_write_elsewhere, parts()))
    commit = getattr(emitter, "commit", None)
    if commit is None or getattr(commit, "__func__", None) is Emitter.commit:
        return False
    return not declares_it(emitter)


def emitters_to_ask(graph: Graph) -> tuple[str, ...]:
    """Return the ids of the spouts of which only an open emitter tells whether it may do so.

    The emitters of txtopo's own spouts write nowhere else, but for a reader of a user's in one.
    """
    return tuple(each.id for each in graph.spouts if not _emitter_is_known(each.prototype))


def _emitter_is_known(spout: object) -> bool:
    if isinstance(spout, SequenceSpout):
        return all(map(_emitter_is_known, spout.parts))
    declared = traits_of(spout).emitter_writes_nowhere_else
    return _is_ours(type(spout)) if declared is None else declared


def _may_write(component: Component) -> bool:
    return not declares_it(component.prototype)


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "txtopo"
