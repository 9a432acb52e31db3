"""Logins at a real identity provider, a process of its own (npm's oidc-provider): devices with access tokens, people in
the page by the authorization code flow.
"""

from __future__ import annotations

import base64
import hmac
import http.cookiejar
import json
import re
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import paho.mqtt.client as paho
import pytest
import yaml
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from gateway.auth.security import Security, UserGroup
from tests import forking
from tests.conftest import tool
from tests.gateway.auth.tokens import encoded, jwk, rsa_key
from tests.gateway.console.running import Api
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ
from tests.ports import free_ports
from tests.waits import wait_until

TOOLS = Path(__file__).parents[2] / ".tools"
PROVIDER = Path(__file__).with_name("provider.mjs")
pytestmark = [
    pytest.mark.tools,
    pytest.mark.slow,
    pytest.mark.skipif(
        tool("node") is None or not (TOOLS / "node_modules" / "oidc-provider").is_dir(),
        reason="needs node and oidc-provider; run `make tools` as root",
    ),
]


class BrokerWithProvider:
    """A broker with a console, and the provider."""

    def __init__(self, directory: Path) -> None:
        self.mqtt, self.port, self.provider_port = free_ports(3)
        self.issuer = f"http://127.0.0.1:{self.provider_port}"
        self.log = directory / "log"
        Security(groups={
            "plant": UserGroup(acl=["topic readwrite plant/#"]), "operators": UserGroup(acl=["topic read office/#"]),
        }).save(directory / "security.json")  # fmt: skip
        secret = directory / "console.secret"
        secret.write_text("console-secret")
        secret.chmod(0o600)
        address = f"http://127.0.0.1:{self.port}"
        (directory / "broker.yaml").write_text(yaml.safe_dump({
            "listeners": {"default": {"bind": f"127.0.0.1:{self.mqtt}"}},
            "plugins": {
                "gateway.auth.oidc.OidcPlugin": {"issuer": self.issuer, "audience": ["veilmq"], "leeway_s": 1},
                "gateway.auth.dynamic.DynamicPlugin": {"file": "security.json"},
            },
            "console": {
                "bind": f"127.0.0.1:{self.port}", "admin_groups": ["operators"],
                "provider": {"client_id": "console", "client_secret_file": "console.secret", "url": address},
            },
        }))  # fmt: skip
        with self.log.open("wb") as log:
            self._provider = subprocess.Popen(
                ["node", str(PROVIDER), str(self.provider_port), address, f"{TOOLS}/"], stdout=log, stderr=log
            )
        command = [*VEILMQ, "-c", str(directory / "broker.yaml")]
        self._broker = forking.run(command, None, ENVIRONMENT, self.log, self.log)

    def is_up(self) -> bool:
        assert self._broker.poll() is None, self.log.read_text()
        assert self._provider.poll() is None, self.log.read_text()
        return "keys" in self.log.read_text() and "console: http" in self.log.read_text()

    def token(self, client: str, resource: str = "urn:veilmq") -> str:
        login = base64.b64encode(f"{client}:{client}-secret".encode()).decode()
        request = urllib.request.Request(
            f"{self.issuer}/token", f"grant_type=client_credentials&scope=mqtt&resource={resource}".encode(),
            headers={"Authorization": f"Basic {login}"},
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=20) as answer:
            return str(json.load(answer)["access_token"])

    def stop(self) -> None:
        for process in (self._broker, self._provider):
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerWithProvider]:
    made = BrokerWithProvider(tmp_path_factory.mktemp("company"))
    try:
        assert wait_until(made.is_up, 90.0, every_s=0.1), made.log.read_text()
        yield made
    finally:
        made.stop()


def connect(site: BrokerWithProvider, client: paho.Client, **fields: Any) -> int:
    """Connects a client; returns the reason code."""
    codes: list[int] = []
    client.on_connect = lambda one, data, flags, code, properties: codes.append(code.value)
    client.connect("127.0.0.1", site.mqtt, **fields)
    client.loop_start()
    assert wait_until(lambda: codes, 30.0)
    return codes[0]


def test_a_device_logs_in_with_its_access_token(site: BrokerWithProvider) -> None:
    text = site.token("pump-7")
    plain = paho.Client(paho.CallbackAPIVersion.VERSION2, "plain", protocol=paho.MQTTv311)
    plain.username_pw_set("pump-7", text)
    assert connect(site, plain) == 0
    enhanced = paho.Client(paho.CallbackAPIVersion.VERSION2, "enhanced", protocol=paho.MQTTv5)
    properties = Properties(PacketTypes.CONNECT)
    properties.AuthenticationMethod, properties.AuthenticationData = "OAUTH2-JWT", text.encode()
    assert connect(site, enhanced, properties=properties) == 0
    got: list[bytes] = []
    granted: list[int] = []
    enhanced.on_message = lambda one, data, message: got.append(message.payload)
    enhanced.on_subscribe = lambda one, data, mid, codes, properties: granted.extend(code.value for code in codes)
    enhanced.subscribe([("plant/7", paho.SubscribeOptions(1)), ("office/1", paho.SubscribeOptions(1))])
    assert wait_until(lambda: len(granted) == 2, 30.0)
    assert granted == [1, 0x87]
    plain.publish("plant/7", b"21", 1)
    assert wait_until(lambda: got == [b"21"], 30.0)
    wrong = paho.Client(paho.CallbackAPIVersion.VERSION2, "wrong", protocol=paho.MQTTv5)
    wrong.username_pw_set("pump-7", text[:-20] + "A" * 20)
    assert connect(site, wrong) == 0x86
    for client in (plain, enhanced, wrong):
        client.disconnect()
        client.loop_stop()
    assert text not in site.log.read_text()


