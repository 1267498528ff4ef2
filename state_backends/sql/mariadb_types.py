"""How the types of fields are kept in MariaDB and MySQL, and how they travel to it: as JSON.

* Text compares by its bytes and without padding: under ``utf8mb4_bin`` 'a' and 'a ' are equal.
* A key fits an index entry, 3,072 bytes in InnoDB: text of 768 characters if it is the only key
  column. Columns of text and binary share what the other ones leave.
* Nothing is clipped: what travels was checked before, since ``JSON_TABLE`` cuts what is too long.
* Timestamps are in UTC. A ``float`` is kept in a DOUBLE, since the server writes a FLOAT with six
  digits. There is no NaN, no infinity, and -0.0 becomes 0.0: all three are refused.
"""

from __future__ import annotations

import datetime
import decimal
import math
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import TypeCompiler
from sqlalchemy.types import TypeEngine

from txtopo.errors import ValueRefusedError
from txtopo.state import Field, Fields

_KEY_BYTES_MAX = 3072
_CHARACTER_BYTES = 4
_BYTES = {"boolean": 1, "byte": 1, "short": 2, "int": 4, "date": 3, "decimal": 18}
_TYPES: dict[str, TypeEngine[Any]] = {
    "binary": mysql.LONGBLOB(),
    "boolean": mysql.TINYINT(1),
    "byte": mysql.TINYINT(),
    "short": mysql.SMALLINT(),
    "int": mysql.INTEGER(),
    "long": mysql.BIGINT(),
    "float": mysql.DOUBLE(asdecimal=False),
    "double": mysql.DOUBLE(asdecimal=False),
    "date": mysql.DATE(),
    "timestamp": mysql.DATETIME(fsp=6),
    "timestamp_ntz": mysql.DATETIME(fsp=6),
}


class ExactText(mysql.LONGTEXT):
    """Text that compares by its bytes, of any length."""


class ExactName(mysql.VARCHAR):
    """Text that compares by its bytes and fits an index."""


@compiles(ExactText, "mysql", "mariadb")
@compiles(ExactName, "mysql", "mariadb")
def _exact(kind: ExactText | ExactName, compiler: TypeCompiler, **_: Any) -> str:
    plain = "LONGTEXT" if isinstance(kind, ExactText) else f"VARCHAR({kind.length})"
    return f"{plain} CHARACTER SET utf8mb4 COLLATE {collation(compiler.dialect)}"


def collation(dialect: sa.Dialect) -> str:
    """Return the collation that tells all strings apart."""
    is_mariadb = getattr(dialect, "is_mariadb", True)
    return "utf8mb4_nopad_bin" if is_mariadb else "utf8mb4_0900_bin"


def column_type(kind: str) -> TypeEngine[Any]:
    """Return the column type for a field type."""
    if kind.startswith("decimal"):
        precision, scale = (int(part) for part in kind[8:-1].split(","))
        return mysql.DECIMAL(precision, scale)
    return _TYPES.get(kind, ExactText())


def key_type(key: Fields) -> Callable[[str], TypeEngine[Any]]:
    """Return what gives the types of key columns of these fields."""
    kinds = [field.type.partition("(")[0] for field in key]
    fixed = sum(_BYTES.get(kind, 8) for kind in kinds if kind not in ("string", "binary"))
    varying = sum(kind in ("string", "binary") for kind in kinds)
    share = (_KEY_BYTES_MAX - fixed) // max(varying, 1)

    def of_key(kind: str) -> TypeEngine[Any]:
        if kind == "string":
            return ExactName(share // _CHARACTER_BYTES)
        return mysql.VARBINARY(share) if kind == "binary" else column_type(kind)

    return of_key


def limits(key: Fields) -> list[int | None]:
    """Return the longest text, in characters, or binary, in bytes, that each key column holds."""
    kinds = [key_type(key)(field.type) for field in key]
    return [kind.length if isinstance(kind, _LIMITED) else None for kind in kinds]


def encode_key(field: Field, column: list[Any], limit: int | None) -> list[Any]:
    """Return a key column as it stands in JSON.

    Raises:
        ValueRefusedError: A key that is too long for an index.
    """
    for value in column:
        if limit is not None and len(value) > limit:
            raise _refused(field, value, f"a key of these columns holds at most {limit} of it")
    return encode(field, column)


def encode(field: Field, column: list[Any]) -> list[Any]:
    """Return a column as it stands in JSON.

    Raises:
        ValueRefusedError: A number that MariaDB does not have.
    """
    kind = field.type.partition("(")[0]
    if kind in ("float", "double"):
        for value in column:
            if value is not None and (
                not math.isfinite(value) or (value == 0 and math.copysign(1.0, value) < 0)
            ):
                raise _refused(field, value, "MariaDB has no NaN, no infinity and no -0.0")
    if kind not in _ENCODE:
        return column
    change = _ENCODE[kind]
    return [None if value is None else change(value) for value in column]


def decode(kind: str, value: Any) -> Any:
    """Return what MariaDB has as a value of a field type."""
    if value is None:
        return None
    if kind == "boolean":
        return bool(value)
    return value.replace(tzinfo=datetime.UTC) if kind == "timestamp" else value


def parameter(field: Field, value: Any) -> Any:
    """Return one part of a key as a parameter of a question.

    Raises:
        ValueRefusedError: Text that is none; no such key can be stored.
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise _refused(field, value, "a lone surrogate is no text") from error
    if field.type == "timestamp":
        return value.astimezone(datetime.UTC).replace(tzinfo=None)
    return value


def in_json(kind: TypeEngine[Any], dialect: sa.Dialect) -> str:
    """Return the type with which ``JSON_TABLE`` reads what :func:`encode` made.

    It needs a character set: that of the database would turn what it lacks into question marks.
    """
    if isinstance(kind, mysql.VARBINARY):
        return f"VARCHAR({2 * (kind.length or 0)}) CHARACTER SET ascii"
    if isinstance(kind, mysql.LONGBLOB):
        return "LONGTEXT CHARACTER SET ascii"
    return kind.compile(dialect)


def out_of_json(kind: TypeEngine[Any], text: str) -> str:
    """Return the expression that makes of *text*, a column of ``JSON_TABLE``, what is stored."""
    return f"UNHEX({text})" if isinstance(kind, mysql.VARBINARY | mysql.LONGBLOB) else text


def _refused(field: Field, value: Any, why: str) -> ValueRefusedError:
    return ValueRefusedError(
        f"MariaDB cannot store a value exactly; got {value!r:.200} in field {field.name!r}; {why}; "
        "nothing of its batch was written",
        field=field.name,
    )


def _from_decimal(value: decimal.Decimal) -> str:
    return format(abs(value) if value.is_zero() else value, "f")


def _from_moment(value: datetime.datetime) -> str:
    return value.replace(tzinfo=None).isoformat(" ", "microseconds")


_LIMITED = ExactName | mysql.VARBINARY
_ENCODE: dict[str, Callable[[Any], Any]] = {
    "binary": bytes.hex,
    "boolean": int,
    "decimal": _from_decimal,
    "date": datetime.date.isoformat,
    "timestamp": lambda value: _from_moment(value.astimezone(datetime.UTC)),
    "timestamp_ntz": _from_moment,
}
