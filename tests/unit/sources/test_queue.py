"""QueueSpout on a real RabbitMQ: what the server keeps, and until when."""

from __future__ import annotations

import time

import pytest

from tests.harness.polling import LIMIT_S, wait_until
from tests.harness.servers.rabbitmq import RabbitServer
from tests.harness.servers.tcp_proxy import Flow, TcpProxy
from tests.unit.reliable.bolts import ByHand, Forward, Seen
from tests.unit.sources.queues import Driven, TestQueue
from txtopo import (
    AtLeastOnceConfig,
    BasicBolt,
    Bolt,
    FailedException,
    Fields,
    OutputCollector,
    TopologyBuilder,
    Tuple,
)
from txtopo.builders import ReliableTopology
from txtopo.errors import AuthError, FieldsError, InfrastructureError, SourceDataLost
from txtopo.runtime.handle import ReliableRun
from txtopo.spouts import QueueSpout

LOCAL = AtLeastOnceConfig(carrier="local", slots=2)
WORDS = Fields("word string")
PATIENCE_S = 15.0


def topology(spout: QueueSpout, bolt: Bolt | BasicBolt, tasks: int = 1) -> ReliableTopology:
    builder = TopologyBuilder("queued")
    builder.set_spout("queue", spout, tasks)
    builder.set_bolt("bolt", bolt).shuffle_grouping("queue")
    return builder.build_topology()


def noting(seen: Seen, *held: str) -> Bolt:
    """Return a bolt that notes each word, and acks all but those that it holds."""

    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        seen.notes.append(tuple["word"])
        if tuple["word"] not in held:
            collector.ack(tuple)

    return ByHand(execute)


def until_acked(run: ReliableRun, trees: int) -> None:
    """Wait until this many trees are acked."""

    def are_acked() -> bool:
        assert not run.await_termination(0.01)
        return run.last_progress is not None and run.last_progress.acked >= trees

    wait_until(are_acked, f"{trees} trees are acked")


def until_seen(run: ReliableRun, seen: Seen, words: set[str]) -> None:
    """Wait until all the words have come."""

    def have_come() -> bool:
        assert not run.await_termination(0.01)
        return words <= set(seen.notes)

    wait_until(have_come, lambda: f"{words - set(seen.notes)} have come")


def test_every_message_is_processed_and_then_gone(rabbitmq: RabbitServer) -> None:
    queue, seen = TestQueue(rabbitmq), Seen()
    words = [f"word {i}" for i in range(200)]
    queue.put(*words)

    run = topology(QueueSpout(rabbitmq.url(), queue.name, WORDS), noting(seen), 2).start(
        None, LOCAL
    )
    until_acked(run, 200)
    run.stop(LIMIT_S)

    assert sorted(seen.notes) == sorted(words)
    assert queue.take() == []


@pytest.mark.parametrize(
    ("prefetch", "pending_max", "delay_s"),
    [(1, None, 0), (50, None, 0), (None, 10, 0), (20, None, 0.02)],
)
def test_the_queue_is_empty_when_all_that_is_available_is_processed(
    rabbitmq: RabbitServer, prefetch: int | None, pending_max: int | None, delay_s: float
) -> None:
    """A spout that has nothing yet, because the server has not heard of its acks, is not done."""
    queue, seen = TestQueue(rabbitmq), Seen()
    words = {f"word {i}" for i in range(150)}
    queue.put(*words)
    config = AtLeastOnceConfig(carrier="local", max_spout_pending=pending_max)
    with TcpProxy(rabbitmq.port) as proxy:
        proxy.set_flows(Flow(delay_s=delay_s), Flow(delay_s=delay_s))
        spout = QueueSpout(rabbitmq.url(port=proxy.port), queue.name, WORDS, prefetch=prefetch)
        with topology(spout, noting(seen)).start(None, config) as run:
            run.process_all_available(LIMIT_S)
            found = set(seen.notes)

    assert (found, queue.ready()) == (words, 0)


@pytest.mark.slow
def test_a_message_that_takes_longer_than_the_patience_of_the_server_is_processed_once(
    rabbitmq: RabbitServer,
) -> None:
    """The spout answers heartbeats although it may emit no more."""
    queue, seen = TestQueue(rabbitmq), Seen()
    queue.put("a")

    def execute(collector: OutputCollector, tuple: Tuple) -> None:
        seen.notes.append(tuple["word"])
        if len(seen.notes) == 1:
            time.sleep(PATIENCE_S)  # a server without an answer would close the connection twice
        collector.ack(tuple)

    spout = QueueSpout(f"{rabbitmq.url()}?heartbeat=3", queue.name, WORDS)
    config = AtLeastOnceConfig(carrier="local", max_spout_pending=1)
    with topology(spout, ByHand(execute)).start(None, config) as run:
        run.process_all_available(LIMIT_S)

    assert (seen.notes, queue.ready()) == (["a"], 0)


