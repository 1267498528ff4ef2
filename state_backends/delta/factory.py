"""Opens states in Delta tables; ``open_backend`` is the entry point."""

from __future__ import annotations

from typing import TYPE_CHECKING

from state_backends.delta.layout import Layout, reserved
from state_backends.delta.location import absolute, folder_name, location
from txtopo.errors import TopologyError
from txtopo.state import StateTable

if TYPE_CHECKING:
    from state_backends.delta.backend import DeltaBackend


_FOLDER_BYTES_MAX = 255
"""What file systems take."""


class DeltaFactory:
    """Opens states in Delta tables."""

    def anchor(self, url: str) -> tuple[str, object]:
        """Make the path of a local folder absolute: tasks may run in another one."""
        return absolute(url), None

    def __call__(self, url: str, table: StateTable) -> DeltaBackend:
        """Open a state; reads the table when it is first used.

        Raises:
            TopologyError: The URL or a name in the state cannot be used; mend it.
        """
        _check_names(table)
        from state_backends.delta.backend import DeltaBackend

        return DeltaBackend(location(url), table)

    def __reduce__(self) -> str:
        return "open_backend"


def _check_names(table: StateTable) -> None:
    if len(folder_name(table.name)) > _FOLDER_BYTES_MAX:
        raise TopologyError(
            f"bad name of a state's table; got {table.name[:80]!r}…; its folder would have more "
            f"than {_FOLDER_BYTES_MAX} characters, where others than letters, digits and _ take "
            "three; choose a shorter one",
            state=table.name,
        )
    names = Layout(table).schema.names
    for name in names:
        if reserved(name):
            raise TopologyError(
                f"bad column name in state {table.name!r}; got {name!r}; Delta takes no space and "
                "none of ,;{}()= or quotes in it; txtopo_… and __delta_rs_… are taken; "
                "rename the field",
                state=table.name,
            )
        if [other.casefold() for other in names].count(name.casefold()) > 1:
            raise TopologyError(
                f"state {table.name!r} has columns that differ in case alone: {name!r}; Delta does "
                "not tell them apart; rename one",
                state=table.name,
            )


open_backend = DeltaFactory()
