"""Users and tokens with several writers: the API in parallel, the command beside it, and users who are removed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from gateway.auth.api_tokens import ApiTokens
from gateway.auth.dynamic import DynamicPlugin
from gateway.auth.security import Security, UserGroup, changing
from gateway.base.config_console import Console
from gateway.cli import run
from gateway.console import editing
from gateway.console.asking import ApiError, ApiRequest
from gateway.console.editing import Editing
from gateway.console.logins import ConsoleUser, Logins
from tests.gateway.console.running import Api, Running, console, user
from tests.gateway.harness import serving
from tests.waits import wait_until

USERS = "/users"


def users_of(broker: Running) -> Security:
    return Security.load(broker.directory / "data" / "security.json")


# ------------------------------------------------------------------------------- real processes, parallel writers


def test_ten_users_made_in_parallel_are_ten_users(broker: Running, ann: Api) -> None:
    names = [f"dev{number}" for number in range(10)]
    before = users_of(broker).version

    def put(name: str) -> int:
        return ann.ask("PUT", f"{USERS}/{name}", {"password": name, "acl": []})[0]

    with ThreadPoolExecutor(10) as pool:
        assert list(pool.map(put, names)) == [200] * 10
    found = users_of(broker)
    assert set(names) <= set(found.users)
    assert found.version == before + 10
    assert set(names) <= set(ann.ask("GET", "/users")[1]["users"])


def test_the_command_and_the_api_undo_nothing_of_each_other(
    broker: Running, ann: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    path, done = str(broker.directory / "data" / "security.json"), threading.Event()
    assert ann.ask("PUT", f"{USERS}/mallory", {"password": "pw", "acl": ["topic readwrite #"]})[0] == 200
    said: list[int] = []

    def change_groups() -> None:
        while not done.is_set():
            said.append(ann.ask("PUT", f"/groups/g{len(said)}", {"acl": ["topic read a/#"]})[0])

    script = threading.Thread(target=change_groups)
    script.start()
    try:
        assert wait_until(lambda: len(said) > 2, 20.0)
        assert run(["users", "remove", path, "mallory"]) == 0
        for name in ("one", "two", "three"):
            assert run(["users", "add", path, name, "--password", name]) == 0
        after = len(said)
        assert wait_until(lambda: len(said) > after + 2, 20.0)
    finally:
        done.set()
        script.join(20)
    capsys.readouterr()
    found = users_of(broker)
    assert set(said) == {200}
    assert "mallory" not in found.users
    assert {"one", "two", "three"} <= set(found.users)
    assert {f"g{number}" for number in range(len(said))} <= set(found.groups)


def test_a_removed_admin_is_no_more_within_a_second(
    broker: Running, ann: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    """Logins, tokens, streams, MQTT connections; nothing else happens at the broker meanwhile."""
    path = broker.directory / "data" / "security.json"
    assert ann.ask("PUT", f"{USERS}/ann2", {"password": "ann-pw", "acl": ["topic read #"]})[0] == 200
    ann = broker.api()
    assert ann.log_in("ann2", "ann-pw") == 200
    token = Api(broker.port, token=ann.ask("POST", "/tokens", {"note": "t"})[1]["token"])
    assert token.ask("GET", "/me")[0] == 200
    stream = socket.create_connection(("127.0.0.1", broker.port), 10)
    stream.sendall(
        f"GET /api/v1/stream?filter=quiet HTTP/1.1\r\nHost: 127.0.0.1\r\nCookie: veilmq={ann.cookie}\r\n\r\n".encode()
    )
    assert b"200 OK" in stream.recv(4096)
    gone = threading.Event()
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "ann2-client", protocol=paho.MQTTv5)
    up = threading.Event()
    client.on_connect = lambda *rest: up.set()
    client.on_disconnect = lambda *rest: gone.set()
    client.username_pw_set("ann2", "ann-pw")
    client.reconnect_delay_set(60, 60)
    client.connect("127.0.0.1", broker.mqtt)
    client.loop_start()
    assert up.wait(20)
    assert run(["users", "remove", str(path), "ann2"]) == 0
    removed = time.monotonic()
    assert gone.wait(20)
    assert wait_until(lambda: ann.ask("GET", "/me")[0] == token.ask("GET", "/me")[0] == 401, 20.0, every_s=0.02)
    took_s = time.monotonic() - removed
    said = b""
    while not said.endswith(b"\r\n0\r\n\r\n") and (more := stream.recv(4096)):
        said += more
    ended_s = time.monotonic() - removed
    client.loop_stop()
    capsys.readouterr()
    assert took_s < 1.0, "which the manual says"
    assert ended_s < 1.5
    assert wait_until(lambda: "ann2" not in (broker.directory / "data" / "console-tokens.json").read_text(), 20.0)


class Present:
    """A user in every way: a login, a token, a stream, and a client with a session that would outlive it."""

    def __init__(self, broker: Running, name: str) -> None:
        self.name, self.api = name, broker.api()
        assert self.api.log_in(name, "pw") == 200
        self.token = Api(broker.port, token=self.api.ask("POST", "/tokens", {"note": "t"})[1]["token"])
        self.stream = socket.create_connection(("127.0.0.1", broker.port), 10)
        cookie = f"Cookie: veilmq={self.api.cookie}"
        self.stream.sendall(f"GET /api/v1/stream?filter=quiet HTTP/1.1\r\nHost: 127.0.0.1\r\n{cookie}\r\n\r\n".encode())
        assert b"200 OK" in self.stream.recv(4096)
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, f"{name}-client", clean_session=False, protocol=paho.MQTTv311
        )
        self.client.username_pw_set(name, "pw")
        up = threading.Event()
        self.client.on_connect = lambda *rest: up.set()
        self.client.reconnect_delay_set(60, 60)
        self.client.connect("127.0.0.1", broker.mqtt)
        self.client.loop_start()
        assert up.wait(20)
        self.client.subscribe("quiet", 1)

    def ended(self) -> set[str]:
        """What of it is no more."""
        found = {"login"} if self.api.ask("GET", "/me")[0] == 401 else set()
        found |= {"token"} if self.token.ask("GET", "/me")[0] in (401, 429) else set()  # a guess too many
        found |= {"client"} if not self.client.is_connected() else set()
        self.stream.settimeout(0.05)
        with contextlib.suppress(TimeoutError):
            while self.stream.recv(4096):
                pass
            found |= {"stream"}
        return found


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Running]:
    """A broker for a test that spends the guesses of this machine: logins of other tests would be refused."""
    with console(tmp_path, write=True) as running:
        yield running


@pytest.mark.slow
def test_users_removed_among_parallel_writers_are_no_more_within_a_second(
    own: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    """The API, the command in processes of its own, and SIGHUP, all at once and again and again."""
    broker, ann = own, own.api()
    assert ann.log_in("ann", "ann-pw") == 200
    path, done = broker.directory / "data" / "security.json", threading.Event()
    names = [f"leaves{number}" for number in range(6)]
    for name in names:
        assert ann.ask("PUT", f"{USERS}/{name}", {"password": "pw", "acl": ["topic read #"]})[0] == 200
    present = [Present(broker, name) for name in names]
    said: list[int] = []

    def by_api() -> None:
        while not done.is_set():
            said.append(ann.ask("PUT", f"/groups/g{len(said) % 9}", {"acl": ["topic read a/#"]})[0])

    def by_command() -> None:
        while not done.is_set():
            with changing(path) as security:
                security.groups["by-command"] = UserGroup(acl=["topic read b/#"])

    def by_signal() -> None:
        while not done.wait(0.05):
            os.kill(broker.pid, signal.SIGHUP)

    def remove(number: int) -> None:
        if number % 3 == 0:
            assert ann.ask("DELETE", f"{USERS}/{names[number]}")[0] == 200
        elif number % 3 == 1:
            with changing(path) as security:
                del security.users[names[number]]
        else:
            assert ann.ask("PUT", f"{USERS}/{names[number]}", {"enabled": False})[0] == 200

    writers = [threading.Thread(target=each) for each in (by_api, by_command, by_signal)]
    for writer in writers:
        writer.start()
    took_s: list[float] = []
    try:
        for number, one in enumerate(present):
            remove(number)
            began = time.monotonic()
            assert wait_until(lambda one=one: len(one.ended()) == 4, 20.0, every_s=0.02), one.ended()
            took_s.append(time.monotonic() - began)
    finally:
        done.set()
        for writer in writers:
            writer.join(20)
        for one in present:
            one.client.loop_stop()
            one.stream.close()
    capsys.readouterr()
    assert set(said) == {200}
    found = users_of(broker)
    assert not {name for name in names if found.hash_of(name)}
    clients = [one["id"] for one in ann.ask("GET", "/clients?search=leaves")[1]["clients"]]
    assert clients == [], "their sessions ended, too"
    assert sorted(took_s)[len(took_s) // 2] < 1.5, took_s


def test_a_change_may_say_of_which_version_it_is(broker: Running, ann: Api) -> None:
    version = ann.ask("GET", "/users")[1]["version"]
    new = {"password": "x", "acl": []}
    status, content, _ = ann.ask("PUT", f"{USERS}/vera?version={version}", new)
    assert (status, content) == (200, {"version": version + 1})
    for method, path in (
        ("PUT", f"{USERS}/vera"),
        ("DELETE", f"{USERS}/vera"),
        ("PUT", "/groups/v"),
        ("PUT", "/everybody"),
    ):
        assert ann.ask(method, f"{path}?version={version}", {} if method == "PUT" else None)[0] == 409, path
    assert "vera" in users_of(broker).users
    assert ann.ask("DELETE", f"{USERS}/vera?version={version + 1}")[0] == 200


# --------------------------------------------------------------------------- one request waits, others are quicker


class Held:
    """An `Editing` beside a broker; `make_hash` waits until `go_on` is set."""

    def __init__(self, broker: Any, monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
        self.hashing, self.go_on, self.path = threading.Event(), threading.Event(), path
        plugin = next(one for one in broker.host.plugins if isinstance(one, DynamicPlugin))
        self.logins = Logins(os.urandom, broker.host.standing)
        tokens = ApiTokens(None, os.urandom, broker.host.standing)
        self.editing = Editing(Console(admins=["ann"], write=True), self.logins, tokens, plugin)
        broker.host.follow_users(self.editing.users_changed)
        make_hash = editing.make_hash

        def slow(*arguments: Any) -> str:
            self.hashing.set()
            assert self.go_on.wait(20)
            return make_hash(*arguments, 1)

        monkeypatch.setattr(editing, "make_hash", slow)
        secret = self.logins.begin_login(ConsoleUser("ann"), 0.0)
        self.goes_on: Callable[[], bool] = lambda: self.logins.is_on(secret, 0.0)

    def asked(self, name: str, **body: Any) -> ApiRequest:
        request: Any = None
        return ApiRequest("ann", "", name, {}, body, request, self.goes_on)

    async def changed_while_hashing(self, name: str, quicker: Callable[[Security], None]) -> int:
        """Sets a user's password; before it is hashed somebody else makes a change. The status of the answer."""
        put = asyncio.ensure_future(self.editing.put_user(self.asked(name, password="new")))
        await asyncio.to_thread(self.hashing.wait, 20)
        with changing(self.path) as security:
            quicker(security)
        self.go_on.set()
        try:
            await put
        except ApiError as error:
            return error.status
        return 200


