"""The probe of the executors: what a topology needs there is missed at its start, not in a task.

One small job, as many tasks as there are cores, so that each executor that Spark has at the moment
gets some. Under ``local[n]`` the workers are on this machine, with this process's Python, and
nothing is probed; nor under Spark Connect, which cannot run Python without pyarrow there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from txtopo.errors import ConfigError
from txtopo.runtime.spark_failures import failure_of_job

if TYPE_CHECKING:
    from pyspark import SparkContext

    from txtopo.topology.component import Component

NEEDED = ("txtopo", "pyarrow")
"""What every topology needs in its workers."""


Answer = tuple[str, str, tuple[tuple[str, str], ...]]


class Finding(NamedTuple):
    """What a worker of one executor said.

    Attributes:
        executor: Its host and process.
        python: Its interpreter.
        missing: What cannot be imported there, with the reason.
    """

    executor: str
    python: str
    missing: tuple[tuple[str, str], ...]


def probe_executors(context: SparkContext, spout: Component, more: Sequence[str] = ()) -> None:
    """Check that executors can run a topology; does nothing where they are this machine's.

    Args:
        context: The context.
        spout: The spout, whose ``client_modules`` are needed too.
        more: What else is needed.

    Raises:
        ConfigError: An executor lacks a module; ship it.
        TopologyError: An executor cannot even start a worker; the message says why.
    """
    if not is_remote(context.master or ""):
        return
    client = tuple(getattr(spout.prototype, "client_modules", ()))
    check_findings(ask_executors(context, (*NEEDED, *more, *client)))


def is_remote(master: str) -> bool:
    """Return whether the workers of a master may have another Python than this process."""
    return not master.startswith("local") or master.startswith("local-cluster")


def ask_executors(context: SparkContext, modules: Sequence[str]) -> list[Finding]:
    """Run the job."""
    tasks = context.defaultParallelism
    try:
        found = context.parallelize(range(tasks), tasks).mapPartitions(_probe(modules)).collect()
    except Exception as error:
        raise failure_of_job(error, "txtopo:probe") from error
    return [Finding(*each) for each in found]


def check_findings(findings: Iterable[Finding]) -> None:
    """Say what is missing where, and what to do about it.

    Raises:
        ConfigError: Something is.
    """
    lacking = {each.executor: each for each in findings if each.missing}
    if not lacking:
        return
    first = lacking[min(lacking)]
    modules = sorted({name for each in lacking.values() for name, _ in each.missing})
    reasons = "; ".join(f"{name}: {reason}" for name, reason in first.missing)
    raise ConfigError(
        f"executors cannot import {', '.join(modules)}; got, on {first.executor} with "
        f"{first.python}, {reasons}"
        + (f", and the like on {len(lacking) - 1} more" if len(lacking) > 1 else "")
        + "; expected all of it, as in the driver; pack the driver's environment (venv-pack -o "
        "environment.tar.gz) and set spark.archives=environment.tar.gz#environment and "
        "spark.pyspark.python=./environment/bin/python, or install it there; wheels with compiled "
        "code do not travel by --py-files",
        modules=tuple(modules),
        executors=tuple(sorted(lacking)),
    )


def _probe(modules: Sequence[str]) -> Callable[[Iterable[int]], Iterator[Answer]]:
    """Return what a task does: plain values and a nested function, which travels without txtopo."""
    names = list(modules)

    def probe(_: Iterable[int]) -> Iterator[Answer]:
        import importlib
        import os
        import platform
        import sys

        missing = []
        for name in names:
            try:
                importlib.import_module(name)
            except Exception as error:  # noqa: BLE001 - a broken library may raise anything
                missing.append((name, f"{type(error).__name__}: {error}"))
        executor = f"{platform.node()}, process {os.getppid()}"
        yield executor, sys.executable, tuple(missing)

    return probe
