"""What a format asks of its registry, and what a registry in trouble does to a batch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.harness.servers.schema_registry import SchemaRegistry
from tests.unit.kafka.formats.messages import message_class
from tests.unit.kafka.formats.records import a_subject, read, taken, written
from tests.unit.kafka.formats.test_avro import NOWHERE, SALE, field, record
from txtopo import Avro, Fields, Protobuf
from txtopo.bolts import KafkaSink
from txtopo.errors import AuthError, ConfigError, FieldsError, InfrastructureError
from txtopo.kafka.formats import schema_format
from txtopo.spouts import KafkaTransactionalSpout

pytestmark = pytest.mark.service("schema-registry")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[SchemaRegistry]:
    """A registry of its own, and a process that knows nothing of it."""
    monkeypatch.setattr(schema_format, "_kept", {})
    with SchemaRegistry() as own:
        yield own


def a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_format, "_kept", {})


@pytest.mark.rule("txtopo.kafka.formats.schema_format", "Rules", 1)
def test_a_process_asks_once_for_each_schema(registry: SchemaRegistry) -> None:
    """Not once for each record, each batch or each format that is equal."""
    ids = [
        registry.register(a_subject(), record(*SALE["fields"], field(f"f{n}", "int")))
        for n in range(3)
    ]
    data = [b"\0" + id.to_bytes(4) + b"\x02a" + b"\0" * 8 + b"\0" for id in ids]
    registry.forget_asked()

    for _ in range(5):
        read(Avro(SALE, registry=registry.url), *(data * 100))

    assert sorted(registry.asked()) == [f"GET /schemas/ids/{id}?subject=words-value" for id in ids]


@pytest.mark.rule("txtopo.kafka.formats.schema_format", "Rules", 1)
def test_an_unknown_schema_is_asked_for_once_in_a_reading(registry: SchemaRegistry) -> None:
    """A later attempt asks again: the registry may have been behind."""
    format = Avro(SALE, registry=registry.url)

    for _ in range(2):
        made = taken(format, *[b"\0\0\0\0\x09abcdef"] * 50)

    assert len(made.letters) == 50
    assert "does not have it; got 'Schema 9 not found'" in made.letters[49][2]
    assert registry.asked() == ["GET /schemas/ids/9?subject=words-value"] * 2


def test_a_sink_registers_its_schema_once(registry: SchemaRegistry) -> None:
    format = Avro(SALE, registry=registry.url)
    for _ in range(3):
        written(format, "ann", 1.5, topic="sales")

    assert registry.asked() == ["POST /subjects/sales-value/versions?normalize=False"]
    assert list(registry.subjects()) == ["sales-value"]


@pytest.mark.parametrize("part", ["key", "value"])
def test_the_subject_is_named_for_the_topic(registry: SchemaRegistry, part: str) -> None:
    written(Avro(SALE, registry=registry.url), "ann", 1.5, topic="sales", part=part)
    written(Avro(SALE, registry=registry.url, subject="mine"), "ann", 1.5, part=part)

    assert set(registry.subjects()) == {f"sales-{part}", "mine"}


def test_a_schema_that_the_registry_refuses_is_refused_with_its_words(
    registry: SchemaRegistry,
) -> None:
    registry.register("sales-value", SALE)
    format = Avro(record(*SALE["fields"], field("country", "string")), registry=registry.url)

    said = r'incompatible with an earlier schema for subject "sales-value".*country'
    with pytest.raises(ConfigError, match=said):
        format.writer("sales", "value")


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("500", "status 500; got 'Error in the backend data store'"),
        ("html", "no usable answer.*is this another server"),
        ("html-404", "status 404.*Welcome"),
        ("json", "JSON without a schema"),
    ],
)
@pytest.mark.rule("txtopo.kafka.formats.schema_format", "Rules", 2)
def test_a_registry_in_trouble_fails_the_attempt_and_makes_no_dead_letter(
    registry: SchemaRegistry, how: str, said: str
) -> None:
    """When it is well again, the same records are decoded: nothing wrong is kept."""
    format = Avro(SALE, registry=registry.url, settings={"retries.wait.ms": 1})
    id = registry.register("words-value", SALE)
    data = b"\0" + id.to_bytes(4) + b"\x06ann" + b"\0" * 8
    registry.behave(how)

    with pytest.raises(InfrastructureError, match=said):
        taken(format, data)
    with pytest.raises(InfrastructureError, match=said):
        format.writer("words", "value")
    registry.behave()
    assert read(format, data) == [{"customer": "ann", "amount": 0.0}]
    assert written(format, "ann", 0.0) == data


def test_a_registry_that_is_away_fails_the_attempt(
    registry: SchemaRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this process has asked before it still knows."""
    format = Avro(SALE, registry=registry.url, settings={"retries.wait.ms": 1})
    data = written(format, "ann", 1.5)
    assert read(format, data)
    registry.kill()

    assert read(format, data) == [{"customer": "ann", "amount": 1.5}]
    a_new_process(monkeypatch)
    with pytest.raises(InfrastructureError, match="cannot fetch schema 1: no usable answer"):
        taken(format, data)
    registry.start()
    assert read(format, data) == [{"customer": "ann", "amount": 1.5}]


def test_of_several_registries_one_that_answers_is_enough(registry: SchemaRegistry) -> None:
    both = f"{NOWHERE}, {registry.url}"
    format = Avro(SALE, registry=both, settings={"retries.wait.ms": 1})

    assert read(format, written(format, "ann", 1.5)) == [{"customer": "ann", "amount": 1.5}]


