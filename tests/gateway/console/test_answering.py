"""What each operation of the API does, from outside: topics by MQTT rights, tokens, clients, users."""

from __future__ import annotations

import asyncio
import json
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import paho.mqtt.client as paho
import pytest

from gateway.auth.security import Security
from gateway.base.config_console import Console
from gateway.broker.session_shares import owner_of
from gateway.cli import run
from gateway.clients import Client
from gateway.console.answering import Answering
from gateway.console.asking import ApiRequest
from gateway.console.operations import OPERATIONS
from gateway.console.shown import LogTail, Shown
from tests.gateway.console.running import Api, Running, user
from tests.gateway.harness import Wire, serving
from tests.waits import until, wait_until

USERS = "/users"


def test_rights_over_topics_are_those_of_mqtt(ann: Api, bob: Api) -> None:
    assert ann.ask("POST", "/publish", {"topic": "plant/1", "payload": "warm", "retain": True})[0] == 200
    assert ann.ask("POST", "/publish", {"topic": "office/1", "payload": "quiet", "retain": True})[0] == 200
    assert bob.ask("POST", "/publish", {"topic": "plant/1", "payload": "forged"})[0] == 403
    topics = [one["topic"] for one in bob.ask("GET", "/retained?filter=%23")[1]["messages"]]
    assert topics == ["plant/1"]
    assert {"plant/1", "office/1"} <= {one["topic"] for one in ann.ask("GET", "/retained?filter=%23")[1]["messages"]}
    assert bob.ask("GET", "/stream?filter=office/%23")[0] == 403
    assert bob.ask("GET", "/stream?filter=a/%23/b")[0] == 400
    assert bob.ask("GET", "/retained?filter=office/%23")[0] == 403
    assert bob.ask("GET", "/retained?filter=$share/g/plant/%23")[0] == 403


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'"x"', b"[" * 100_000, b"\xff", b'{"topic": 1, "payload": ""}', b'{"topic": "a"}',
     b'{"topic": "a/#", "payload": ""}', b'{"topic": "", "payload": ""}', b'{"topic": "a", "payload": "", "qos": true}',
     b'{"topic": "a", "payload": "", "qos": 2}', b'{"topic": "$SYS/x", "payload": ""}',
     b'{"topic": "a", "payload": "", "more": 1}'],
)  # fmt: skip
def test_what_is_no_publication_is_refused_in_one_line(ann: Api, body: bytes) -> None:
    status, content, _ = ann.ask("POST", "/publish", raw=body)
    assert status == 400
    assert "\n" not in content["error"]


def test_a_token_has_its_users_rights_and_ends(ann: Api, bob: Api) -> None:
    _, issued, _ = bob.ask("POST", "/tokens", {"note": "script"})
    program = Api(bob.port, token=issued["token"])
    assert program.ask("GET", "/me")[1]["user"] == "bob"
    assert program.ask("GET", "/clients")[0] == 403
    assert issued["token"] not in str(bob.ask("GET", "/tokens")[1])
    assert ann.ask("DELETE", f"/tokens/{issued['id']}")[0] == 200
    assert program.ask("GET", "/me")[0] == 401
    assert bob.ask("POST", "/tokens", {"days": 91})[0] == 400


def test_the_command_makes_and_ends_tokens_of_a_running_broker(
    broker: Running, capsys: pytest.CaptureFixture[str]
) -> None:
    config = str(broker.directory / "broker.yaml")
    assert run(["tokens", "add", "-c", config, "bob", "--json"]) == 0
    issued = json.loads(capsys.readouterr().out)
    program = Api(broker.port, token=issued["token"])
    assert program.ask("GET", "/me")[1]["user"] == "bob"
    headers = {"Authorization": f"Bearer {issued['token']}"}
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.port}/api/v1/stream?filter=plant/quiet", headers=headers
    )
    with urllib.request.urlopen(request, timeout=20) as stream:
        assert stream.readline() == b"event: subscribed\n"
        assert run(["tokens", "revoke", "-c", config, issued["id"]]) == 0
        assert program.ask("GET", "/me")[0] == 401
        stream.read()  # a stream ends with the token that opened it


def test_a_client_is_shown_and_sent_away(broker: Running, ann: Api) -> None:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "pump-7", protocol=paho.MQTTv5)
    reasons: list[str] = []
    client.on_disconnect = lambda client, data, flags, reason, properties: reasons.append(str(reason))
    client.username_pw_set("bob", "bob-pw")
    client.reconnect_delay_set(30, 30)
    client.connect("127.0.0.1", broker.mqtt)
    client.loop_start()
    client.subscribe("plant/+/temp", 1)
    assert wait_until(lambda: "plant/+/temp" in str(ann.ask("GET", "/subscriptions")[1]), 20.0)
    _, shown, _ = ann.ask("GET", "/clients/pump-7")
    assert (shown["user"], shown["connected"], list(shown["filters"])) == ("bob", True, ["plant/+/temp"])
    assert ann.ask("GET", "/clients?search=pump")[1]["total"] == 1
    assert ann.ask("POST", "/clients/pump-7/disconnect")[0] == 200
    assert wait_until(lambda: bool(reasons), 20.0)
    assert reasons == ["Administrative action"]
    assert ann.ask("POST", "/clients/nobody/disconnect")[0] == 404
    client.loop_stop()
    assert "veilmq/" not in str(ann.ask("GET", "/clients")[1])  # our own parts are no clients


