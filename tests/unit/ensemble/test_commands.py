"""The rules of commands, on the ensemble in memory and on ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from tests.unit.ensemble.conftest import Connect
from txtopo.ensemble import (
    Journal,
    MemoryEnsemble,
    MemoryTransactionalState,
    Put,
    TransactionalState,
)
from txtopo.ensemble.commands import (
    ANSWER_KEPT_S,
    Answer,
    CommandDesk,
    Desired,
    ask,
    command_path,
    desired_of,
    killed_error,
    who,
)
from txtopo.ensemble.nodes import COMMANDS, CURRENT, DESIRED, EPOCH
from txtopo.ensemble.store import Delete, Node, Step
from txtopo.errors import (
    CommandUnanswered,
    CoordinatorUnavailable,
    CorruptNodeError,
    FencedError,
    StateUsageError,
    TopologyKilled,
)
from txtopo.metadata import Json

ANNE: dict[str, Json] = {"host": "hall", "pid": 7, "user": "anne"}


@dataclass
class Time:
    """Time that stands still until it is set, and what happens at a durable step."""

    now_s: float = 0.0
    at: dict[str, Callable[[], None]] = field(default_factory=dict)

    def now(self) -> float:
        return self.now_s

    def wall_clock(self) -> float:
        return 1_000.0 + self.now_s

    def point(self, name: str) -> None:
        self.at.pop(name, lambda: None)()


def claimed(state: TransactionalState) -> Journal:
    journal = Journal(state)
    journal.claim_epoch({"host": "here"}, token="t")
    return journal


def desk_of(state: TransactionalState, time: Time | None = None) -> CommandDesk:
    return CommandDesk(state, claimed(state), None, time or Time())


def write(state: TransactionalState, number: int, verb: str = "deactivate", **more: Json) -> None:
    command: dict[str, Json] = {"verb": verb, "arguments": {}, "by": ANNE, "at_s": 1.0}
    state.apply([Put(command_path(number), {**command, **more})])


def answer_in(state: TransactionalState, number: int) -> dict[str, Json]:
    node = state.get(command_path(number))
    assert node is not None
    assert isinstance(node.value, dict)
    answer = node.value["answer"]
    assert isinstance(answer, dict)
    return answer


def desired_in(state: TransactionalState) -> Desired:
    return desired_of(state.get(DESIRED))


@pytest.mark.parametrize(
    ("verb", "status"),
    [("deactivate", "deactivated"), ("kill", "killed"), ("activate", "running")],
)
def test_an_answer_and_the_desired_status_name_each_other(
    state: TransactionalState, verb: str, status: str
) -> None:
    desk = desk_of(state)
    write(state, 1, verb, arguments={"wait_s": 3.5})

    desk.serve()

    assert answer_in(state, 1)["status"] == status
    assert answer_in(state, 1)["epoch"] == 1
    assert desk.desired == Desired(status, 1, ANNE, 1_000.0, 3.5 if verb == "kill" else 0.0)
    assert desired_in(state) == desk.desired


def test_a_topology_of_which_nobody_asked_anything_is_to_run(state: TransactionalState) -> None:
    desk = desk_of(state)

    desk.serve()

    assert desk.desired == Desired("running", 0)
    assert state.get(DESIRED) is None


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 2)
def test_a_deposed_leader_answers_nothing(connect: Connect) -> None:
    """It has read the command, and is deposed before it answers."""
    mine, others = connect(), connect()
    time = Time()
    desk = desk_of(mine, time)
    write(others, 1, "kill")
    time.at["command.before"] = lambda: vars(desk).update(successor=claimed(others))

    with pytest.raises(FencedError):
        desk.serve()

    node = others.get(command_path(1))
    assert node is not None
    assert "answer" not in dict(node.value)  # type: ignore[arg-type]
    assert others.get(DESIRED) is None


def test_a_command_with_an_answer_is_never_done_again(connect: Connect) -> None:
    first, second = connect(), connect()
    desk_of(first).serve()
    write(first, 1, "deactivate")
    desk_of(first).serve()
    write(first, 2, "activate")
    desk_of(first).serve()
    second.synchronize()

    desk_of(second).serve()

    assert desired_in(second).status == "running"
    assert answer_in(second, 1)["epoch"] == 2


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 5)
def test_commands_are_answered_in_the_order_of_their_numbers(state: TransactionalState) -> None:
    for number, verb in ((2, "activate"), (10, "deactivate"), (1, "kill")):
        write(state, number, verb)

    desk_of(state).serve()

    statuses = [answer_in(state, number).get("status") for number in (1, 2, 10)]
    assert statuses == ["killed", "running", "deactivated"]
    assert desired_in(state).status == "deactivated"
    assert desired_in(state).command == 10


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 5)
def test_a_number_that_was_answered_is_refused_though_its_node_was_deleted(
    state: TransactionalState,
) -> None:
    """A client that chose the number long ago and was stopped writes it now."""
    time = Time()
    desk = desk_of(state, time)
    write(state, 1, "kill")
    write(state, 2, "activate")
    desk.serve()
    time.now_s = ANSWER_KEPT_S
    desk.serve()
    assert state.children(COMMANDS) == []
    write(state, 1, "kill")

    desk.serve()

    assert "ask again" in str(answer_in(state, 1)["refused"])
    assert desired_in(state).status == "running"
    assert desired_in(state).command == 2


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 6)
def test_an_answer_stays_for_a_while_counted_by_whoever_leads(connect: Connect) -> None:
    first, second = connect(), connect()
    write(first, 1)
    desk_of(first, Time(1e9)).serve()
    second.synchronize()
    time = Time(5.0)
    desk = desk_of(second, time)
    desk.serve()
    time.now_s += ANSWER_KEPT_S - 1
    desk.serve()
    assert len(second.children(COMMANDS)) == 1
    time.now_s += 1

    desk.serve()

    assert second.children(COMMANDS) == []
    assert desired_in(second).command == 1


@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 3, 4)
def test_after_a_lost_answer_of_the_ensemble_the_leader_obeys_what_is_stored(landed: bool) -> None:
    ensemble = MemoryEnsemble()
    state = MemoryTransactionalState("t", ensemble)
    desk = desk_of(state)
    write(state, 1, "kill")
    ensemble.lose_next_answer(landed=landed)
    with pytest.raises(CoordinatorUnavailable):
        desk.serve()
    assert desk.desired.status == "running"

    desk.serve()

    assert desk.desired.status == "killed"
    assert answer_in(state, 1)["status"] == "killed"


@pytest.mark.parametrize(
    "command",
    [
        {"verb": "explode"},
        {"verb": None},
        {"verb": ["kill"]},
        {"verb": "kill", "arguments": {"wait_s": "long"}},
        {"verb": "kill", "arguments": {"wait_s": -1}},
        {"verb": "kill", "arguments": {"wait_s": 10**400}},
        {"verb": "kill", "by": "x" * 600_000},
        [],
        None,
        7,
    ],
)
@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 8)
def test_what_cannot_be_read_is_refused_and_changes_nothing(
    state: TransactionalState, command: Json
) -> None:
    state.apply([Put(command_path(1), command)])
    write(state, 2, "deactivate")

    desk_of(state).serve()

    assert "refused" in answer_in(state, 1)
    assert desired_in(state).status == "deactivated"


def test_bytes_that_are_no_node_are_refused() -> None:
    ensemble = MemoryEnsemble()
    state = MemoryTransactionalState("t", ensemble)
    ensemble.nodes = {f"/t{command_path(1)}": (b"\xff<script>", 0), "/t/commands/first": (b"", 0)}

    desk_of(state).serve()

    assert "refused" in answer_in(state, 1)


def test_a_killed_topology_is_not_deactivated_but_activated(state: TransactionalState) -> None:
    write(state, 1, "kill")
    write(state, 2, "deactivate")
    desk_of(state).serve()
    assert "activate it first" in str(answer_in(state, 2)["refused"])
    assert desired_in(state) == Desired("killed", 2, ANNE, 1_000.0, 0.0)
    write(state, 3, "activate")

    desk_of(state).serve()

    assert desired_in(state).status == "running"


@pytest.mark.parametrize(
    "value", [None, [], {"status": "paused", "command": 1}, {"status": "killed"}, {"command": -1}]
)
def test_a_desired_status_that_cannot_be_read_is_not_taken_for_none(value: Json) -> None:
    state = MemoryTransactionalState("t")
    state.apply([Put(DESIRED, value)])

    with pytest.raises(CorruptNodeError):
        desk_of(state).serve()


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 7)
def test_without_a_leader_the_client_answers_what_was_asked_before_and_its_own(
    connect: Connect,
) -> None:
    state = connect()
    claimed(state)
    write(state, 1, "kill")

    answer = ask(connect(), "t", "activate")

    assert (answer.number, answer.status, answer.epoch) == (2, "running", 2)
    state.synchronize()
    assert answer_in(state, 1)["status"] == "killed"
    node = state.get(EPOCH)
    assert node is not None
    assert dict(node.value)["leader"]["operator"] is True  # type: ignore[arg-type,index,call-overload]


def test_a_leader_answers_clients_that_ask_at_the_same_time_each_under_its_own_number(
    connect: Connect,
) -> None:
    leader = connect()
    leadership = leader.lead({"host": "leader"}, timeout_s=60.0, on_lost=lambda: None)
    assert leadership is not None
    desk = desk_of(leader)
    clients = [connect() for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(ask, client, "t", "deactivate") for client in clients]
        while not all(each.done() for each in asked):
            desk.serve()
        answers = [each.result() for each in asked]

    assert sorted(answer.number for answer in answers) == [1, 2, 3, 4]
    assert {(answer.status, answer.epoch) for answer in answers} == {("deactivated", 1)}


def test_a_command_that_nobody_answers_stands(connect: Connect) -> None:
    """The leader hangs."""
    leader = connect()
    claimed(leader)
    assert leader.lead({"host": "old", "pid": 3}, timeout_s=60.0, on_lost=lambda: None)

    with pytest.raises(CommandUnanswered, match=r"old \(process 3\) leads") as raised:
        ask(connect(), "t", "kill", timeout_s=0.1)

    assert raised.value.command == 1
    leader.synchronize()
    desk_of(leader).serve()
    assert answer_in(leader, 1)["status"] == "killed"


def test_an_answer_that_was_deleted_is_found_in_the_desired_status(connect: Connect) -> None:
    """The client was stopped for minutes."""
    leader, client = connect(), connect()
    assert leader.lead({"host": "leader"}, timeout_s=60.0, on_lost=lambda: None)
    leading = Time()
    desk = desk_of(leader, leading)

    def minutes_pass() -> None:
        desk.serve()
        leading.now_s = ANSWER_KEPT_S
        desk.serve()

    answer = ask(client, "t", "kill", time=Time(at={"ask.written": minutes_pass}))

    assert answer == Answer(1, "killed", None, None, None, 1_000.0)


def test_a_refused_command_whose_answer_was_deleted_is_not_reported_as_done(
    connect: Connect,
) -> None:
    leader, client = connect(), connect()
    assert leader.lead({"host": "leader"}, timeout_s=60.0, on_lost=lambda: None)
    leading = Time()
    desk = desk_of(leader, leading)
    write(leader, 1, "kill")

    def minutes_pass() -> None:
        desk.serve()
        leading.now_s = ANSWER_KEPT_S
        desk.serve()

    with pytest.raises(CommandUnanswered, match="no longer exists"):
        ask(client, "t", "deactivate", time=Time(at={"ask.written": minutes_pass}))


class LosesAnAnswer(MemoryTransactionalState):
    """Asks over a connection that is lost after the write, and is back after the leader's answer.

    ZooKeeper's client sends the write again then. It is refused, since the node is there, and the
    node is not known as that of the write any more, since the leader has written it.
    """

    def __init__(self, ensemble: MemoryEnsemble, meanwhile: Callable[[], None]) -> None:
        super().__init__("t", ensemble)
        self.meanwhile: Callable[[], None] | None = meanwhile

    def apply(self, steps: Sequence[Step]) -> None:
        super().apply(steps)
        if meanwhile := self.meanwhile:
            self.meanwhile = None
            meanwhile()
            super().apply(steps)


@pytest.mark.rule("txtopo.ensemble.commands", "Rules", 1)
def test_a_client_that_lost_its_connection_while_it_asked_has_asked_once() -> None:
    """Another operator revives the topology in between. A second kill would end it."""
    ensemble = MemoryEnsemble()
    leader = MemoryTransactionalState("t", ensemble)
    assert leader.lead({"host": "leader"}, timeout_s=60.0, on_lost=lambda: None)
    desk = desk_of(leader)

    def meanwhile() -> None:
        desk.serve()
        write(leader, 2, "activate")
        desk.serve()

    answer = ask(LosesAnAnswer(ensemble, meanwhile), "t", "kill", timeout_s=0.0)
    desk.serve()

    assert (answer.number, answer.status) == (1, "killed")
    assert desired_in(leader).status == "running"


def test_no_command_is_left_in_a_topology_that_is_forgotten_while_it_is_asked() -> None:
    ensemble = MemoryEnsemble()
    state = MemoryTransactionalState("t", ensemble)
    claimed(state)

    class Forgotten(MemoryTransactionalState):
        def children(self, path: str) -> list[str]:
            if state.get(EPOCH) is not None:
                state.apply([Delete(CURRENT), Delete(EPOCH)])
            return super().children(path)

    with pytest.raises(StateUsageError, match="no topology 't'"):
        ask(Forgotten("t", ensemble), "t", "kill", timeout_s=0.0)

    assert state.children(COMMANDS) == []


class Lagging(MemoryTransactionalState):
    """Reads from a server that lags behind, after the answer to a write was lost."""

    def __init__(self, ensemble: MemoryEnsemble) -> None:
        super().__init__("t", ensemble)
        self.ensemble = ensemble
        self.behind: MemoryTransactionalState | None = None

    def get(self, path: str) -> Node | None:
        return super().get(path) if self.behind is None else self.behind.get(path)

    def synchronize(self) -> None:
        self.behind = None

    def apply(self, steps: Sequence[Step]) -> None:
        before = MemoryEnsemble()
        before.nodes = dict(self.ensemble.nodes)
        try:
            super().apply(steps)
        except CoordinatorUnavailable:
            self.behind = MemoryTransactionalState("t", before)
            raise


def test_a_leader_that_does_not_know_what_was_stored_reads_no_server_that_lags() -> None:
    ensemble = MemoryEnsemble()
    state, time = Lagging(ensemble), Time()
    desk = desk_of(state, time)
    write(state, 1, "kill")
    ensemble.lose_next_answer(landed=True)
    with pytest.raises(CoordinatorUnavailable):
        desk.serve()
    time.now_s = 5.0

    desk.serve()

    assert answer_in(state, 1)["at_s"] == desk.desired.at_s == 1_000.0


@pytest.mark.parametrize(
    ("verb", "wait_s"), [("Kill", 1.0), ("", 1.0), ("kill", -1.0), ("kill", float("nan"))]
)
def test_what_is_no_command_is_refused_before_it_is_written(verb: str, wait_s: float) -> None:
    state = MemoryTransactionalState("t")
    claimed(state)

    with pytest.raises(StateUsageError):
        ask(state, "t", verb, wait_s=wait_s)

    assert state.children(COMMANDS) == []


def test_a_topology_that_never_ran_takes_no_commands() -> None:
    state = MemoryTransactionalState("t")

    with pytest.raises(StateUsageError, match="no topology 't'"):
        ask(state, "t", "kill")

    assert state.children(COMMANDS) == []


def test_who_asked_is_one_line_whatever_the_node_says() -> None:
    assert who({"host": "h\nWARNING", "pid": 1, "user": "\x1b[31m"}).isprintable()
    assert who(["<script>"]) == "['<script>']"


@pytest.mark.parametrize("at_s", [0.0, 1e300, None])
def test_the_error_of_a_killed_topology_says_who_when_and_what_to_do(at_s: float | None) -> None:
    error = killed_error("t", Desired("killed", 3, ANNE, at_s))

    assert isinstance(error, TopologyKilled)
    assert "anne@hall (process 7)" in str(error)
    assert "txtopo activate t" in str(error)
