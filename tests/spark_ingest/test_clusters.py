"""The same source on clusters: executors in other processes read spool and keys, and every row comes once.

`local-cluster` starts its executors itself, a standalone cluster of a master and two workers and a Spark Connect server
are started here, with what the pyspark wheel has. All on loopback, with a shared directory as on one file system; in
one test with workers in mount namespaces where spool and keys are not, which get both over the network.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from spark_ingest.extents.server import ExtentServer
from spark_ingest.secrets.grants import seal_grants
from spark_ingest.session import use_java
from spark_ingest.spool.writer import SpoolWriter
from tests.ports import free_ports
from tests.spark_ingest.extents.served import identity_in
from tests.spark_ingest.region import Link, Overlay, Publisher, write_grants
from tests.waits import wait_until

pyspark = pytest.importorskip("pyspark")
pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(1200)]

ROOT = Path(__file__).parents[2]
START_S = 120.0
RUN_S = 400.0
ROWS = 300


class GrowingSpool:
    """A spool that grows between two runs of the job, and what was published."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.overlay = Overlay()
        self.publisher = Publisher(self.overlay)
        self.link = Link(self.overlay)
        self.spool, self.keys = path / "spool", write_grants(path / "keys.json")
        self.options: dict[str, str] = {}
        self.job: tuple[str, ...] = ()
        """More words for the job."""
        self.published: list[tuple[str, int, str]] = []

    def fill(self) -> None:
        writer = SpoolWriter(self.spool, "main", cap_bytes=1 << 30)
        writer.roll(b"")
        for number in range(ROWS):
            self.publisher.messages = 16
            if number % 16 == 0:
                self.publisher.new_key("plant/#")
            topic, payload = f"plant/{number % 3}", json.dumps({"n": number, "pad": "x" * 400})
            repeats = (("veilmq-id", f"w/{number}"),) if self.job else ()
            sealed = self.publisher.seal(topic, payload.encode(), properties=repeats)
            self.published.append((topic, sealed.publication[1], payload))
            self.link.publish(sealed)
        self.link.write(writer, 30)
        writer.close()

    def run(self, master: str) -> dict[str, Any]:
        job = [sys.executable, "-m", "tests.spark_ingest.cluster_job", master]
        done = subprocess.run(
            [*job, str(self.spool), str(self.keys), str(self.path / "work"), json.dumps(self.options), *self.job],
            cwd=self.path, env=environment(self.path), capture_output=True, text=True, timeout=RUN_S, check=False,
        )  # fmt: skip
        told = [line for line in done.stderr.splitlines() if not line.startswith("\tat ")]
        assert done.returncode == 0, "\n".join(told[-20:])
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    def check(self, master: str, executors: int | None) -> None:
        """Two runs from one checkpoint, with more in the spool for the second."""
        for _ in range(2):
            self.fill()
            found = self.run(master)
            assert sorted(map(tuple, found["rows"])) == sorted(self.published)
            assert found["executors"] == executors


def environment(path: Path) -> dict[str, str]:
    """Of every process of a cluster, as an administrator sets it: this Python, these sources, a directory of its own
    for Spark, since executors of `local-cluster` write beside its programs."""
    use_java()
    home = path / "spark"
    if not home.exists():
        home.mkdir()
        for entry in Path(pyspark.__file__).parent.iterdir():
            if entry.name != "work":
                (home / entry.name).symlink_to(entry)
    return {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_AUTH_SOCKET_TIMEOUT": "120",  # a busy machine starts Python slowly
        # Masters and workers live briefly: most of their time goes into compiling, thoroughly, what is run once.
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_DAEMON_MEMORY": "256m",
    }


@contextlib.contextmanager
def started(log: Path, *arguments: str, before: tuple[str, ...] = ()) -> Iterator[subprocess.Popen[bytes]]:
    """A process of Spark's. `before`: a command that runs it."""
    environ = environment(log.parent)
    command = [*before, str(Path(environ["SPARK_HOME"]) / "bin" / "spark-class"), *arguments]
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environ, cwd=log.parent, stdout=output, stderr=output)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def said(log: Path, pattern: str, count: int = 1) -> None:
    """Wait until a log says so."""
    assert wait_until(lambda: len(re.findall(pattern, log.read_text())) >= count, START_S, 0.1), log.read_text()[-4000:]


