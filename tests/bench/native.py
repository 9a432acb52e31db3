"""The load generator in C: compiled once from `loadgen.c`, then called for each run. Needs `cc`; with OpenSSL's headers
it connects over TLS, too.

A client written in Python is slower than the broker that it measures. This one is not, and every result says what share
of a core it had (`share`): above `SHARE_MAX` it may be the generator that was measured.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.bench.load import pin

SOURCE = Path(__file__).with_name("loadgen.c")
SHARE_MAX = 0.7
LIMIT_S = 60.0


class NativeError(Exception):
    """There is no generator, or it failed: one line."""


@dataclass(frozen=True)
class Outcome:
    """What one run printed. `figure`: the one asked for; `lost`: acknowledged or sent, and never delivered;
    `cpu_us`: processor time of the broker for a delivered message, as far as it was asked for (`pid`).
    """

    figure: float
    share: float
    lost: int = 0
    cpu_us: float = 0.0


@cache
def program(with_tls: bool = False) -> Path:
    """The compiled generator. Raises NativeError without a compiler, or without OpenSSL's headers for TLS."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NativeError("there is no C compiler (cc): install one, as gcc, for the rows that need the load generator")
    name = f"veilmq-loadgen-{os.getuid()}-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]}{'-tls' * with_tls}"
    built = Path(tempfile.gettempdir()) / name
    if not built.exists():
        with tempfile.TemporaryDirectory() as directory:
            fresh = Path(directory) / "loadgen"
            command = [compiler, "-O2", "-o", str(fresh), str(SOURCE)]
            command += ["-DWITH_TLS", "-lssl", "-lcrypto"] if with_tls else []
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                cure = "; TLS needs OpenSSL's headers (libssl-dev)" if with_tls else ""
                raise NativeError(f"{SOURCE.name} cannot be compiled{cure}: {done.stderr.strip().splitlines()[-1:]}")
            shutil.move(fresh, built)
    return built


def call(mode: str, figure: str, core: int, **settings: int) -> Outcome:
    """One run of the generator on `core`, for the field `figure` of what it prints. Raises NativeError."""
    words = [f"{name}={value}" for name, value in settings.items()]
    command = [str(program(bool(settings.get("tls")))), mode, *words]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=LIMIT_S, check=False, preexec_fn=lambda: pin(core)
        )
    except subprocess.TimeoutExpired:
        raise NativeError(f"the load generator was not done after {LIMIT_S:.0f} s") from None
    if done.returncode:
        raise NativeError(f"the load generator ended with: {done.stderr.strip()}")
    said = json.loads(done.stdout)
    broker_s, counted = said.get("broker_user_s", 0.0) + said.get("broker_system_s", 0.0), said.get("counted", 0)
    cpu_us = 1e6 * broker_s / counted if counted else 0.0
    return Outcome(float(said[figure]), float(said["cpu_share"]), int(said.get("lost", 0)), cpu_us)
