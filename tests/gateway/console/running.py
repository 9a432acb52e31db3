"""A broker with a console in a process of its own, and a program that speaks to its API."""

from __future__ import annotations

import contextlib
import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gateway.auth.password_hashes import make_hash
from gateway.auth.security import Security, User
from tests.forking import run
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.ports import free_ports
from tests.waits import wait_until

#: Logins cost little here: it is not hashing that is tested.
ITERATIONS = 10
PAGES = ("/", "/page.js", "/page.css")


def user(password: str, *acl: str) -> User:
    return User(hash=make_hash(password.encode(), os.urandom, ITERATIONS), acl=list(acl))


@dataclass
class Api:
    """One that asks. `cookie` or `token`: how it says who it is."""

    port: int
    cookie: str = ""
    token: str = ""
    headers: dict[str, str] = field(default_factory=lambda: {"X-Requested-By": "test"})

    def ask(self, method: str, path: str, body: Any = None, raw: bytes | None = None) -> tuple[int, Any, Any]:
        """Status, content, headers."""
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.port}{path if path in PAGES else '/api/v1' + path}"
        request = urllib.request.Request(url, data, method=method, headers=dict(self.headers))
        if self.cookie:
            request.add_header("Cookie", f"veilmq={self.cookie}")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with urllib.request.urlopen(request, timeout=20) as response:
                return response.status, _read(response.read()), response.headers
        except urllib.error.HTTPError as error:
            return error.code, _read(error.read()), error.headers

    def log_in(self, name: str, password: str) -> int:
        status, _, headers = self.ask("POST", "/login", {"user": name, "password": password})
        if status == 200:
            self.cookie = headers["Set-Cookie"].split(";")[0].removeprefix("veilmq=")
        return status


def _read(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


@dataclass(frozen=True)
class Running:
    directory: Path
    mqtt: int
    port: int
    pid: int

    def api(self) -> Api:
        return Api(self.port)


@contextlib.contextmanager
def console(directory: Path, **more: Any) -> Iterator[Running]:
    """`more`: of the section `console`. Users: ann, an admin; bob, who reads plant/#; eve, who may nothing."""
    mqtt, port = free_ports(2)
    data = directory / "data"
    data.mkdir(mode=0o700)
    Security(users={
        "ann": user("ann-pw", "topic readwrite #"), "bob": user("bob-pw", "topic read plant/#"), "eve": user("eve-pw"),
    }).save(data / "security.json")  # fmt: skip
    config = {
        "listeners": {"default": {"bind": f"127.0.0.1:{mqtt}"}},
        "data": str(data),
        "plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(data / "security.json")}},
        "console": {"bind": f"127.0.0.1:{port}", "admins": ["ann", "ann2"], **more},
        "availability": {"enabled": True},
    }
    (directory / "broker.yaml").write_text(yaml.safe_dump(config))
    log = directory / "log"
    process = run([*VEILMQ, "-c", str(directory / "broker.yaml")], None, ENVIRONMENT, log, log)
    running = Running(directory, mqtt, port, process.pid)

    def answers() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        with contextlib.suppress(OSError):
            return running.api().ask("GET", "/openapi.json")[0] == 200
        return False

    try:
        assert wait_until(answers, 60.0, every_s=0.1)
        yield running
    finally:
        process.terminate()
        process.wait(30)