@pytest.fixture
def site(tmp_path: Path) -> GrowingSpool:
    return GrowingSpool(tmp_path)


def test_executors_of_a_local_cluster(site: GrowingSpool) -> None:
    site.check("local-cluster[2,1,1024]", 2)


@contextlib.contextmanager
def standalone(tmp_path: Path, before: tuple[str, ...] = (), workers: int = 2) -> Iterator[str]:
    """A cluster of a master and workers of a core each; its URL."""
    port, ui, *worker_ui = free_ports(2 + workers)
    host = ("--host", "127.0.0.1")
    deploy = "org.apache.spark.deploy"
    with contextlib.ExitStack() as cluster:
        log = tmp_path / "master.log"
        ports = ("--port", str(port), "--webui-port", str(ui))
        cluster.enter_context(started(log, f"{deploy}.master.Master", *host, *ports))
        said(log, "New state: ALIVE")
        for number, each in enumerate(worker_ui):
            work = ("--work-dir", str(tmp_path / f"worker{number}"), "--webui-port", str(each))
            worker = (f"{deploy}.worker.Worker", *host, "--cores", "1", "--memory", "1g", *work)
            told = tmp_path / f"worker{number}.log"
            cluster.enter_context(started(told, *worker, f"spark://127.0.0.1:{port}", before=before))
        said(log, "Registering worker", workers)
        yield f"spark://127.0.0.1:{port}"


def test_a_standalone_cluster_of_two_workers(site: GrowingSpool, tmp_path: Path) -> None:
    with standalone(tmp_path) as master:
        site.check(master, 2)


HIDE = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def test_workers_that_do_not_see_the_spool(site: GrowingSpool, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    if subprocess.run([*HIDE, str(there), "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespaces here")
    identity = identity_in(tmp_path / "reader")
    clear, site.spool, site.keys = site.keys, there / "spool", there / "keys.json"
    site.keys.touch(mode=0o600)
    site.keys.write_bytes(seal_grants(clear.read_bytes(), identity, bytes(range(32))))
    clear.unlink()
    site.spool.mkdir()
    server = ExtentServer(site.spool, [site.keys], tmp_path / "reader", "127.0.0.1:0")
    site.options = {"extents": f"127.0.0.1:{server.port}", "grants_identity": str(tmp_path / "reader")}
    try:
        with standalone(tmp_path, (*HIDE, str(there))) as master:
            site.check(master, 2)
    finally:
        server.stop()


@contextlib.contextmanager
def connect_server(tmp_path: Path) -> Iterator[str]:
    """A server of Spark Connect; its URL."""
    pytest.importorskip("grpc")
    (port,) = free_ports(1)
    log = tmp_path / "connect.log"
    settings = {
        "spark.master": "local[2]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
    }
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer")
    told = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    with started(log, "org.apache.spark.deploy.SparkSubmit", *server, *told, "spark-internal"):
        said(log, "Spark Connect server started")
        yield f"sc://127.0.0.1:{port}"


def test_spark_connect(site: GrowingSpool, tmp_path: Path) -> None:
    with connect_server(tmp_path) as url:
        site.check(url, None)


def test_repeats_are_dropped_over_spark_connect(site: GrowingSpool, tmp_path: Path) -> None:
    """Each publication comes three times, the third time after a new start from the checkpoint."""
    site.job = ("repeats",)
    with connect_server(tmp_path) as url:
        for fills in (2, 1):
            for _ in range(fills):
                site.fill()
            found = site.run(url)["rows"]
            assert len(site.published) > ROWS
            assert sorted(row[2] for row in found) == sorted({payload for _, _, payload in site.published})
            assert {tuple(row) for row in found} <= set(site.published)
