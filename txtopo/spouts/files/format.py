"""FileFormat: how the files of a spout are written."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from txtopo.errors import ConfigError
from txtopo.tuples import Fields

FormatName = Literal["csv", "json", "text", "parquet"]
FORMATS = ("csv", "json", "text", "parquet")
# Read as one range, since a compressed stream cannot be entered in its middle.
_COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


@dataclass(frozen=True, slots=True)
class FileFormat:
    """How the files are written.

    Attributes:
        name: Which format.
        header: CSV: whether the first line of each file names the columns; else they are the
            fields, in order.
        delimiter: CSV: what separates values.
        null_values: CSV: unquoted texts that mean NULL.
    """

    name: FormatName
    header: bool = True
    delimiter: str = ","
    null_values: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise ConfigError(
                f"unknown file format; got {self.name!r}; expected one of {', '.join(FORMATS)}"
            )
        if len(self.delimiter) != 1:
            raise ConfigError(f"delimiter is wrong; got {self.delimiter!r}; expected a character")

    @property
    def lines(self) -> bool:
        """Whether a record is a line, so that files can be cut at any byte."""
        return self.name != "parquet"

    def compression(self, name: str) -> str | None:
        """Return what a file is compressed with, by its name; None for nothing.

        Raises:
            ConfigError: It is a kind of archive that cannot be read; unpack it.
        """
        suffix = name[name.rfind(".") :].lower() if "." in name else ""
        if suffix in (".zip", ".tar", ".tgz", ".7z"):
            raise ConfigError(
                f"file {name!r} is an archive; expected {self.name} files, plain or "
                f"{', '.join(_COMPRESSIONS)}; unpack it",
                path=name,
            )
        return _COMPRESSIONS.get(suffix) if self.lines else None

    def check_fields(self, fields: Fields) -> None:
        """Check that files of this format can have these fields.

        Raises:
            ConfigError: They cannot; mend the fields.
        """
        if not isinstance(fields, Fields) or not len(fields):
            raise ConfigError(f"fields of a files spout are wrong; got {fields!r}; expected Fields")
        if self.name == "text" and [field.type for field in fields] != ["string"]:
            raise ConfigError(
                f"a text file has one field, its lines; got {fields!r}; expected e.g. "
                'Fields("line string")'
            )