def test_a_spout_without_a_connection_may_have_more(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    queue.put("a", "b")
    with TcpProxy(rabbitmq.port) as proxy:
        driven = Driven(QueueSpout(rabbitmq.url(port=proxy.port), queue.name, WORDS, prefetch=1))
        ((_, first),) = driven.next(1)
        assert driven.spout.may_have_more()  # it is not acked
        driven.spout.ack(first)
        ((_, second),) = driven.next(1)
        driven.spout.ack(second)
        assert not driven.spout.may_have_more()
        proxy.cut()
        driven.spout.next_tuple()
        assert driven.spout.may_have_more()
        proxy.repair()
        driven.spout.close()


def test_a_message_stays_with_the_server_until_it_is_acked(rabbitmq: RabbitServer) -> None:
    queue, seen = TestQueue(rabbitmq), Seen()
    queue.put("a", "held", "b")
    spout = QueueSpout(rabbitmq.url(), queue.name, WORDS)

    run = topology(spout, noting(seen, "held")).start(None, LOCAL)
    until_acked(run, 2)
    assert queue.ready() == 0
    run.stop(LIMIT_S)

    assert queue.take() == [b"held"]


@pytest.mark.parametrize("prefetch", [None, 2])
def test_no_more_are_open_than_may_be_pending(rabbitmq: RabbitServer, prefetch: int | None) -> None:
    queue = TestQueue(rabbitmq)
    queue.put(*"abcdefgh")
    spout = QueueSpout(rabbitmq.url(), queue.name, WORDS, prefetch=prefetch)
    driven = Driven(spout, AtLeastOnceConfig(max_spout_pending=3))

    open_now = prefetch or 3
    ids = [id for _, id in driven.next(open_now)]
    queue.wait_for(8 - open_now)
    for _ in range(20):
        driven.spout.next_tuple()
    assert len(driven.emitted) == open_now
    driven.spout.ack(ids[0])
    driven.next(1)
    queue.wait_for(8 - open_now - 1)
    driven.spout.close()


def test_what_fails_comes_again(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    queue.put("a")
    driven = Driven(QueueSpout(rabbitmq.url(), queue.name, WORDS))

    ((_, first),) = driven.next(1)
    driven.spout.fail(first)
    ((again, second),) = driven.next(1)
    driven.spout.ack(second)
    driven.spout.close()

    assert (again, first != second, queue.take()) == ("a", True, [])


def test_what_was_heard_before_a_lost_connection_is_void(rabbitmq: RabbitServer) -> None:
    """The first tags of two connections are the same; an ack of one is none of the other."""
    queue = TestQueue(rabbitmq)
    queue.put("a")
    with TcpProxy(rabbitmq.port) as proxy:
        driven = Driven(QueueSpout(rabbitmq.url(port=proxy.port), queue.name, WORDS))
        ((_, old),) = driven.next(1)
        proxy.cut()
        queue.wait_for(1)
        proxy.repair()
        ((_, new),) = driven.next(1)
        driven.spout.ack(old)
        driven.spout.fail(old)
        assert old[1] == new[1]
        driven.spout.close()
    assert queue.take() == [b"a"]
    assert [type(error) for error in driven.errors] == [InfrastructureError] * len(driven.errors)
    assert driven.errors


def test_an_ack_on_a_dead_connection_is_reported_and_the_message_comes_again(
    rabbitmq: RabbitServer,
) -> None:
    queue = TestQueue(rabbitmq)
    queue.put("a")
    with TcpProxy(rabbitmq.port) as proxy:
        driven = Driven(QueueSpout(rabbitmq.url(port=proxy.port), queue.name, WORDS))
        ((_, id),) = driven.next(1)
        proxy.cut()
        queue.wait_for(1)
        driven.spout.ack(id)
        driven.spout.ack(id)
        proxy.repair()
        ((again, id),) = driven.next(1)
        driven.spout.ack(id)
        driven.spout.close()
    assert (again, len(driven.errors) > 0, queue.take()) == ("a", True, [])


def test_a_run_goes_on_after_its_connection_was_lost(rabbitmq: RabbitServer) -> None:
    queue, seen = TestQueue(rabbitmq), Seen()
    words = [f"word {i}" for i in range(300)]
    with TcpProxy(rabbitmq.port) as proxy:
        spout = QueueSpout(rabbitmq.url(port=proxy.port), queue.name, WORDS)
        config = AtLeastOnceConfig(carrier="local", max_spout_pending=20)
        with topology(spout, noting(seen)).start(None, config) as run:
            # What is cut before the spout is open ends the run.
            queue.put("first")
            until_seen(run, seen, {"first"})
            for start in range(0, 300, 100):
                queue.put(*words[start : start + 100])
                proxy.cut()
                proxy.repair()
            # What comes over the new connection is seen; what was open on those that the server has
            # not yet missed comes again when it does.
            queue.put("last")
            until_seen(run, seen, {"first", "last", *words})
            queue.wait_for(0, consumers=1)
            run.process_all_available(LIMIT_S)
    queue.wait_for(0, consumers=0)
    assert set(seen.notes) == {"first", "last", *words}


def test_a_message_that_fails_too_often_ends_as_a_dead_letter(rabbitmq: RabbitServer) -> None:
    dead = TestQueue(rabbitmq)
    arguments = {
        "x-queue-type": "quorum",
        "x-delivery-limit": 2,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": dead.name,
    }
    queue = TestQueue(rabbitmq, **arguments)
    queue.put("good", "poison", "fine")

    spout = QueueSpout(rabbitmq.url(), queue.name, WORDS)
    with topology(spout, Forward("poison")).start(None, LOCAL) as run:
        dead.wait_for(1)
        run.process_all_available(LIMIT_S)
        progress = run.last_progress

    assert progress is not None
    assert (progress.acked, progress.failed, dead.take()) == (2, 3, [b"poison"])


def decoded(body: bytes) -> list[str] | None:
    if body == b"broken":
        raise FailedException("broken")
    return None if body == b"skipped" else [body.decode()]


def test_what_cannot_be_decoded_is_rejected_or_skipped(rabbitmq: RabbitServer) -> None:
    dead = TestQueue(rabbitmq)
    to_dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    queue = TestQueue(rabbitmq, **to_dead)
    queue.put("skipped", "broken", "a")
    driven = Driven(QueueSpout(rabbitmq.url(), queue.name, WORDS, decoded))

    ((word, id),) = driven.next(1)
    driven.spout.ack(id)
    driven.spout.close()

    assert (word, dead.take(), queue.take()) == ("a", [b"broken"], [])
    assert [str(error) for error in driven.errors] == ["broken"]


def test_bytes_that_are_no_text_end_the_run_and_stay_with_the_server(
    rabbitmq: RabbitServer,
) -> None:
    queue = TestQueue(rabbitmq)
    queue.put(b"\xff")
    run = topology(QueueSpout(rabbitmq.url(), queue.name, WORDS), Forward()).start(None, LOCAL)

    with pytest.raises(FieldsError, match=r"not text in UTF-8; got b'\\xff'; pass"):
        run.await_termination(LIMIT_S)
    queue.wait_for(1)


def test_a_deactivated_spout_gives_back_what_it_has_not_emitted(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    queue.put(*"abcde")
    driven = Driven(QueueSpout(rabbitmq.url(), queue.name, WORDS))

    ((_, id),) = driven.next(1)
    driven.spout.deactivate()
    queue.wait_for(4)
    driven.spout.ack(id)
    driven.spout.activate()
    ids = [id for _, id in driven.next(4)]
    for each in ids:
        driven.spout.ack(each)
    driven.spout.close()
    assert queue.take() == []


def test_without_ackers_a_message_is_gone_when_it_is_emitted(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    queue.put("a")
    driven = Driven(QueueSpout(rabbitmq.url(), queue.name, WORDS), acks=True)

    driven.next(1)
    driven.spout.close()

    assert queue.take() == []


def test_a_queue_that_is_deleted_and_made_again_is_read_again(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    queue.put("a")
    driven = Driven(QueueSpout(rabbitmq.url(), queue.name, WORDS))
    driven.next(1)

    queue.delete()
    while not any(isinstance(error, SourceDataLost) for error in driven.errors):
        driven.spout.next_tuple()
    queue.declare()
    queue.put("b")
    ((word, _),) = driven.next(1)
    driven.spout.close()

    assert word == "b"


def test_what_is_wrong_at_the_start_ends_the_run(rabbitmq: RabbitServer) -> None:
    queue = TestQueue(rabbitmq)
    wrong = [
        (rabbitmq.url(password="secret-word"), queue.name, AuthError, "refuses spout 'queue'"),
        (rabbitmq.url(), "no such queue", SourceDataLost, "found no queue 'no such queue'"),
        (rabbitmq.url(port=1), queue.name, InfrastructureError, "has no connection"),
    ]
    for url, name, kind, text in wrong:
        run = topology(QueueSpout(url, name, WORDS), Forward()).start(None, LOCAL)
        with pytest.raises(kind, match=text) as caught:
            run.await_termination(LIMIT_S)
        assert "secret-word" not in str(caught.value)
