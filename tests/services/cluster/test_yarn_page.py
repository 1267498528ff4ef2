"""What Spark's own ``spark-submit`` makes of the command for YARN; no YARN is there to take it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.harness.processes import ROOT
from tests.unit.test_pages import blocks_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
PAGE = ROOT / "docs" / "how-to" / "run-on-a-cluster.md"


def prepared(spark: SparkSession, arguments: list[str]) -> tuple[str, Mapping[str, str]]:
    """Return the class that spark-submit would start, and its settings."""
    jvm: Any = cast("Any", spark)._jvm
    deploy, convert = jvm.org.apache.spark.deploy, jvm.org.apache.spark.api.python.PythonUtils
    environment = convert.toScalaMap(jvm.java.util.HashMap({"HADOOP_CONF_DIR": "hadoop"}))
    parsed = deploy.SparkSubmitArguments(convert.toSeq(list(arguments)), environment)
    made = deploy.SparkSubmit().prepareSubmitEnvironment(parsed, jvm.scala.Option.empty())
    settings = made._3().getAll()
    return made._4(), {each._1(): each._2() for each in settings}


def test_the_command_for_yarn_is_taken(
    spark: SparkSession,
) -> None:
    blocks = [block.text for block in blocks_of(PAGE.read_text()) if "--master yarn" in block.text]
    (command,) = blocks
    program, *arguments = shlex.split(command.replace("\\\n", " "))
    named = re.findall(r"[\w.]+\.(?:py|toml|tar\.gz)\b", command)

    started, settings = prepared(spark, arguments)

    assert program == "spark-submit"
    assert set(named) == {"environment.tar.gz", "word_count.py", "txtopo.toml", "program.py"}
    assert started == "org.apache.spark.deploy.yarn.YarnClusterApplication"
    assert settings["spark.yarn.dist.archives"].endswith("/environment.tar.gz#environment")
    assert settings["spark.yarn.dist.files"].endswith("/txtopo.toml")
    assert settings["spark.submit.pyFiles"].endswith("/word_count.py")
    assert settings["spark.executor.instances"] == settings["spark.executor.cores"] == "2"
    assert settings["spark.pyspark.python"] == "./environment/bin/python"
