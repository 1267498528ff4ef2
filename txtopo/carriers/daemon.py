"""PySpark's worker daemon, without its garbage collection after every task.

PySpark forks a worker per core and calls ``gc.collect()`` in it after each task. That visits every
object of the interpreter, pyarrow and pandas included, and takes longer than a small task. Here the
first call collects and then freezes the remaining objects, such as the imported modules and the
cached topology. Later calls visit only objects that later tasks have made.

Spark loads this module by ``spark.python.daemon.module=txtopo.carriers.daemon``, which
:func:`txtopo.carriers.session.tuned_conf` sets. The workers' Python must be able to import txtopo.
"""

from __future__ import annotations

import gc
import socket

import pyspark.daemon

_serve = pyspark.daemon.worker


class FreezingCollector:
    """Replaces the module ``gc`` in PySpark's daemon, which calls only ``gc.collect``.

    The first collection freezes the objects that are left, so that later ones are cheap.
    """

    def __init__(self) -> None:
        self._frozen = False

    def collect(self) -> int:
        """Collect the garbage. Objects that the first call left are not visited again."""
        found = gc.collect()
        if not self._frozen:
            gc.freeze()
            self._frozen = True
        return found


def serve(connection: socket.socket, authenticated: bool) -> int:
    """Serve tasks as PySpark does, and end without a traceback if Spark closes the connection.

    Spark closes it after a minute without a task, and when a task is cancelled. On a Unix socket
    PySpark would then print a traceback for each worker.
    """
    try:
        return _serve(connection, authenticated)
    except BrokenPipeError:
        return 1


if __name__ == "__main__":
    # Each worker is a fork, so each has its own collector, which freezes after the first task.
    vars(pyspark.daemon).update(gc=FreezingCollector(), worker=serve)
    pyspark.daemon.manager()
