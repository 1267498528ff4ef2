"""Writes words into a Kafka topic, so many a second, until it is stopped; makes the topic."""

from __future__ import annotations

import itertools
import os

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from txtopo import clock

WORDS = ("the", "cat", "and", "the", "dog", "and", "the", "bird", "see", "one", "fish")
PARTITIONS = 4


def main() -> None:
    """Write for ever."""
    servers, topic = os.environ["KAFKA_SERVERS"], os.environ["WORDS_TOPIC"]
    per_second = int(os.environ["WORDS_PER_SECOND"])
    try:
        made = AdminClient({"bootstrap.servers": servers}).create_topics(
            [NewTopic(topic, num_partitions=PARTITIONS)]
        )
        made[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True})
    words = itertools.cycle(WORDS)
    while True:
        for word in itertools.islice(words, per_second):
            producer.produce(topic, word)
        producer.flush()
        clock.sleep(1.0)


if __name__ == "__main__":
    main()
