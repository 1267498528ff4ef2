"""The program of the image that starts an executor on Kubernetes, with the environment of a pod."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.processes import ROOT, Child

pytestmark = [pytest.mark.kills, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]


def test_the_word_executor_starts_one_that_counts(tmp_path: Path) -> None:
    """Its driver has a cluster without workers, so that no other executor is there."""
    (dockerfile,) = (ROOT / "docker").glob("Dockerfile")
    assert "COPY docker/kubernetes/executor /usr/local/bin/executor" in dockerfile.read_text()
    with Child("tests.services.cluster.lone_driver_process", str(tmp_path), held=True) as driver:
        started = driver.wait_for("started")
        pod = {
            "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{started['port']}",
            "SPARK_EXECUTOR_ID": "1",
            "SPARK_EXECUTOR_CORES": "1",
            "SPARK_EXECUTOR_MEMORY": "512m",
            "SPARK_APPLICATION_ID": started["application"],
            "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
            "SPARK_RESOURCE_PROFILE_ID": "0",
            "SPARK_EXECUTOR_POD_NAME": "executor-1",
            "SPARK_JAVA_OPT_0": "-Dspark.executor.heartbeatInterval=1s",
            "SPARK_JAVA_OPT_1": "-XX:TieredStopAtLevel=1",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        }
        with subprocess.Popen([ROOT / "docker/kubernetes/executor"], cwd=tmp_path, env=pod) as one:
            try:
                assert driver.wait_for("counted")["counts"] == {"cat": 2, "dog": 1}
                driver.finish()
            finally:
                one.kill()