def remove(name: str) -> Callable[[Security], None]:
    def change(security: Security) -> None:
        del security.users[name]

    return change


def with_rule(security: Security) -> None:
    security.users["bob"].acl.append("topic read more")


def with_another(security: Security) -> None:
    security.users["carl"] = user("carl")


@pytest.mark.parametrize(
    ("name", "quicker", "status", "after"),
    [
        ("bob", remove("bob"), 409, {"ann"}),  # a removed user does not come back
        ("bob", with_rule, 409, {"ann", "bob"}),
        ("ann", remove("ann"), 401, {"bob"}),  # nor does a removed admin make herself again
        ("eve", remove("ann"), 401, {"bob"}),  # or another one
        ("bob", remove("ann"), 401, {"bob"}),
        ("bob", with_another, 200, {"ann", "bob", "carl"}),  # what somebody else did stays
        ("carl", with_another, 409, {"ann", "bob", "carl"}),
    ],
)
def test_a_password_that_is_hashed_meanwhile_undoes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, quicker: Callable[[Security], None], status: int,
    after: set[str],
) -> None:  # fmt: skip
    path = tmp_path / "security.json"
    Security(users={"ann": user("ann", "topic readwrite #"), "bob": user("bob")}).save(path)

    async def check() -> None:
        plugins = {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}
        async with serving({"plugins": plugins, "allow_anonymous": False}) as broker:
            held = Held(broker, monkeypatch, path)
            old = Security.load(path).users
            assert await held.changed_while_hashing(name, quicker) == status
            found = Security.load(path).users
            assert set(found) == after
            if status != 200 and name in found and name in old:
                assert found[name].hash == old[name].hash

    asyncio.run(check())


