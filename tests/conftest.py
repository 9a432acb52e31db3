"""What every test may use: tools that may be absent, a free port, a broker in a thread; and honest skipping.

A test marked `tools` is skipped, naming `make tools`, where Debian's packages or MQTT.js are missing. With
VEILMQ_SKIP_IS_FAILURE set, as in CI, any skip fails the run. The summary says how many tests really ran.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer.main
from hypothesis import Phase, settings

import keys.identity
import keys.sealedbox
from gateway.base.logs import OURS
from tests.ports import free_ports
from tests.second_chance import SecondChance
from tests.spreading import (
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_ignore_collect,
    pytest_xdist_make_scheduler,
)

pytest_plugins = ["tests.resuming", "tests.times"]
__all__ = [
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_ignore_collect",
    "pytest_xdist_make_scheduler",
]

QUICK_EXAMPLES = 20
SIGNATURES = 16_384
IDENTITIES = 2_048
# Speed is measured in benches: an example that waits for a busy machine is no failure.
settings.register_profile("veilmq", deadline=None, max_examples=50)
settings.register_profile("quick", deadline=None, max_examples=QUICK_EXAMPLES)
settings.register_profile("unshrunk", deadline=None, database=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile("veilmq")

# A process builds the tree of commands once, in an eighth of a second; a test process runs commands hundreds of times.
typer.main.get_command = cache(typer.main.get_command)

# All members of a simulation verify the same signature, and a good one stays good; a bad one raises, and is not kept.
keys.identity.crypto_sign_open = lru_cache(maxsize=SIGNATURES)(keys.identity.crypto_sign_open)
# Most worlds come from one seed: the same keys are derived again and again. Only functions of libraries are remembered,
# since a fault that `tests.mutation` puts into one of ours would not be met.
keys.sealedbox.MLKEM768PrivateKey = SimpleNamespace(
    from_seed_bytes=lru_cache(maxsize=IDENTITIES)(keys.sealedbox.MLKEM768PrivateKey.from_seed_bytes)
)

ROOT = Path(__file__).resolve().parents[1]
MQTTJS = ROOT / ".tools" / "node_modules" / "mqtt"
TOOLS = ("mosquitto", "mosquitto_pub", "mosquitto_sub", "node")
START_S = 10.0
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For drivers of Spark that live for seconds: the second compiler costs them more than its code ever spares."""

MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 << 30
"""Free space from which on tests have their files in memory: on a disk, thousands of tests wait at each `fsync`."""

_ran = 0
_skipped: list[str] = []


def tool(name: str) -> str | None:
    """Path of an installed program; daemons of Debian live in /usr/sbin, which users' paths lack."""
    return shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def library(package: str) -> Path | None:
    """The interpreter that imports a published library of Python, which has dependencies other than ours."""
    interpreter = ROOT / ".tools" / "python" / package / "bin" / "python"
    return interpreter if interpreter.exists() else None


def missing_tools() -> list[str]:
    missing = [name for name in TOOLS if tool(name) is None]
    return missing if MQTTJS.is_dir() else [*missing, "MQTT.js"]


def missing_browser() -> list[str]:
    missing = [] if tool("chromium") else ["chromium"]
    return missing if MQTTJS.is_dir() else [*missing, "MQTT.js"]


def in_memory() -> bool:
    """Returns true if there is memory for files, from which programs may be started, too."""
    if not MEMORY.is_dir():
        return False
    room = os.statvfs(MEMORY)
    return room.f_bavail * room.f_frsize >= MEMORY_BYTES and not room.f_flag & os.ST_NOEXEC


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", SHORT_LIVED_JAVA)
    if in_memory():
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SecondChance())


