"""PySpark's worker daemon as txtopo has it, on a machine that may go bad: each task fails there.

A machine is bad while the file ``bad`` is in the folder of its Spark worker.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pyspark.daemon

from txtopo.carriers import daemon

BAD = "bad"


def serve(connection: socket.socket, authenticated: bool) -> int:
    """Serve tasks, or end at once as a process that crashes."""
    application = Path.cwd().parent  # an executor is in worker/application/number
    if (application.parent / BAD).exists():
        os._exit(1)
    return daemon.serve(connection, authenticated)


if __name__ == "__main__":
    vars(pyspark.daemon).update(gc=daemon.FreezingCollector(), worker=serve)
    pyspark.daemon.manager()