@pytest.mark.attack(200)
def test_who_was_removed_while_a_change_waits_for_its_turn_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Attack: an admin sends changes and asks for tokens while she is removed, by a command or SIGHUP. Once her removal
    was in force, the file and the broker agreed about her, and a token had her new standing.
    """
    path, make_again = tmp_path / "security.json", user("ann", "topic readwrite #")
    Security(users={"ann": make_again, "bob": user("bob")}).save(path)

    async def check() -> None:
        loop = asyncio.get_running_loop()
        plugins = {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}}
        async with serving({"plugins": plugins, "allow_anonymous": False}) as broker:
            held = Held(broker, monkeypatch, path)
            plugin, tokens = held.editing._dynamic, held.editing._tokens
            assert plugin is not None

            def in_force(change: Callable[[Security], None]) -> None:
                with changing(path) as security:
                    change(security)
                asyncio.run_coroutine_threadsafe(plugin.follow_file(), loop).result(20)

            @contextlib.contextmanager
            def late(where: Path) -> Iterator[Security]:
                in_force(remove("ann"))
                with changing(where) as security:
                    yield security

            def with_password(security: Security) -> None:
                security.users["ann"] = user("another")

            issue = tokens.issue

            def issue_late(*asked: Any) -> Any:
                in_force(with_password)
                return issue(*asked)

            monkeypatch.setattr(tokens, "issue", issue_late)
            given = await held.editing.issue_token(held.asked(""))
            assert tokens.user_of(given["token"], time.time()) is None
            secret = held.logins.begin_login(ConsoleUser("ann"), 0.0)
            held.goes_on = lambda: held.logins.is_on(secret, 0.0)
            monkeypatch.setattr(editing, "changing", late)
            with pytest.raises(ApiError) as refused:
                await held.editing.put_group(held.asked("hers", acl=["topic readwrite #"]))
            assert refused.value.status == 401
            found = Security.load(path)
            assert (set(found.users), set(found.groups)) == ({"bob"}, set())

    asyncio.run(check())
