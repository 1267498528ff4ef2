"""A process with a JVM that contends for the leadership and, when it leads, writes without end.

Arguments: the directory of the embedded server. Says on its standard output what happens to it.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from itertools import count

from tests.harness.processes import say
from tests.harness.spark_session import launch_test_jvm
from txtopo import ZooKeeper
from txtopo.config import Config
from txtopo.ensemble import Journal, open_transactional_state, this_process
from txtopo.errors import CoordinatorUnavailable


def main(directory: str) -> None:
    # The longest session timeout of the embedded server, for a machine that is busy.
    config = Config(zookeeper=ZooKeeper(dir=directory, session_timeout_s=10, connect_timeout_s=120))
    gateway = launch_test_jvm()
    state = open_transactional_state(config.zookeeper, "t", gateway.jvm)
    say("connected")
    leadership = None
    while leadership is None:
        # Who waits may lose the server together with the leader, and asks again.
        with suppress(CoordinatorUnavailable):
            leadership = state.lead(this_process(), timeout_s=1, on_lost=lambda: None)
            if leadership is None:
                say("waits")
    journal = Journal(state)
    epoch = journal.claim_epoch(this_process(), token="ensemble")
    current = journal.load().current
    say("leads", epoch=epoch, current=current)
    for txid in count(current + 1):
        journal.advance(txid)
        say("at", current=txid)


if __name__ == "__main__":
    main(sys.argv[1])
