"""The extras of the distribution: which package each one brings, and the error without it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from types import MappingProxyType
from typing import NamedTuple

from txtopo.errors import ConfigError


class Extra(NamedTuple):
    """An extra.

    Attributes:
        name: Its name, as in ``pip install 'txtopo[name]'``.
        package: The distribution that it brings.
    """

    name: str
    package: str

    @property
    def command(self) -> str:
        """The command that installs the extra."""
        return f"pip install 'txtopo[{self.name}]'"


EXTRAS: Mapping[str, Extra] = MappingProxyType(
    {
        "confluent_kafka": Extra("kafka", "confluent-kafka"),
        "confluent_kafka.schema_registry.avro": Extra("avro", "confluent-kafka[avro]"),
        "confluent_kafka.schema_registry.protobuf": Extra("protobuf", "confluent-kafka[protobuf]"),
        "datasketches": Extra("sketches", "datasketches"),
        "deltalake": Extra("delta", "deltalake"),
        "grpc": Extra("connect", "pyspark[connect]"),
        "jinja2": Extra("ui", "jinja2"),
        "pika": Extra("rabbitmq", "pika"),
        "prometheus_client": Extra("ui", "prometheus-client"),
        "psycopg": Extra("postgres", "psycopg"),
        "puresasl": Extra("sasl", "pure-sasl"),
        "pymysql": Extra("mysql", "PyMySQL"),
        "pytest": Extra("conformance", "pytest"),
        "redis": Extra("redis", "redis"),
        "rich": Extra("progress", "rich"),
        "starlette": Extra("ui", "starlette"),
        "uvicorn": Extra("ui", "uvicorn"),
        "yaml": Extra("yaml", "PyYAML"),
        "zmq": Extra("resident", "pyzmq"),
    }
)
"""The extras, by the module that a part of txtopo imports."""


def require(module: str, needed_by: str) -> None:
    """Check that a module of :data:`EXTRAS` can be imported.

    Args:
        module: The module.
        needed_by: What needs it, as its user wrote it: a class, a setting, a scheme with ``://``.

    Raises:
        ConfigError: It cannot be imported; install the extra.
    """
    extra = EXTRAS[module]
    try:
        import_module(module)
    except ImportError as error:
        absent = isinstance(error, ModuleNotFoundError) and error.name == module
        why = "it is not installed" if absent else f"it cannot be imported ({error})"
        raise ConfigError(
            f"{needed_by} needs the package {extra.package}; {why}; "
            f"install it with: {extra.command}",
            package=extra.package,
            extra=extra.name,
        ) from error


def advice(modules: frozenset[str]) -> str:
    """Return how to install those of *modules* that extras bring; empty if there are none."""
    names = sorted(EXTRAS[module].name for module in modules & EXTRAS.keys())
    return f"pip install 'txtopo[{','.join(names)}]'" if names else ""
