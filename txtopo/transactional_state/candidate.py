"""Candidates for the leadership: which process asks, and whether it is known to be dead.

A killed coordinator leaves its place in the election to ZooKeeper's session timeout. On the machine
where it ran its successor can see at once that it is gone, and need not wait. Being wrong would
cost a change of leaders, never a wrong number: the epoch protects, not the election.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from txtopo.transactional_state.store import Json


def this_process() -> dict[str, Json]:
    """Return this process as a candidate; add to it what people should see."""
    return {"host": socket.gethostname(), "machine": _machine(), "pid": os.getpid()}


def is_gone(candidate: Json) -> bool:
    """Whether a candidate ran on this machine and its process has ended."""
    if not isinstance(candidate, dict) or candidate.get("machine") != _machine():
        return False
    pid = candidate.get("pid")
    if not isinstance(pid, int) or isinstance(pid, bool) or pid < 1:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False  # it belongs to another user, so it lives
    return _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    """Whether a process has ended but its parent has not asked how."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("Z", "X")


def _machine() -> str:
    """Name this boot of this machine and its table of processes (a container has its own)."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    try:
        return f"{boot.read_text().strip()}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return socket.gethostname()
