"""Checks SPARK_HOME before PySpark starts the Spark that it names.

``pip install txtopo`` installs a Spark, but PySpark prefers the one in SPARK_HOME, and does not
check its version. If SPARK_HOME names a missing folder, PySpark raises a ``FileNotFoundError`` that
does not mention SPARK_HOME.
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
        f"PySpark {__version__} cannot start the Spark in SPARK_HOME; got {home!r}, {fault}; "
        f"expected Spark {wanted}; unset SPARK_HOME, because PySpark brings its own Spark",
        setting="SPARK_HOME",
    )


def _version(home: Path) -> str | None:
    for jar in home.glob("jars/spark-core_*.jar"):
        found = re.match(r"spark-core_[\d.]+-(\d+\.\d+)\.", jar.name)
        if found:
            return found[1]
    return None
