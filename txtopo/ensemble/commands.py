"""Commands: operators' requests to a topology through its ensemble, and the resulting status.

Rules
-----
1. A client sends a command by creating a node below ``/commands``, with the number after the
   highest known one. If two clients take the same number, the write of the second is refused, and
   it takes the next. The node contains a random id of the request. If a client's write is refused
   because of a node with its own id, the command was sent: the response was lost with the
   connection, and a leader has written the node since.
2. Only the process that has claimed an epoch answers. One write, with the check of that epoch,
   stores the answer in the command's node and the resulting status in ``/desired``. So a deposed
   leader cannot answer, and no crash leaves one without the other.
3. The write comes before the effect. If a leader ends before the write, the command is left to the
   next leader. If it ends after the write, the next leader reads ``/desired`` when it takes over,
   after it has claimed its epoch and before it claims a store or plans a batch: a killed topology
   is not run, a deactivated one is run without new batches.
4. The answering process obeys ``/desired`` and not its memory. After an error it does not know
   whether its write was done, so it reads the node again.
5. A command is executed at most once. An answered command is never executed again. Numbers are
   answered in order, and ``/desired`` keeps the last one; a node with that number or a lower one
   was written by a client that chose it long ago, and is refused.
6. Answers are kept for :data:`ANSWER_KEPT_S`, counted from when the leader first saw them, since
   the clocks of two machines differ. Then the leader deletes them.
7. Without a leader, the client leads itself, claims an epoch and answers by these rules, earlier
   commands of others first.
8. An unreadable command is refused, not executed, and does not end the run. A command whose node
   only somebody else may read or write is skipped with a warning that names it.
"""

from __future__ import annotations

import getpass
import json
import math
import secrets
import sys
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Protocol

from txtopo import clock
from txtopo.ensemble.journal import Journal
from txtopo.ensemble.nodes import COMMANDS, DESIRED, EPOCH, corrupt
from txtopo.ensemble.store import (
    Check,
    CompareAndSet,
    Delete,
    Json,
    Node,
    Put,
    TransactionalState,
    VersionConflict,
    this_process,
)
from txtopo.errors import (
    AuthError,
    CommandUnanswered,
    CorruptNodeError,
    FencedError,
    SchemaVersionError,
    StateUsageError,
    TopologyKilled,
    escaped,
    nearest,
)
from txtopo.log_records import logger_of

RUNNING, DEACTIVATED, KILLED = "running", "deactivated", "killed"

STATUS_AFTER = {"activate": RUNNING, "deactivate": DEACTIVATED, "kill": KILLED}
"""The status that each verb leads to."""

ANSWER_KEPT_S = 60.0
"""How long a client may be suspended and still read its answer."""

DELETES_MAX = 1_000
"""How many answers are deleted in one write."""

COMMAND_BYTES_MAX = 10_000
"""A larger command is not ours; its answer, which repeats it twice, may not fit into a write."""

LEAD_S = 0.5
"""How long a client waits for the leadership between two checks of its command."""

NUMBERS_TRIED_MAX = 100
"""How many clients may send a command at the same moment."""


_logger = logger_of("txtopo.ensemble")


class Time(Protocol):
    """The methods of a ``Scheduler`` that are needed here."""

    def now(self) -> float:
        """Return seconds on a clock that only goes forward."""
        ...

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        ...

    def point(self, name: str) -> None:
        """Mark a durable step."""
        ...


