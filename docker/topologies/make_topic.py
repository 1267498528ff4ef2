"""Makes the topic of the words, unless it is there; compose.yml runs it before all that need it."""

from __future__ import annotations

import os

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

PARTITIONS = 4


def main() -> None:
    """Make it."""
    servers, topic = os.environ["KAFKA_SERVERS"], os.environ["WORDS_TOPIC"]
    # A client that nobody holds gives up what it was asked for.
    client = AdminClient({"bootstrap.servers": servers})
    try:
        client.create_topics([NewTopic(topic, num_partitions=PARTITIONS)])[topic].result()
    except KafkaException as error:
        if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
            raise


if __name__ == "__main__":
    main()
