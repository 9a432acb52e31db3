"""Python for Spark's workers that need not import: one process has imported what they use, and forks for each of them.

To import Spark's and our modules takes a worker one to two seconds of processor time, and each query that begins needs
several workers. The program that Spark is given as its Python hands its arguments and standard streams to the process
that forks, and lives as long as the process that was forked. A driver that a test starts as a process does without.
"""

from __future__ import annotations

import ast
import fcntl
import gc
import importlib
import os
import runpy
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """\
#!{python} -IS
import os, socket, sys
link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
link.connect({place!r})
socket.send_fds(link, [repr((sys.argv[1:], dict(os.environ), os.getcwd())).encode()], [0, 1, 2])
link.recv(1)
"""
BYTES_MAX = 1 << 18
"""Of a request. It is arguments and an environment, both of Spark."""
IMPORTED = (
    *("pyspark.worker", "pyspark.sql.worker.create_data_source", "pyspark.sql.worker.plan_data_source_read"),
    *("pyspark.sql.worker.data_source_pushdown_filters", "pyspark.sql.streaming.datasource", "pandas"),
    *("pyarrow.compute", "spark_ingest.functions", "spark_ingest.source.source", "spark_ingest.payloads.schemas"),
)
"""What workers import. A module that Spark runs as its program is not among them."""


@contextmanager
def warm_python(directory: Path) -> Iterator[Path]:
    """Yields a program that runs as Python does, while the process that forks lives. Both have their files there."""
    place, program = directory / "python.socket", directory / "python"
    program.write_text(PROGRAM.format(python=sys.executable, place=str(place)))
    program.chmod(0o755)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(str(place))
        listening.listen()
        command = [sys.executable, "-m", "tests.spark_ingest.warm_python", str(listening.fileno())]
        forking = subprocess.Popen(command, cwd=ROOT, pass_fds=[listening.fileno()], stdin=subprocess.DEVNULL)
    try:
        yield program
    finally:
        forking.kill()
        forking.wait()


def _serve(number: int) -> socket.socket:
    """Forks on request. Returns, in each process that it made, the link to the process that asks."""
    for module in IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the test's
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(fileno=number) as listening:
        while True:
            link, _ = listening.accept()
            if not os.fork():
                break
            link.close()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return link


def _become(link: socket.socket) -> list[str]:
    """Takes on environment, place and streams of the process that asks. Returns its arguments."""
    asked, streams, *_ = socket.recv_fds(link, BYTES_MAX, 3)
    arguments, environment, place = ast.literal_eval(asked.decode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    end = link.detach()
    fcntl.fcntl(end, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(end, fcntl.F_SETSIG, signal.SIGTERM)  # as Spark sends it, to the process that asked
    fcntl.fcntl(end, fcntl.F_SETFL, os.O_ASYNC)
    os.chdir(place)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:0] = [each for each in environment.get("PYTHONPATH", "").split(os.pathsep) if each not in sys.path]
    return list(arguments)


if __name__ == "__main__":
    option, program_module, *rest = _become(_serve(int(sys.argv[1])))
    assert option == "-m"
    sys.argv[:] = [program_module, *rest]
    runpy.run_module(program_module, run_name="__main__", alter_sys=True)