class RealTime:
    """Time in a process that does not run the topology."""

    def now(self) -> float:
        """Return seconds on the monotonic clock."""
        return clock.now()

    def wall_clock(self) -> float:
        """Return seconds since 1970."""
        return clock.wall_clock()

    def point(self, name: str) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Desired:
    """The status that a topology should have, according to ``/desired``.

    Attributes:
        status: ``running``, ``deactivated`` or ``killed``.
        command: Number of the last command that was answered; 0 for none.
        by: Host, process and user that requested the status; None if nobody did.
        at_s: When it was answered, in seconds since 1970, on the clock of the leader.
        wait_s: After ``kill``: how long batches in flight may take.
    """

    status: str = RUNNING
    command: int = 0
    by: Json = None
    at_s: float | None = None
    wait_s: float = 0.0

    def __str__(self) -> str:
        return self.status if self.by is None else f"{self.status}, as {who(self.by)} asked"

    def to_json(self) -> Json:
        """Return the value of the node."""
        value: dict[str, Json] = {
            "status": self.status,
            "command": self.command,
            "by": self.by,
            "at_s": self.at_s,
        }
        return {**value, "wait_s": self.wait_s} if self.status == KILLED else value

    def same_request(self, other: Desired) -> bool:
        """Return whether both are from the same request; only refused commands may lie between."""
        return replace(self, command=0) == replace(other, command=0)