def browse(site: BrokerWithProvider) -> tuple[Any, http.cookiejar.CookieJar]:
    """A browser without scripts: follows redirects, keeps cookies, fills the provider's forms in."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(jar))
    answer = opener.open(f"http://127.0.0.1:{site.port}/login/provider", timeout=20)
    for _ in range(4):
        text = answer.read().decode()
        found = re.search(r'action="([^"]+)"', text)
        if found is None or str(site.provider_port) not in answer.url:
            return (answer.url, text), jar
        prompt = re.search(r'name="prompt" value="(\w+)"', text)
        assert prompt is not None
        form = {"prompt": prompt[1], "login": "ann", "password": "any"}
        target = urllib.parse.urljoin(answer.url, found[1])
        answer = opener.open(target, urllib.parse.urlencode(form).encode(), timeout=20)
    raise AssertionError("no end of forms")


def test_a_person_logs_in_at_the_provider_and_has_the_rights_of_the_groups(site: BrokerWithProvider) -> None:
    assert Api(site.port).ask("GET", "/ways")[1]["provider"] == "/login/provider"
    (url, text), jar = browse(site)
    assert url == f"http://127.0.0.1:{site.port}/", (url, text, site.log.read_text())
    assert "<title>VeilMQ</title>" in text
    cookie = next(one for one in jar if one.name == "veilmq")
    api = Api(site.port, cookie=str(cookie.value))
    assert api.ask("GET", "/me")[1] == {"user": "ann", "admin": True, "write": False, "users": True}
    assert api.ask("GET", "/clients")[0] == 200  # an admin by group
    assert api.ask("POST", "/publish", {"topic": "plant/1", "payload": "x"})[0] == 200
    assert api.ask("POST", "/publish", {"topic": "office/1", "payload": "x"})[0] == 403
    status, said, _ = api.ask("POST", "/tokens", {})
    assert (status, "ends with its token" in said["error"]) == (400, True)
    assert api.ask("POST", "/logout")[0] == 200
    assert api.ask("GET", "/me")[0] == 401


def test_an_answer_that_is_repeated_or_forged_lets_nobody_in(site: BrokerWithProvider) -> None:
    for query in ("code=abc&state=x", "code=abc", "error=access_denied&state=x", ""):
        request = urllib.request.Request(f"http://127.0.0.1:{site.port}/login/callback?{query}")
        request.add_header("Cookie", "veilmq-flow=x.y")
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=20)
        assert caught.value.code == 401
        assert "veilmq=" not in str(caught.value.headers)


def test_a_program_shows_its_access_token_to_the_api(site: BrokerWithProvider) -> None:
    api = Api(site.port, token=site.token("pump-7"))
    assert api.ask("GET", "/me")[1] == {"user": "pump-7", "admin": False, "write": False, "users": True}
    assert api.ask("POST", "/publish", {"topic": "plant/1", "payload": "x"})[0] == 200
    assert api.ask("GET", "/clients")[0] == 403
    assert (
        Api(site.port, token=site.token("visitor")).ask("POST", "/publish", {"topic": "plant/1", "payload": "x"})[0]
        == 403
    )
    assert Api(site.port, token=api.token[:-9] + "AAAAAAAAA").ask("GET", "/me")[0] == 401


def forged(site: BrokerWithProvider, kind: str) -> str:
    """A token as an attacker makes it who has one of the provider's and its public keys; `kind` says how."""
    real = site.token("pump-7")
    header, claims = jwt.get_unverified_header(real), jwt.decode(real, options={"verify_signature": False})
    claims |= {"sub": "root"}
    with urllib.request.urlopen(f"{site.issuer}/jwks", timeout=20) as answer:
        public = next(key for key in json.load(answer)["keys"] if key["kid"] == header["kid"])
    if kind == "none":
        return f"{encoded({**header, 'alg': 'none'})}.{encoded(claims)}."
    if kind == "public key as a secret":
        pem = jwt.PyJWK(public).key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
        said = f"{encoded({**header, 'alg': 'HS256'})}.{encoded(claims)}"
        return f"{said}.{encoded(hmac.digest(pem, said.encode(), 'sha256'))}"
    mine = rsa_key("mallory")
    headers = {
        "key of another": header, "path": {"kid": "../../../../dev/null"},
        "key in the token": {"kid": "mine", "jwk": jwk(mine, "mine"), "jku": "http://127.0.0.1:1/"},
    }  # fmt: skip
    return jwt.encode(claims, mine, "RS256", headers=headers[kind])


@pytest.mark.parametrize(
    "kind", ["none", "public key as a secret", "key of another", "path", "key in the token", "urn:office", "urn:short"]
)
def test_attacks_with_a_token_of_the_provider_are_refused(site: BrokerWithProvider, kind: str) -> None:
    text = site.token("pump-7", kind) if kind.startswith("urn:") else forged(site, kind)
    if kind == "urn:short":
        ends = jwt.decode(text, options={"verify_signature": False})["exp"]
        assert wait_until(lambda: time.time() > ends + 1.5, 30.0)
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, "mallory", protocol=paho.MQTTv5)
    client.username_pw_set("", text)
    code = connect(site, client)
    client.loop_stop()
    assert code in {0x86, 0x87}
    assert Api(site.port, token=text).ask("GET", "/me")[0] in {401, 429}  # 429: too many of these attempts
