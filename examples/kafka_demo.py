"""Kills ``kafka_word_count.py`` and its broker at random moments, and compares with plain Python.

``make demo-kafka`` runs it. Words are written all the while; at the end three numbers must be
equal for every word or batch: what was written, what is counted in the database, and what a
consumer of the reports sees.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

from examples.demo import ROOT, lines
from examples.kafka_word_count import REPORTS, WORDS, counted
from tests.harness.servers.kafka import KafkaBroker, jars

PARTITIONS = 4
VOCABULARY = 500
# The words are written over this time, so that the kills come while there is work.
WRITING_S = 10.0
READ_S_MAX = 60.0


class Writer:
    """Writes words, whatever happens to the broker; each is in the topic once."""

    def __init__(self, servers: str, words: list[str]) -> None:
        from confluent_kafka import Producer

        self._words = words
        self._failed: list[str] = []
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "log_level": 0}
        self._producer = Producer({**settings, "message.timeout.ms": 0, "linger.ms": 20})
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Wait until all words are written."""
        self._thread.join()
        self._producer.flush()
        assert not self._failed, self._failed

    def _write(self) -> None:
        pause = max(1, len(self._words) // 200)
        for at, word in enumerate(self._words):
            self._produce(word, at % PARTITIONS)
            if at % pause == 0:
                self._producer.poll(0)
                time.sleep(WRITING_S / 200)

    def _produce(self, word: str, partition: int) -> None:
        """Hand a word to the client, which takes no more of them while the broker is away."""
        while True:
            with suppress(BufferError):
                self._producer.produce(
                    WORDS, word.encode(), partition=partition, on_delivery=self._delivered
                )
                return
            self._producer.poll(0.1)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._failed.append(str(error))


class KafkaDemo:
    """The broker, the child that counts, and the moments at which they are killed."""

    def __init__(self, args: argparse.Namespace, broker: KafkaBroker) -> None:
        self.args = args
        self.broker = broker
        self.random = random.Random(args.seed)
        self.rows: dict[int, int] = {}
        whom = ["driver"] * args.kills + ["broker"] * args.broker_kills
        self.random.shuffle(whom)
        shares = [(at + self.random.uniform(0.2, 0.9)) / len(whom) for at in range(len(whom))]
        self.plan = [
            (share * 0.8 * args.records, who) for share, who in zip(shares, whom, strict=True)
        ]

    def run(self) -> None:
        """Start the child until it ends by itself."""
        while (status := self.one_life()) != 0:
            if status != -signal.SIGKILL:
                log = (self.args.dir / "driver.log").read_text()
                raise SystemExit(f"the driver ended with status {status}: {log[-3000:]}")

    def one_life(self) -> int:
        """Start the child and return its status; kill what the plan says."""
        command = [
            *(sys.executable, "-m", "examples.kafka_word_count", "--dir", str(self.args.dir)),
            *("--servers", self.broker.servers, "--records", str(self.args.records)),
            *("--zookeeper", self.args.zookeeper, "--carrier", self.args.carrier),
        ]
        with (self.args.dir / "driver.log").open("ab") as errors:
            child = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=ROOT
            )
        try:
            for line in lines(child):
                if line["event"] == "committed":
                    self.rows[int(line["txid"])] = int(line["rows"])
                    if self.plan and sum(self.rows.values()) >= self.plan[0][0]:
                        self.kill(self.plan.pop(0)[1], child)
            return child.wait()
        finally:
            child.kill()

    def kill(self, who: str, child: subprocess.Popen[str]) -> None:
        """Kill the driver or the broker; the broker is started again here, the driver later."""
        time.sleep(self.random.uniform(0, 0.1))
        print(f"killing the {who} after the commit of txid {max(self.rows)}", flush=True)
        if who == "driver":
            child.kill()
            return
        self.broker.kill()
        self.broker.start()


def reported(servers: str, words: int, topic: str = REPORTS) -> list[tuple[int, int]]:
    """Return txid and words of each report, as a consumer of committed records sees them.

    The broker says that a transaction is committed before everybody can read it; so the end of the
    topic only counts when all words are there, or do not come.
    """
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "demo",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[tuple[int, int]] = []
    deadline_s, done = time.monotonic() + READ_S_MAX, False
    while not done and time.monotonic() < deadline_s:
        for message in consumer.consume(100, 0.1):
            error = message.error()
            if error is not None:
                at_end = error.code() == KafkaError._PARTITION_EOF
                done = at_end and sum(n for _, n in found) >= words
                continue
            report = json.loads(message.value() or b"")
            found.append((report["txid"], report["words"]))
    consumer.close()
    return found


def run_demo(args: argparse.Namespace) -> int:
    """Run it and print the totals; return 0 if they are equal."""
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    chance = random.Random(args.seed)
    words = [f"word-{int(chance.paretovariate(0.7)) % VOCABULARY}" for _ in range(args.records)]
    with KafkaBroker() as broker:
        new = [NewTopic(WORDS, PARTITIONS, 1), NewTopic(REPORTS, 1, 1)]
        for made in broker.admin.create_topics(new).values():
            made.result(60)
        writer = Writer(broker.servers, words)
        demo = KafkaDemo(args, broker)
        demo.run()
        writer.finish()
        reports = reported(broker.servers, len(words))
    counts = counted(f"sqlite:///{args.dir / 'words.db'}")
    print(f"words written:  {len(words):,} ({len(set(words))} different)")
    print(f"words counted:  {sum(counts.values()):,} ({len(counts)} different)")
    print(f"words reported: {sum(n for _, n in reports):,} in {len(reports)} batches")
    equal = counts == Counter(words) and sum(n for _, n in reports) == len(words)
    once = [txid for txid, _ in reports] == list(range(1, len(reports) + 1))
    print("equal" if equal and once and not demo.plan else "NOT EQUAL")
    return 0 if equal and once and not demo.plan else 1


def main() -> int:
    """Run the demo with what the command line says."""
    parser = argparse.ArgumentParser(
        description="count words from Kafka while processes are killed"
    )
    parser.add_argument("--records", type=int, default=200_000, help="how many words")
    parser.add_argument("--kills", type=int, default=2, help="how often to kill the driver")
    parser.add_argument("--broker-kills", type=int, default=2, help="how often to kill the broker")
    parser.add_argument("--seed", type=int, help="seed for words and kills; random by default")
    parser.add_argument("--dir", type=Path, default=Path("txtopo-demo/kafka"))
    parser.add_argument("--zookeeper", default="embedded", help="host:port of a running server")
    parser.add_argument("--carrier", default="auto", help="auto, local, rdd or dataframe")
    args = parser.parse_args()
    if jars() is None:
        raise SystemExit("no Kafka broker was found; run make kafka")
    args.seed = random.randrange(1_000_000) if args.seed is None else args.seed
    args.dir = args.dir.absolute()
    shutil.rmtree(args.dir, ignore_errors=True)
    args.dir.mkdir(parents=True)
    print(f"seed {args.seed}", flush=True)
    return run_demo(args)


if __name__ == "__main__":
    sys.exit(main())