def pytest_collection() -> None:
    """Looks for no garbage while thousands of tests are collected, which all stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.enable()


def pytest_itemcollected(item: pytest.Item) -> None:
    """Draws few examples with `--quick`, also where a property asks for more than the profile has."""
    test = getattr(item, "obj", None)
    test = getattr(test, "__func__", test)
    asked = getattr(test, "_hypothesis_internal_use_settings", None)
    if asked is not None and asked.max_examples > QUICK_EXAMPLES and item.config.getoption("--quick"):
        test._hypothesis_internal_use_settings = settings(asked, max_examples=QUICK_EXAMPLES)


def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker, find_missing in (("tools", missing_tools), ("browser", missing_browser)):
        if item.get_closest_marker(marker) and (missing := find_missing()):
            pytest.skip(f"needs {', '.join(missing)}; run `make tools` as root")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    global _ran  # noqa: PLW0603 - pytest's hooks have no other place for it
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append(f"{report.nodeid}: {reason}")
    elif report.when == "call":
        _ran += 1


def pytest_collectreport(report: pytest.CollectReport) -> None:
    if report.skipped:  # a whole module: pytest.importorskip and the like
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        _skipped.append(f"{report.nodeid}: {reason}")


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if _skipped and os.environ.get("VEILMQ_SKIP_IS_FAILURE") and exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any) -> None:
    terminalreporter.write_line(f"{_ran} tests ran, {len(_skipped)} were skipped")
    if _skipped and os.environ.get("VEILMQ_SKIP_IS_FAILURE"):
        terminalreporter.write_line("VEILMQ_SKIP_IS_FAILURE is set, so these skips are failures:", red=True)
        for line in _skipped:
            terminalreporter.write_line(f"  {line}", red=True)


@pytest.fixture(autouse=True)
def _no_handler_outlives_its_test() -> Iterator[None]:
    """A command that was run inside a test logs to what was standard error then, and more than others want."""
    yield
    for handler in [each for each in logging.root.handlers if type(each) is logging.StreamHandler]:
        logging.root.removeHandler(handler)
    for name in OURS:
        logging.getLogger(name).setLevel(logging.NOTSET)


@pytest.fixture
def free_port() -> int:
    """A TCP port on loopback that nothing listened on a moment ago."""
    return free_ports(1)[0]


class ThreadedBroker:
    """An EdgeBroker on an event loop in a thread, for clients that block."""

    def __init__(self, settings: Any, overlay: Any = None) -> None:
        self._settings, self._overlay = settings, overlay
        self._thread = threading.Thread(target=self._main, daemon=True)
        self._ready = threading.Event()
        self._error: BaseException | None = None
        self._stop: asyncio.Event | None = None
        self.loop: asyncio.AbstractEventLoop | None = None
        self.broker: Any = None

    def _main(self) -> None:
        from gateway.broker.running import run_broker

        async def serve() -> None:
            self.loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
            await run_broker(self._settings, self._overlay, started=self._started, stop=self._stop)

        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            self._error = error
        finally:
            self._ready.set()

    def _started(self, broker: Any) -> None:
        self.broker = broker
        self._ready.set()

    def start(self) -> ThreadedBroker:
        self._thread.start()
        assert self._ready.wait(START_S), "the broker did not start"
        if self._error is not None:
            raise self._error
        return self

    def port(self, listener: str = "default") -> int:
        return int(self.broker.port(listener))

    def stop(self) -> None:
        if self.loop is not None and self._stop is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self.loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_S)
        if self._error is not None:
            raise self._error


@pytest.fixture
def threaded_broker() -> Iterator[Callable[..., ThreadedBroker]]:
    """`threaded_broker({...})`: a broker on a free loopback port, ended with the test.

    The configuration is what a YAML file would hold; listeners and anonymous access are filled in.
    """
    from gateway.base.config import parse

    running: list[ThreadedBroker] = []

    def start(config: dict[str, Any] | None = None, overlay: Any = None) -> ThreadedBroker:
        content = {
            "listeners": {"default": {"bind": "127.0.0.1:0"}},
            "allow_anonymous": True,
            **(config or {}),
        }
        running.append(ThreadedBroker(parse(content), overlay).start())
        return running[-1]

    yield start
    for broker in running:
        broker.stop()