def desired_of(node: Node | None) -> Desired:
    """Return the status that a topology should have; without the node it should run.

    Raises:
        CorruptNodeError: The node holds something else.
    """
    if node is None:
        return Desired()
    match node.value:
        case {"status": str(status), "command": int(command), **rest} if command >= 0:
            at_s, wait_s = rest.get("at_s"), rest.get("wait_s", 0.0)
            known = status in STATUS_AFTER.values()
            if known and _is_seconds(wait_s) and (at_s is None or _is_seconds(at_s)):
                return Desired(status, command, rest.get("by"), at_s, wait_s)  # type: ignore[arg-type]
    raise corrupt(DESIRED, node.value)


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a command.

    Attributes:
        number: Number of the command.
        status: The status that the topology is to have now; None if the command was refused.
        refused: Why it was refused; None if it was done.
        epoch: The epoch that answered.
        by: Host and process that answered: the leader's or, without one, the client's.
        at_s: When, in seconds since 1970, by the clock of that process.
    """

    number: int
    status: str | None
    refused: str | None
    epoch: int | None
    by: Json
    at_s: float | None


def killed_error(topology_id: str, desired: Desired) -> TopologyKilled:
    """Return the error for a process that may not run a topology because it was killed."""
    when = "" if desired.at_s is None else f" at {_utc(desired.at_s)}"
    return TopologyKilled(
        f"topology {topology_id!r} was killed by {who(desired.by)}{when}; expected a topology "
        f"that may run; to revive it, txtopo activate {topology_id}, then start it again",
        by=desired.by,
        at_s=desired.at_s,
    )


def who(by: Json) -> str:
    """Return the requester as text: ``user@host (process 12)``."""
    match by:
        case {"host": host, "pid": pid, **rest}:
            user = rest.get("user")
            return escaped(f"{f'{user}@' if user else ''}{host} (process {pid})")
    return repr(by)


def this_operator() -> dict[str, Json]:
    """Return what identifies this process as a requester."""
    try:
        user: Json = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name, as in a container
        user = None
    process = this_process()
    return {"host": process["host"], "pid": process["pid"], "user": user}


class CommandDesk:
    """Answers commands under a claimed epoch. One call at a time, from any thread; it blocks.

    Args:
        state: The transactional state.
        journal: Writes under the epoch.
        desired: What ``/desired`` held after the claim; None to read it first.
        time: Clocks and durable steps.

    Attributes:
        desired: What ``/desired`` held when it was last read or written.
    """

    def __init__(
        self,
        state: TransactionalState,
        journal: Journal,
        desired: Desired | None,
        time: Time,
    ) -> None:
        self.desired = desired or Desired()
        self._state = state
        self._journal = journal
        self._time = time
        self._unsure = desired is None
        self._answered: dict[int, float] = {}
        self._passed_over: set[int] = set()

    def serve(self) -> None:
        """Answer pending commands, in order, and delete old answers.

        Raises:
            InfrastructureError: The ensemble cannot be reached; call it again later.
            FencedError: Another coordinator has taken over; nothing more was answered.
            CorruptNodeError: ``/desired`` cannot be read.
        """
        if self._unsure:  # a server that lags behind would show old values
            self._state.synchronize()
        asked = self._asked()
        if asked or self._unsure:
            self.desired = desired_of(self._state.get(DESIRED))
            self._unsure = False
        for number, value in asked:
            try:
                self._answer(number, value)
            except AuthError as error:
                if not str(error.facts.get("path")).endswith(command_path(number)):
                    raise
                self._unsure = False  # neither of the two was written
                self._pass_over(number, error)
        self._delete_old()

    def _asked(self) -> list[tuple[int, Json]]:
        """Return the commands without an answer, by number."""
        numbers = [int(name) for name in self._state.children(COMMANDS) if _is_number(name)]
        there = set(numbers)
        self._answered = {n: at_s for n, at_s in self._answered.items() if n in there}
        self._passed_over &= there
        asked: list[tuple[int, Json]] = []
        for number in numbers:
            if number in self._answered or number in self._passed_over:
                continue
            try:
                node = self._state.get(command_path(number))
            except AuthError as error:
                self._pass_over(number, error)
                continue
            except (CorruptNodeError, SchemaVersionError) as error:
                asked.append((number, {"verb": None, "unreadable": str(error)}))
                continue
            if node is not None and answer_of(number, node.value) is not None:
                self._answered[number] = self._time.now()
            elif node is not None:
                asked.append((number, _bounded(node.value)))
        return asked

    def _answer(self, number: int, value: Json) -> None:
        refused, at_s = self._refusal(number, value), self._time.wall_clock()
        command: dict[str, Json] = value if isinstance(value, dict) else {"verb": None}
        answer: dict[str, Json] = {"epoch": self._journal.epoch, "at_s": at_s, "by": this_process()}
        if refused is None:
            verb, by = str(command["verb"]), command.get("by")
            wait_s = _wait_s(command) if verb == "kill" else 0.0
            desired = Desired(STATUS_AFTER[verb], number, by, at_s, wait_s)
            answer["status"] = desired.status
        else:
            desired = replace(self.desired, command=max(number, self.desired.command))
            answer["refused"] = refused
        self._unsure = True
        self._time.point("command.before")
        self._journal.write(
            [
                Put(DESIRED, desired.to_json()),
                Put(command_path(number), {**command, "answer": answer}),
            ]
        )
        self._time.point("command.after")
        self.desired, self._unsure = desired, False
        self._answered[number] = self._time.now()

    def _pass_over(self, number: int, error: AuthError) -> None:
        """Skip a command that the leader's credentials cannot read or answer; warn of it once."""
        self._passed_over.add(number)
        text = "command %d is skipped: %s; delete it with the credentials that wrote it"
        _logger.warning(text, number, error)

    def _refusal(self, number: int, value: Json) -> str | None:
        """Return why a command is refused; None if it is not."""
        if number <= self.desired.command:
            return (
                f"a command with number {number} was already answered, and the last one has "
                f"number {self.desired.command}; send it again, which uses a new number"
            )
        verb = value.get("verb") if isinstance(value, dict) else None
        if not isinstance(verb, str) or verb not in STATUS_AFTER:
            return f"its verb is unknown to this version of txtopo; got {value!r:.200}; {_EXPECTED}"
        assert isinstance(value, dict)
        if not _is_seconds(_wait_s(value)):
            return f"wait_s is not a number of seconds; got {value.get('arguments')!r:.200}"
        if verb == "deactivate" and self.desired.status == KILLED:
            return f"the topology was killed by {who(self.desired.by)}; activate it first"
        return None

    def _delete_old(self) -> None:
        now_s = self._time.now()
        old = [n for n, at_s in self._answered.items() if now_s - at_s >= ANSWER_KEPT_S]
        old = old[:DELETES_MAX]
        if old:
            self._journal.write([Delete(command_path(number)) for number in old])
            self._answered = {n: at_s for n, at_s in self._answered.items() if n not in old}


