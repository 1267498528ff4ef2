"""Checks of settings: their names, types and values.

A class of settings derives from :class:`Settings`. An error names the setting as users write it:
``slots``, or ``zookeeper.hosts`` for one of a record.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from types import UnionType
from typing import ClassVar, Self

from txtopo.errors import ConfigError, nearest


class Settings:
    """What dataclasses of settings have in common: an unknown name is refused with a hint."""

    __slots__ = ()
    holder: ClassVar[str] = ""
    """The setting that holds the record, which begins the names of its settings."""

    def __new__(cls, *values: object, **settings: object) -> Self:
        """Refuse unknown settings, before ``__init__`` would without a hint."""
        known = [cls.called(each.name) for each in fields(cls)]  # type: ignore[arg-type]
        for name in map(cls.called, settings):
            if name not in known:
                hint = cls.elsewhere(name) or nearest(name, known)
                raise ConfigError(f"unknown setting {name!r}; {hint}", setting=name)
        return object.__new__(cls)

    @classmethod
    def elsewhere(cls, name: str) -> str:
        """Return the hint that another class has a setting; empty if none is known to have it."""
        return ""

    @classmethod
    def called(cls, name: str) -> str:
        """Return the name of a setting as users write it."""
        return f"{cls.holder}.{name}" if cls.holder else name


def unusable_character(text: str) -> str | None:
    """Return the first character that keeps a text from being a path or being sent, if any.

    NUL ends a text in system calls; a surrogate has no bytes in UTF-8.
    """
    return next((s for s in text if s == "\0" or "\ud800" <= s <= "\udfff"), None)


def check_text(what: str, text: str) -> None:
    """Check that a text can be a path or be sent. Errors never show it: it may be a password.

    Raises:
        ConfigError: It cannot; repair it.
    """
    if unusable_character(text) is not None:
        raise ConfigError(
            f"{what} contains a character that cannot be sent or be part of a path: NUL, or half "
            "of a character (a surrogate); remove it",
            setting=what,
        )


def check_type(setting: str, value: object, kind: type | UnionType, expected: str) -> None:
    """Check the type of a setting. Errors never show its value: it may be a password.

    Raises:
        ConfigError: It is of another type; repair it.
    """
    if not isinstance(value, kind):
        raise ConfigError(
            f"{setting} is of the wrong type; got {type(value).__name__}; expected {expected}",
            setting=setting,
        )


def check_whole_number(
    setting: str, value: object, *, at_least: int = 1, of: str = "", more: str = ""
) -> None:
    """Check that a setting is a whole number.

    Args:
        setting: Its name.
        value: What was given.
        at_least: The smallest value.
        of: What it is a setting of, for the message; by default a ``Config``.
        more: The end of the message.

    Raises:
        ConfigError: It is something else; repair it.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < at_least:
        raise ConfigError(
            f"{setting}{of} must be a whole number of at least {at_least}; got {value!r}{more}",
            setting=setting,
        )


def check_positive_number(setting: str, value: object, *, of: str = "") -> None:
    """Check that a setting is a finite number above 0.

    Args:
        setting: Its name.
        value: What was given.
        of: What it is a setting of, for the message; by default a ``Config``.

    Raises:
        ConfigError: It is something else; repair it.
    """
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else 0
    if not 0 < number <= sys.float_info.max:  # a whole number may be larger
        raise ConfigError(
            f"{setting}{of} must be a finite number above 0; got {value!r}", setting=setting
        )
