"""``open_backend``, the entry point of states in Delta tables."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

from state_backends.delta.layout import LOG, Layout, absolute, folder_name, location_of, reserved
from state_backends.delta.library import HAS_DELTA_RS
from state_backends.delta.spark_session import check_session, session_conf
from txtopo.errors import TopologyError
from txtopo.extras import EXTRAS, require
from txtopo.log_records import logger_of
from txtopo.plugins.stores import StateTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from state_backends.delta.backend import DeltaBackend


_FOLDER_BYTES_MAX = 255
"""The longest name that file systems accept."""


class DeltaFactory:
    """Opens states in Delta tables."""

    def anchor(self, url: str) -> tuple[str, object]:
        """Make the path of a local folder absolute, since tasks may run in another folder."""
        return absolute(url), None

    def __call__(self, url: str, table: StateTable) -> DeltaBackend:
        """Open a state; reads the table when it is first used.

        Raises:
            ConfigError: deltalake is not installed.
            TopologyError: The URL or a name in the state cannot be used; repair it.
        """
        location = location_of(url)
        if not HAS_DELTA_RS:
            for module in self.client_modules_of(url, table):
                require(module, _needing(url, table))
            _tell_once()
        _check_names(table)
        from state_backends.delta.backend import DeltaBackend

        return DeltaBackend(location, table)

    def client_modules_of(self, url: str, table: StateTable) -> Sequence[str]:
        """Return deltalake, if Spark cannot write the state in its place."""
        return () if location_of(url).local and table.mode != "log" else ("deltalake",)

    def frames_refused(self, url: str, table: StateTable) -> str | None:
        """Return why a state does not accept frames, or None if it does."""
        location = location_of(url)
        if not location.frames:
            return (
                "its URL does not let Spark write; a commit by Spark takes 0.5 s or more, one "
                "from this process a few milliseconds; expected 'delta:///folder?writer=spark'"
            )
        if not location.local:
            return "so far, Spark writes frames only to local folders; use a PersistentAggregate"
        if table.mode != "table":
            return "it is in mode 'log'; expected mode='table'"
        return None

    def session_conf(self) -> dict[str, str]:
        """Return the settings of a session that writes Delta tables."""
        return session_conf()

    def session_conf_of(self, url: str) -> dict[str, str]:
        """Return the settings of a session for this state: Spark writes it, or may write it."""
        location = location_of(url)
        by_session = location.local and not HAS_DELTA_RS
        return session_conf() if by_session or location.frames else {}

    def check_session(self, spark: SparkSession) -> None:
        """Check that a session can write Delta tables."""
        check_session(spark)

    def __reduce__(self) -> str:
        return "open_backend"


def _needing(url: str, table: StateTable) -> str:
    if table.mode == "log":
        return "a state in Delta in mode 'log'"
    return f"{url.partition(':')[0]}://"


@cache
def _tell_once() -> None:
    logger_of("txtopo.state").warning(
        "states in Delta are written by Spark, because the package deltalake is not installed; "
        "with it a commit takes about a thirtieth of the time: %s",
        EXTRAS["deltalake"].command,
    )


def _check_names(table: StateTable) -> None:
    if len(folder_name(table.name)) > _FOLDER_BYTES_MAX:
        raise TopologyError(
            f"bad name of a state's table; got {table.name[:80]!r}…; the name of its folder would "
            f"have more than {_FOLDER_BYTES_MAX} characters, counting three for each character "
            "other than letters, digits and _; choose a shorter one",
            state=table.name,
        )
    if table.name == LOG:
        raise TopologyError(
            f"bad name of a state's table; got {LOG!r}; Delta keeps the log of a table in a folder "
            "of this name; rename it",
            state=table.name,
        )
    names = Layout(table).schema.names
    for name in names:
        if reserved(name):
            raise TopologyError(
                f"bad column name in state {table.name!r}; got {name!r}; Delta allows neither "
                "spaces nor quotes nor ,;{}()= in it, and txtopo_… and __delta_rs_… are "
                "reserved; rename the field",
                state=table.name,
            )
        if [other.casefold() for other in names].count(name.casefold()) > 1:
            raise TopologyError(
                f"state {table.name!r} has columns that differ only in case: {name!r}; Delta "
                "cannot tell them apart; rename one",
                state=table.name,
            )


open_backend = DeltaFactory()