def ask(
    state: TransactionalState,
    topology_id: str,
    verb: str,
    *,
    wait_s: float = 30.0,
    timeout_s: float = 30.0,
    time: Time | None = None,
    by: dict[str, Json] | None = None,
) -> Answer:
    """Send a command and wait for its answer. Without a leader, lead and answer it here.

    Args:
        state: The transactional state; close it afterwards to give up the place in the election.
        topology_id: Its id.
        verb: ``activate``, ``deactivate`` or ``kill``.
        wait_s: ``kill``: how many seconds batches in flight may take.
        timeout_s: How many seconds to wait for the answer.
        time: Clocks and durable steps; real time by default.
        by: The requester; by default this process and its user.

    Raises:
        StateUsageError: There is no such topology or verb, or *wait_s* is not a number of seconds.
        CommandUnanswered: A leader has not answered in time; the command is still pending.
        CoordinatorUnavailable: The ensemble cannot be reached. The command may be pending.
        CorruptNodeError: ``/desired`` cannot be read.
    """
    check_command(verb, wait_s)
    time, candidate = time or RealTime(), {**(by or this_process()), "operator": True}
    arguments: dict[str, Json] = {"wait_s": wait_s} if verb == "kill" else {}
    by = by or this_operator()
    number = _write(state, topology_id, verb, arguments, by, time.wall_clock())
    time.point("ask.written")
    until_s = time.now() + timeout_s
    while True:
        answer = _look(state, topology_id, verb, number)
        if answer is not None:
            return answer
        if time.now() >= until_s:
            raise _unanswered(state, topology_id, verb, number, timeout_s)
        leadership = state.lead(candidate, timeout_s=LEAD_S, on_lost=_nothing)
        if leadership is None:
            continue
        try:
            _answer_here(state, number, candidate, time)
        except FencedError:
            continue  # a coordinator claimed an epoch at the same time, and will answer
        finally:
            leadership.release()


def _no_topology(topology_id: str, verb: str) -> StateUsageError:
    what = f"there is no topology {topology_id!r} to {verb}"
    return StateUsageError(
        f"{what}; expected the id of one that ran in this ensemble", topology=topology_id
    )


def check_command(verb: str, wait_s: float) -> None:
    """Check a user's command.

    Raises:
        StateUsageError: It is not a command.
    """
    if verb not in STATUS_AFTER:
        raise StateUsageError(
            f"unknown command {verb!r}; {nearest(verb, STATUS_AFTER)}",
            verb=verb,
            expected=tuple(STATUS_AFTER),
        )
    if not _is_seconds(wait_s):
        raise StateUsageError(
            f"wait_s is not a number of seconds; got {wait_s!r}; expected 0 or more",
            setting="wait_s",
            got=repr(wait_s),
        )


def _answer_here(
    state: TransactionalState, number: int, candidate: dict[str, Json], time: Time
) -> None:
    """Answer all commands as the leader, unless this client's command is answered already."""
    state.synchronize()
    node = state.get(command_path(number))
    if node is None or answer_of(number, node.value) is not None or state.get(EPOCH) is None:
        return
    journal = Journal(state)
    time.point("ask.before-epoch")
    journal.claim_epoch(candidate, token=secrets.token_hex(8))
    time.point("ask.after-epoch")
    CommandDesk(state, journal, None, time).serve()


def _write(
    state: TransactionalState,
    topology_id: str,
    verb: str,
    arguments: dict[str, Json],
    by: dict[str, Json],
    at_s: float,
) -> int:
    id = secrets.token_hex(8)
    command: Json = {"verb": verb, "arguments": arguments, "by": by, "at_s": at_s, "id": id}
    state.synchronize()
    for _ in range(NUMBERS_TRIED_MAX):
        epoch = state.get(EPOCH)
        if epoch is None:
            raise _no_topology(topology_id, verb)
        number = max(desired_of(state.get(DESIRED)).command, last_number(state)) + 1
        # The check prevents a command in the nodes of a topology that is forgotten meanwhile.
        ask_once = CompareAndSet(command_path(number), command, None)
        try:
            state.apply([Check(EPOCH, epoch.version), ask_once])
        except VersionConflict:
            state.synchronize()
            if not _is_asked(state, number, id):
                continue
        return number
    raise CommandUnanswered(
        f"{NUMBERS_TRIED_MAX} other commands came first, one after the other; expected a free "
        "number; try again",
        topology=topology_id,
        tries=NUMBERS_TRIED_MAX,
    )