def test_users_change_while_it_runs(broker: Running, ann: Api) -> None:
    def may(name: str, password: str, *arguments: str) -> bool:
        command = ["mosquitto_sub", "-p", str(broker.mqtt), "-u", name, "-P", password, "-W", "5", *arguments]
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0

    new = {"password": "one", "groups": ["plant"], "acl": ["topic read news/#"]}
    assert ann.ask("PUT", f"{USERS}/carl", new)[0] == 400  # there is no such group
    assert ann.ask("PUT", "/groups/plant", {"acl": ["topic readwrite plant/#"]})[0] == 200
    assert ann.ask("PUT", f"{USERS}/carl", new)[0] == 200
    carl = Api(broker.port)
    assert carl.log_in("carl", "one") == 200
    assert carl.ask("POST", "/publish", {"topic": "plant/c", "payload": "x", "retain": True})[0] == 200
    assert may("carl", "one", "-t", "plant/c", "-C", "1")
    assert ann.ask("PUT", "/groups/plant", {"acl": ["topic read plant/other"]})[0] == 200
    assert carl.ask("POST", "/publish", {"topic": "plant/c", "payload": "x"})[0] == 403
    assert ann.ask("DELETE", "/groups/plant")[0] == 400  # carl is in it
    assert ann.ask("PUT", f"{USERS}/carl", {"enabled": False})[0] == 200
    assert carl.ask("GET", "/me")[0] == 401
    assert not may("carl", "one", "-t", "plant/c", "-C", "1")
    assert "hash" not in str(ann.ask("GET", "/users")[1])
    assert ann.ask("DELETE", f"{USERS}/carl")[0] == 200
    for name in ("a b", "a:b", "a%23", "%0a"):
        assert ann.ask("PUT", f"{USERS}/{name.replace(' ', '%20')}", {"password": "x"})[0] == 400
    assert ann.ask("PUT", f"{USERS}/dora", {"password": "x", "acl": ["topic read a\nuser ann"]})[0] == 400
    assert ann.ask("PUT", "/everybody", {"acl": ["user ann"]})[0] == 400


def test_metrics_overview_log_and_document(ann: Api) -> None:
    assert "veilmq_clients_connected" in ann.ask("GET", "/metrics")[1]
    assert ann.ask("GET", "/overview")[1]["status"]["level"] in ("well", "degraded")
    assert ann.ask("GET", "/overlay")[1] == {"histories": []}
    assert any("login at the console" in line["event"] for line in ann.ask("GET", "/log")[1]["lines"])
    assert isinstance(ann.ask("GET", "/entities")[1]["entities"], list)
    document = ann.ask("GET", "/openapi.json")[1]
    assert len(document["paths"]) == len({one.path for one in OPERATIONS})


@pytest.mark.attack(164)
def test_what_a_user_publishes_waits_behind_nothing_of_others_and_counts_for_the_user(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Attack: a user publishes to a client that does not read, and what all others publish waited behind it."""

    async def check() -> None:
        path = tmp_path / "security.json"
        rights = {name: user("pw", "topic readwrite #") for name in ("ann", "bob", "slow")}
        Security(users=rights).save(path)
        config = {
            "plugins": {"gateway.auth.dynamic.DynamicPlugin": {"file": str(path)}},
            "allow_anonymous": False,
            "limits": {"in_flight": 1, "queue_messages": 4, "hold_s": 600},
        }
        async with serving(config) as broker:
            answering = Answering(Console(), Shown(broker, dict, "entities", LogTail()), editing=None, followed=None)  # type: ignore[arg-type]
            stuck = await Wire.connect(broker, "slow", username="slow", password=b"pw")
            assert await stuck.subscribe("slow/#", 1) == 1
            owners: list[str] = []
            accept = broker.exchange._accept

            def accepted(client: Client, *rest: Any) -> Any:
                owners.append(owner_of(client.view))
                return accept(client, *rest)

            broker.exchange._accept = accepted  # type: ignore[method-assign]

            def publishes(who: str, topic: str) -> asyncio.Task[Any]:
                body = {"topic": topic, "payload": "x"}
                request = ApiRequest(who, "", "", {}, body, None, lambda: True)  # type: ignore[arg-type]
                return asyncio.create_task(answering.publish(request))

            many = [publishes("bob", "slow/1") for _ in range(8)]
            await until(lambda: broker.exchange.holding.waiting > 0)
            assert await publishes("ann", "other/1") == {"topic": "other/1"}
            assert not all(one.done() for one in many)
            assert set(owners) == {"user ann", "user bob"}
            for one in many:
                one.cancel()
            await asyncio.gather(*many, return_exceptions=True)
            assert "closed the connection" not in caplog.text

    asyncio.run(check())
