"""SPARK_HOME, looked at before PySpark starts the Spark that it names.

``pip install txtopo`` brings a Spark, but PySpark prefers that of SPARK_HOME, and does not look at
its version. If nothing is there, it raises a ``FileNotFoundError`` that does not name SPARK_HOME.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from txtopo.errors import ConfigError


def check_spark_home() -> None:
    """Check that SPARK_HOME, if it is set, names a Spark of PySpark's version.

    Raises:
        ConfigError: It does not; unset it.
    """
    home = os.environ.get("SPARK_HOME")
    if not home:
        return
    from pyspark import __version__

    wanted = ".".join(__version__.split(".")[:2])
    found = _version(Path(home))
    if not Path(home, "bin", "spark-submit").exists():
        fault = "which has no bin/spark-submit"
    elif found is not None and found != wanted:
        fault = f"which is Spark {found}"
    else:
        return
    raise ConfigError(
        f"SPARK_HOME names no Spark that PySpark {__version__} can start; got {home!r}, {fault}; "
        f"expected Spark {wanted}; unset SPARK_HOME, since PySpark brings one",
        setting="SPARK_HOME",
    )


def _version(home: Path) -> str | None:
    for jar in home.glob("jars/spark-core_*.jar"):
        found = re.match(r"spark-core_[\d.]+-(\d+\.\d+)\.", jar.name)
        if found:
            return found[1]
    return None