def _is_asked(state: TransactionalState, number: int, id: str) -> bool:
    """Return whether a command's node is of the request with this id."""
    try:
        node = state.get(command_path(number))
    except (CorruptNodeError, SchemaVersionError):
        return False  # another client wrote it
    return node is not None and isinstance(node.value, dict) and node.value.get("id") == id


def last_number(state: TransactionalState) -> int:
    """Return the highest number of a command that has a node; 0 if none has."""
    return max((int(name) for name in state.children(COMMANDS) if _is_number(name)), default=0)


def _look(state: TransactionalState, topology_id: str, verb: str, number: int) -> Answer | None:
    node = state.get(command_path(number))
    if node is not None:
        return answer_of(number, node.value)
    # This client was suspended for so long that its answer was deleted, or the topology forgotten.
    desired = desired_of(state.get(DESIRED))
    if desired.command == number and desired.status == STATUS_AFTER[verb]:  # else refused
        return Answer(number, desired.status, None, None, None, desired.at_s)
    raise CommandUnanswered(
        f"command {number} to topology {topology_id!r} no longer exists; its answer was deleted "
        f"after {ANSWER_KEPT_S:g} s, or the topology was forgotten; check its status",
        command=number,
    )


def _unanswered(
    state: TransactionalState, topology_id: str, verb: str, number: int, timeout_s: float
) -> CommandUnanswered:
    leader = state.leader()
    return CommandUnanswered(
        f"nobody answered command {number}, to {verb} topology {topology_id!r}, in {timeout_s:g} "
        f"s; {who(leader)} leads; the command is still pending and will be executed by the next "
        "leader at the latest; check whether the leader hangs",
        command=number,
        leader=leader,
    )


def answer_of(number: int, value: Json) -> Answer | None:
    """Return the answer in the value of a command's node, or None."""
    match value:
        case {"answer": {**answer}}:
            status, refused = answer.get("status"), answer.get("refused")
            epoch, at_s = answer.get("epoch"), answer.get("at_s")
            return Answer(
                number,
                status if isinstance(status, str) else None,
                refused if isinstance(refused, str) else None,
                epoch if isinstance(epoch, int) else None,
                answer.get("by"),  # type: ignore[arg-type]
                at_s if isinstance(at_s, int | float) else None,
            )
    return None


def _bounded(value: Json) -> Json:
    """Return a command; in place of one that is too large, return a command that is refused."""
    size = len(json.dumps(value))
    if size <= COMMAND_BYTES_MAX:
        return value
    return {"verb": None, "unreadable": f"{size} bytes; expected at most {COMMAND_BYTES_MAX}"}


def command_path(number: int) -> str:
    """Return the path of a command."""
    return f"{COMMANDS}/{number:020d}"


_EXPECTED = f"expected one of {', '.join(STATUS_AFTER)}"


def _is_number(name: str) -> bool:
    return len(name) == 20 and name.isascii() and name.isdigit()


def _wait_s(command: dict[str, Json]) -> float:
    arguments = command.get("arguments")
    wait_s = arguments.get("wait_s", 0.0) if isinstance(arguments, dict) else 0.0
    return wait_s if _is_seconds(wait_s) else math.nan  # type: ignore[return-value]


def _is_seconds(value: object) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return 0 <= value <= sys.float_info.max  # a whole number in JSON may be larger


def _utc(at_s: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):
        return f"{at_s} s since 1970"


def _nothing() -> None:
    """Ignore a lost leadership: the write that checks the epoch will notice it."""
