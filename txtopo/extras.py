"""The extras of the distribution: which package each one brings, and the error without it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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


class Lack(NamedTuple):
    """A module that cannot be imported although something needs it.

    Attributes:
        module: The module.
        needed_by: What needs it, as its user wrote it: a class, a setting, a scheme with ``://``.
        why: Why it cannot be imported.
        error: The error of the import.
    """

    module: str
    needed_by: str
    why: str
    error: ImportError

    @property
    def package(self) -> str:
        """The distribution that has the module, as far as it is known."""
        return EXTRAS[self.module].package if self.module in EXTRAS else self.module

    def __str__(self) -> str:
        return f"{self.needed_by} needs the package {self.package}; {self.why}"


def require(module: str, needed_by: str) -> None:
    """Check that a module of :data:`EXTRAS` can be imported.

    Args:
        module: The module.
        needed_by: What needs it, as its user wrote it: a class, a setting, a scheme with ``://``.

    Raises:
        ConfigError: It cannot be imported; install the extra.
    """
    check_lacking(lacking({module: needed_by}))


def lacking(needs: Mapping[str, str]) -> list[Lack]:
    """Return the modules that cannot be imported.

    Args:
        needs: By module: what needs it. The modules need not be of :data:`EXTRAS`.
    """
    found = []
    for module, needed_by in needs.items():
        try:
            import_module(module)
        except ImportError as error:
            absent = isinstance(error, ModuleNotFoundError) and error.name == module
            why = "it is not installed" if absent else f"it cannot be imported ({error})"
            found.append(Lack(module, needed_by, why, error))
    return found


def check_lacking(lacks: Sequence[Lack]) -> None:
    """Raise the error that names all of *lacks*, if there are any.

    Raises:
        ConfigError: There are some; install their extras.
    """
    if not lacks:
        return
    extras = {EXTRAS[each.module].name: None for each in lacks if each.module in EXTRAS}
    raise ConfigError(
        f"{'; '.join(map(str, lacks))}; {remedy(lacks)}",
        package=", ".join(each.package for each in lacks),
        extra=", ".join(extras),
    ) from lacks[0].error


def remedy(lacks: Sequence[Lack]) -> str:
    """Return what to do about modules that cannot be imported."""
    command = advice(frozenset(each.module for each in lacks))
    it = "it" if len(lacks) == 1 else "them"
    return f"install {it} with: {command}" if command else f"install {it}"


def advice(modules: frozenset[str]) -> str:
    """Return how to install those of *modules* that extras bring; empty if there are none."""
    names = sorted({EXTRAS[module].name for module in modules & EXTRAS.keys()})
    return f"pip install 'txtopo[{','.join(names)}]'" if names else ""
