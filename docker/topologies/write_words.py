"""Writes words into a Kafka topic, this many a second, until it is stopped."""

from __future__ import annotations

import itertools
import os

from confluent_kafka import Producer

from txtopo import clock

WORDS = ("the", "cat", "and", "the", "dog", "and", "the", "bird", "see", "one", "fish")


def main() -> None:
    """Write for ever."""
    topic, per_second = os.environ["WORDS_TOPIC"], int(os.environ["WORDS_PER_SECOND"])
    producer = Producer(
        {"bootstrap.servers": os.environ["KAFKA_SERVERS"], "enable.idempotence": True}
    )
    words = itertools.cycle(WORDS)
    while True:
        for word in itertools.islice(words, per_second):
            producer.produce(topic, word)
        producer.flush()
        clock.sleep(1.0)


if __name__ == "__main__":
    main()
