"""PySpark's worker daemon, without its garbage collection after every task.

PySpark forks a worker per core and calls ``gc.collect()`` in it after each task. That walks every
object of the interpreter, pyarrow and pandas included, and costs more than a small task. Here the
first call collects and then freezes what is left (the imported modules, the cached program), so
that later calls see only what later tasks made.

Used by ``spark.python.daemon.module=txtopo.runtime.daemon``, which
:func:`txtopo.runtime.session.tuned_conf` sets. Importable by the workers' Python, as txtopo itself.
"""

from __future__ import annotations

import gc
import socket

import pyspark.daemon

_serve = pyspark.daemon.worker


class FreezingCollector:
    """Stands in for the module ``gc`` in PySpark's daemon, which calls ``collect`` alone."""

    def __init__(self) -> None:
        self._frozen = False

    def collect(self) -> int:
        """Collect; after the first time only what was made since then."""
        found = gc.collect()
        if not self._frozen:
            gc.freeze()
            self._frozen = True
        return found


def serve(connection: socket.socket, authenticated: bool) -> int:
    """Serve one task as PySpark does, and end quietly when Spark has closed the connection.

    Spark closes it after a minute without a task, and when a task is cancelled. On a Unix socket
    PySpark then prints a traceback for each worker.
    """
    try:
        return _serve(connection, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    # Each worker is a fork and so has a collector of its own, which freezes after its first task.
    vars(pyspark.daemon).update(gc=FreezingCollector(), worker=serve)
    pyspark.daemon.manager()