def test_a_password_is_used_and_never_shown(
    registry: SchemaRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """The library of HTTP logs the URL of each request."""
    caplog.set_level(0)
    registry.behave("password")
    url, user_info = registry.url, registry.user_info
    _, _, password = user_info.partition(":")
    in_url = url.replace("//", f"//{user_info.replace('-', '%2D')}@")
    right = Avro(SALE, registry=url, settings={"basic.auth.user.info": user_info})
    also = Avro(SALE, registry=in_url, subject="also")
    wrong = Avro(SALE, registry=in_url.replace("reader", "writer"))

    assert written(right, "ann", 0.5) == written(also, "ann", 0.5)
    with pytest.raises(AuthError, match="Unauthorized") as refused:
        wrong.writer("words", "value")
    registry.kill()
    with pytest.raises(InfrastructureError) as away:
        Avro(SALE, registry=in_url, subject="other").writer("words", "value")
    with pytest.raises(ConfigError, match="credentials twice") as twice:
        Avro(SALE, registry=in_url, settings={"basic.auth.user.info": user_info})
    errors = [str(each.value) + repr(each.value.__cause__) for each in (refused, away, twice)]
    shown = f"{errors}{[right, also, wrong]}{caplog.text}"
    assert "HTTP Request" in shown
    assert password not in shown
    assert "secret" not in shown


@pytest.mark.parametrize(
    "url",
    ["host:8081", "ftp://host", "http://", 7, None, "", "http://h:99999", "http://a,b", "mock://x"],
)
def test_a_registry_that_is_no_url_is_refused(url: Any) -> None:
    with pytest.raises(ConfigError, match="registry of Avro is wrong; got"):
        Avro(SALE, registry=url)


def test_a_wrong_url_hides_its_password() -> None:
    with pytest.raises(ConfigError) as caught:
        Avro(SALE, registry="ftp://user:secret@host")

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (7, "got a int; expected a dict"),
        ({"url": NOWHERE}, "use registry"),
        ({"tiemout": 1}, "Unrecognized properties: tiemout"),
        ({"timeout": "x"}, "'timeout' of Avro is wrong; got 'x'"),
        ({"timeout": 0}, "greater than 0"),
        ({"max.retries": "x"}, "max.retries must be a number"),
        ({"ssl.ca.location": "/nowhere/ca.pem"}, "No such file"),
        ({"basic.auth.user.info": "secret"}, "{username}:{password}"),
    ],
)
def test_wrong_settings_are_refused_without_their_values(settings: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Avro(SALE, registry=NOWHERE, settings=settings)
    assert "secret" not in str(caught.value)


def test_what_has_no_fields_is_refused() -> None:
    for make in (lambda: Avro(record(), registry=NOWHERE), _empty_message):
        with pytest.raises(ConfigError, match="has no fields"):
            make()


def _empty_message() -> Protobuf:
    return Protobuf(message_class(), registry=NOWHERE)


@pytest.mark.parametrize("more", [{"subject": ""}, {"subject": 7}, {"auto_register": "no"}])
def test_other_wrong_arguments_are_refused(more: Any) -> None:
    with pytest.raises(ConfigError, match=f"{next(iter(more))} of Avro is wrong; got"):
        Avro(SALE, registry=NOWHERE, **more)


def test_tuples_that_lack_a_field_or_have_another_type_cannot_be_written() -> None:
    format = Avro(SALE, registry=NOWHERE)

    format.check_input(Fields("amount float, customer string, more long"), "value")
    with pytest.raises(FieldsError, match="the field 'amount', but the tuples lack"):
        format.check_input(Fields("customer string"), "value")
    with pytest.raises(FieldsError, match="'amount' cannot be written"):
        format.check_input(Fields("customer string, amount long"), "value")


@pytest.mark.parametrize("wrong", [Avro, 7, b"customer", ["customer", 7], SALE])
def test_what_is_no_format_is_refused_by_spout_and_sink(wrong: Any) -> None:
    for part in ("key", "value"):
        with pytest.raises(ConfigError, match=f"unknown decoder of {part}s; got"):
            KafkaTransactionalSpout("host:1", "topic", **{part: wrong})
        with pytest.raises(ConfigError, match=f"{part} of a KafkaSink is wrong; got"):
            KafkaSink("host:1", "topic", **{part: wrong})


def test_a_sink_refuses_a_schema_that_it_cannot_write() -> None:
    items = {"type": "array", "items": "bytes"}
    format = Avro(record(field("items", items)), registry=NOWHERE)

    with pytest.raises(ConfigError, match=r"'items'.* cannot be written; got bytes inside"):
        KafkaSink("host:1", "topic", value=format)


def test_a_key_and_a_value_with_a_field_of_one_name_are_refused() -> None:
    format = Avro(SALE, registry=NOWHERE)

    with pytest.raises(FieldsError, match="used twice: amount, customer"):
        KafkaTransactionalSpout("host:1", "topic", key=format, value=format)


def test_spouts_name_the_modules_that_their_tasks_import() -> None:
    format = Avro(SALE, registry=NOWHERE)
    spout = KafkaTransactionalSpout("host:1", "topic", value=format)
    unused = KafkaTransactionalSpout("host:1", "topic", value=format, columns=("key",))

    assert spout.client_modules == ("confluent_kafka", "confluent_kafka.schema_registry.avro")
    assert unused.client_modules == ("confluent_kafka",)
