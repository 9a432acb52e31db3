"""Recipes for clusters that are not here: files parse, their names agree, every option exists, in Spark or here."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from spark_ingest.cli import ingest_app
from spark_ingest.options import NAMES

pyspark = pytest.importorskip("pyspark")
PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "spark-clusters.md").read_text("utf-8")
JARS = ("spark-core_", "spark-kubernetes_", "spark-yarn_")


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)


def pods() -> list[dict[str, Any]]:
    return [yaml.safe_load(text) for text in blocks("yaml")]


def test_pods_mount_what_they_have_and_executors_see_neither_spool_nor_the_jobs_identity() -> None:
    driver, executor = pods()
    for pod in (driver, executor):
        assert (pod["apiVersion"], pod["kind"]) == ("v1", "Pod")
        volumes = {each["name"] for each in pod["spec"]["volumes"]}
        containers = pod["spec"]["initContainers"] + pod["spec"]["containers"]
        assert {mount["name"] for each in containers for mount in each["volumeMounts"]} == volumes
    assert {each["name"] for each in executor["spec"]["volumes"]} == {"keys", "reader"}
    named = dict(re.findall(r"(spark\.kubernetes\.\w+\.podTemplateContainerName)=(\S+)", PAGE))
    assert sorted(named.values()) == sorted(pod["spec"]["containers"][0]["name"] for pod in (driver, executor))


def test_spark_knows_every_setting() -> None:
    asked = set(re.findall(r"--conf (spark\.[\w.]+)=", "".join(blocks("sh"))))
    assert len(asked) > 9
    known = b""
    for jar in (Path(pyspark.__file__).parent / "jars").glob("spark-*.jar"):
        if jar.name.startswith(JARS):
            with zipfile.ZipFile(jar) as content:
                places = re.compile(r"org/apache/spark/(deploy/(k8s|yarn)/.*|internal/config/.*|SparkConf.*)\.class")
                known += b"".join(content.read(name) for name in content.namelist() if places.fullmatch(name))
    prefixes = ("spark.executorEnv.", "spark.yarn.appMasterEnv.")
    for name in asked:
        wanted = next((prefix for prefix in prefixes if name.startswith(prefix)), name)
        head, dot, last = wanted.rpartition(".")  # some are put together from these
        assert wanted.encode() in known or (head.encode() in known and f"{dot}{last}".encode() in known), name


def test_every_option_and_flag_of_ours_is_there() -> None:
    code = "".join(blocks("python"))
    named = set(re.findall(r"(\w+)=(?!=)", code[code.index("options(") :]))
    assert named >= {"extents", "grants_identity", "identity", "overlay"}
    assert {name.lower() for name in named} <= NAMES
    commands = typer.main.get_command(ingest_app).commands  # type: ignore[attr-defined]
    lines = re.findall(r"veilmq ingest (\w+) (.*?)(?:\n\n|\n  *veilmq)", PAGE.replace("\\\n", " "), re.DOTALL)
    served = " ".join(pods()[0]["spec"]["initContainers"][1]["command"]).removeprefix("veilmq ingest ")
    told = [*lines, tuple(served.split(" ", 1))]
    assert {command for command, _ in told} >= {"run", "serve"}
    for command, rest in told:
        flags = {flag for parameter in commands[command].params for flag in parameter.opts}
        assert set(re.findall(r"(?<!\S)--[\w-]+", rest)) <= flags, (command, rest)
