from __future__ import annotations

from itertools import groupby

from txtopo.coordinator import machine
from txtopo.coordinator.transactions import AFTER, Phase


def drawn(table: dict[tuple[Phase, type], Phase]) -> str:
    """Draw one line for each pair of phases: what leads from the first to the second."""
    lines = []
    for phase, moves in groupby(table.items(), key=lambda move: move[0][0]):
        causes: dict[Phase, list[str]] = {}
        for (_, cause), target in moves:
            causes.setdefault(target, []).append(cause.__name__)
        lines += [
            f"    {phase.name:<10} --{', '.join(names)}--> {target.name}"
            for target, names in causes.items()
        ]
    return "\n".join(lines)


def test_the_diagram_in_the_header_is_the_table() -> None:
    diagram = drawn(AFTER)

    assert diagram in (machine.__doc__ or ""), f"put this into the header:\n{diagram}"
