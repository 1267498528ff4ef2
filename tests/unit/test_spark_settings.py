"""Each setting of Spark that pages, messages and files of the project name is one of this Spark."""

from __future__ import annotations

import re
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.unit.test_layout import ROOT, name_of, text_of
from tests.unit.test_references import PAGES

KEY = re.compile(r"(?<![\w./-])spark(?:\.[a-zA-Z][a-zA-Z0-9]*)+\b(?![(/])")
METHOD = re.compile(
    r"spark\.(?:read|readStream|sparkContext|stop|conf|catalog|add\w+|create\w+|py)\b"
)
"""Names of a session, which code has in a variable of this name; and a file."""
CLASS = re.compile(r"\.[A-Z]\w*[a-z]\w*(?:\.|$)")
"""A class of ``org.apache.spark`` without the beginning of its name."""
OPEN = ("spark.executorEnv.", "spark.kubernetes.driverEnv.", "spark.yarn.appMasterEnv.")
"""What is behind them is a variable of the environment, and often left out."""
OF_DSTREAMS = frozenset(
    {"spark.streaming.backpressure.enabled", "spark.streaming.kafka.maxRatePerPartition"}
)
"""What readers come from; PySpark has no jar of it any more."""
FILES = [
    *PAGES,
    *(ROOT / "docker").rglob("*.y*ml"),
    *(ROOT / "txtopo").rglob("*.py"),
    *(ROOT / "tests" / "services" / "cluster").rglob("*.py"),
]


# In a class file a constant has its length before it. One that begins with \1 is a piece of what
# is put together at run time, as s"$name.container" is.
CONSTANT = re.compile(rb"\x01(..)((?:spark|\x01)\.[\w.]+)", re.DOTALL)


@cache
def constants() -> frozenset[str]:
    """Return what may be a setting, or the end of one, in Spark's own jars."""
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    found = set()
    for jar in (Path(spec.origin).parent / "jars").glob("spark-*.jar"):
        with zipfile.ZipFile(jar) as content:
            for name in content.namelist():
                if name.endswith(".class"):
                    found |= set(CONSTANT.findall(content.read(name)))
    return frozenset(
        text[:size].decode()
        for prefix, text in found
        if len(text) >= (size := int.from_bytes(prefix, "big"))
    )


def is_known(key: str) -> bool:
    dots = [match.start() for match in re.finditer(r"\.", key)]
    made = any({key[:dot], f"\x01{key[dot:]}"} <= constants() for dot in dots[1:])
    return key in constants() or made


def keys_of(path: Path) -> set[str]:
    found = {match[0] for match in KEY.finditer(text_of(path))}
    settings = {key for key in found if not METHOD.match(key) and not CLASS.search(key)}
    return {key for key in settings if not f"{key}.".startswith(OPEN)}


@pytest.mark.integration
def test_each_setting_of_spark_that_is_named_exists() -> None:
    unknown = {
        name_of(path): unknown
        for path in FILES
        if (unknown := {key for key in keys_of(path) - OF_DSTREAMS if not is_known(key)})
    }

    assert unknown == {}


def test_a_setting_with_a_slip_is_noticed() -> None:
    assert is_known("spark.dynamicAllocation.enabled")
    assert not is_known("spark.dynamicAllocation.enable")
    assert not is_known("spark.excludeOnFailure.application.maxFailedTasks")
