"""AUTH on the wire: SCRAM-SHA-256 at CONNECT and again later, a method of one's own, and what is refused."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import pytest

from gateway.auth.enhanced_auth import AuthRefused, EnhancedAuthPlugin, Proven
from gateway.auth.scram import ITERATIONS_MIN
from gateway.base.config import StartError, parse
from gateway.broker.running import make_broker
from gateway.mqtt5.packets import Auth, ConnAck, Connect, Disconnect, PingReq, Properties, Publish, Version
from gateway.mqtt5.types import ReasonCode
from gateway.scram_plugin import set_user
from tests.gateway.auth.test_scram import Client
from tests.gateway.harness import Wire, serving
from tests.waits import until

SCRAM = "gateway.scram_plugin.ScramPlugin"
ACL = "amqtt.plugins.topic_checking.TopicAccessControlListPlugin"
METHOD = "SCRAM-SHA-256"
MORE, AGAIN = ReasonCode.CONTINUE_AUTHENTICATION, ReasonCode.RE_AUTHENTICATE


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "scram.yaml"
    for name in ("nurse", "doctor"):
        set_user(path, name, f"{name}'s", ITERATIONS_MIN)
    return path


def config(users: Path, **more: Any) -> dict[str, Any]:
    return {"plugins": {SCRAM: {"users_file": str(users)}}, "allow_anonymous": False, **more}


def proof(data: bytes, method: str | None = METHOD, code: int = MORE) -> Auth:
    return Auth(code, Properties(authentication_method=method, authentication_data=data))


def scram(name: str = "nurse", password: str = "") -> Client:
    return Client(password or f"{name}'s", name, gs2="n,,")


async def begin(broker: Any, client: Client, client_id: str = "c", **fields: Any) -> Wire:
    """CONNECT with the first message; the answer is to be read."""
    wire = await Wire.open(broker)
    properties = Properties(
        authentication_method=METHOD, authentication_data=client.first(), **fields.pop("properties", {})
    )
    wire.send(Connect(client_id, properties=properties, **fields))
    return wire


async def log_in(broker: Any, client: Client, client_id: str = "c", **fields: Any) -> Wire:
    """Connected, whatever the CONNACK says."""
    wire = await begin(broker, client, client_id, **fields)
    challenge = await wire.expect(Auth)
    assert challenge.code == MORE
    assert challenge.properties.authentication_method == METHOD
    assert challenge.properties.authentication_data
    wire.send(proof(client.final(challenge.properties.authentication_data)))
    wire.connack = await wire.expect(ConnAck)
    return wire


async def again(wire: Wire, client: Client) -> Any:
    """Re-authenticate; the packet that answers the proof."""
    wire.send(proof(client.first(), code=AGAIN))
    challenge = await wire.expect(Auth)
    assert challenge.code == MORE
    assert challenge.properties.authentication_data
    wire.send(proof(client.final(challenge.properties.authentication_data)))
    return await wire.next()


def code(wire: Wire) -> int:
    assert wire.connack is not None
    return wire.connack.code


async def refused(wire: Wire, reason: ReasonCode) -> None:
    assert (await wire.expect(ConnAck)).code == reason
    assert await wire.next() is None


def test_scram_lets_in_who_knows_the_password_and_proves_the_server_too(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            client = scram()
            wire = await log_in(broker, client)
            assert code(wire) == 0
            assert wire.connack is not None
            assert wire.connack.properties.authentication_method == METHOD
            assert wire.connack.properties.authentication_data == client.expected
            session = broker.sessions["c"][0]
            assert (session.username, session.is_anonymous) == ("nurse", False)
            assert await wire.subscribe("t", 1) == 1

    asyncio.run(check())


@pytest.mark.parametrize(("name", "password"), [("nurse", "wrong"), ("nobody", "nobody's")])
def test_a_wrong_password_and_an_unknown_user_look_alike(users: Path, name: str, password: str) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await log_in(broker, scram(name, password))
            assert code(wire) == ReasonCode.NOT_AUTHORIZED
            assert wire.connack is not None
            assert wire.connack.properties.authentication_data is None
            assert await wire.next() is None
            assert list(broker.clients()) == []

    asyncio.run(check())


def test_a_method_that_nobody_configured_is_refused(users: Path) -> None:
    async def check() -> None:
        for method in ("SCRAM-SHA-1", "SCRAM-SHA-256-PLUS", "scram-sha-256", ""):
            async with serving(config(users)) as broker:
                wire = await Wire.open(broker)
                wire.send(Connect("c", properties=Properties(authentication_method=method, authentication_data=b"x")))
                await refused(wire, ReasonCode.BAD_AUTHENTICATION_METHOD)

    asyncio.run(check())


ANONYMOUS = "amqtt.plugins.authentication.AnonymousAuthPlugin"
#: Abstains where no password comes with the name.
JWT: Any = {"amqtt.contrib.jwt.UserAuthJwtPlugin": {"secret_key": "k" * 32, "user_claim": "user"}}
ANYBODY: Any = {ANONYMOUS: {"allow_anonymous": True}}
ANY_NAME: Any = {ANONYMOUS: {"allow_anonymous": False}}


@pytest.mark.parametrize("plugins", [{}, ANYBODY, ANY_NAME, {**ANY_NAME, **JWT}])
@pytest.mark.parametrize("allow_anonymous", [False, True])
def test_a_name_that_is_only_claimed_is_not_believed(users: Path, allow_anonymous: bool, plugins: Any) -> None:
    """Attack: log in as a SCRAM user by giving the name in CONNECT, with or without a password, and no method."""

    async def check() -> None:
        content = config(users, allow_anonymous=allow_anonymous)
        content["plugins"].update(plugins)
        async with serving(content) as broker:
            for password in (None, b"", b"nurse's"):
                for version in (Version.V5, Version.V311):
                    if version == Version.V311 and password is None:
                        continue
                    wire = await Wire.connect(broker, "c", version, username="nurse", password=password)
                    assert code(wire) != 0
            plain = await Wire.connect(broker, "c")
            assert (code(plain) == 0) is (allow_anonymous or plugins.get(ANONYMOUS, {}).get("allow_anonymous", False))

    asyncio.run(check())


def test_the_topics_are_those_of_the_proven_name(users: Path) -> None:
    async def check() -> None:
        content = config(users)
        content["plugins"][ACL] = {"acl": {"nurse": ["ward/#"], "doctor": ["#"]}, "publish_acl": {}}
        async with serving(content) as broker:
            keep: Any = {"properties": {"session_expiry_s": 100}}
            wire = await log_in(broker, scram(), **keep)
            assert await wire.subscribe("ward/1", 1) == 1
            assert await wire.subscribe("staff/1", 1) >= 0x80
            wire.cut()
            # The session object is kept for plugins; its name must be the proven one again.
            back = await log_in(broker, scram(), clean_start=False, **keep)
            assert back.connack is not None
            assert back.connack.session_present
            assert await back.subscribe("ward/2", 1) == 1
            back.cut()
            other = await log_in(broker, scram("doctor"), clean_start=False, **keep)
            assert other.connack is not None
            assert not other.connack.session_present
            claims = await log_in(broker, scram("doctor"), "d", username="nurse")
            assert code(claims) == ReasonCode.BAD_USER_NAME_OR_PASSWORD
            same = await log_in(broker, scram("doctor"), "d", username="doctor")
            assert code(same) == 0

    asyncio.run(check())


@pytest.mark.long
def test_amqtts_plugins_still_decide_about_clients_without_a_method(users: Path, tmp_path: Path) -> None:
    from argon2 import PasswordHasher

    passwords = tmp_path / "passwords"
    passwords.write_text(f"plain:{PasswordHasher().hash('secret')}\n")

    async def check() -> None:
        content = config(users)
        content["plugins"]["amqtt.plugins.authentication.FileAuthPlugin"] = {"password_file": str(passwords)}
        async with serving(content) as broker:
            assert code(await Wire.connect(broker, "a", username="plain", password=b"secret")) == 0
            assert code(await Wire.connect(broker, "a", username="nurse", password=b"nurse's")) != 0
            assert code(await log_in(broker, scram(), "b")) == 0

    asyncio.run(check())


# ---------------------------------------------------------------------------------------- before CONNACK


@pytest.mark.parametrize("packet", [PingReq(), Publish("t", b"x"), proof(b"x", code=AGAIN), proof(b"x", "other")])
def test_nothing_but_auth_comes_before_connack(users: Path, packet: Any) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await begin(broker, scram())
            await wire.expect(Auth)
            wire.send(packet)
            await refused(wire, ReasonCode.PROTOCOL_ERROR)

    asyncio.run(check())


def test_a_client_may_leave_in_the_midst(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await begin(broker, scram())
            await wire.expect(Auth)
            wire.send(Disconnect())
            assert await wire.next() is None
            cut = await begin(broker, scram())
            await cut.expect(Auth)
            cut.cut()
            await until(lambda: not broker.lifecycle.connections)
            assert list(broker.clients()) == []

    asyncio.run(check())


def test_malformed_bytes_in_the_midst_end_the_connection(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await begin(broker, scram())
            await wire.expect(Auth)
            wire.raw(b"\x00\x00")
            await refused(wire, ReasonCode.MALFORMED_PACKET)

    asyncio.run(check())


def test_an_exchange_that_never_ends_is_cut_off(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users, limits={"connect_timeout_s": 0.05})) as broker:
            wire = await begin(broker, scram())
            await wire.expect(Auth)
            await refused(wire, ReasonCode.NOT_AUTHORIZED)

    asyncio.run(check())


def test_what_is_sent_ahead_of_the_challenge_counts(users: Path) -> None:
    """All in one read: the proof (wrong, for want of the challenge) is judged, and what follows is not performed."""

    async def check() -> None:
        async with serving(config(users)) as broker:
            watch = await log_in(broker, scram("doctor"), "watch")
            await watch.subscribe("t")
            wire = await Wire.open(broker)
            properties = Properties(authentication_method=METHOD, authentication_data=scram().first())
            wire.send(Connect("c", properties=properties), proof(b"c=biws,r=x,p=AAAA"), Publish("t", b"smuggled"))
            await wire.expect(Auth)
            await refused(wire, ReasonCode.NOT_AUTHORIZED)
            assert await watch.published() == []

    asyncio.run(check())


def test_auth_above_the_clients_packet_size_is_not_sent(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await begin(broker, scram(), properties={"maximum_packet_size": 64})
            await refused(wire, ReasonCode.PACKET_TOO_LARGE)

    asyncio.run(check())


# -------------------------------------------------------------------------------------- re-authentication


def test_a_client_authenticates_again_while_its_messages_flow(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await log_in(broker, scram())
            await wire.subscribe("t")
            for _ in range(2):
                client = scram()
                answer = await again(wire, client)
                assert isinstance(answer, Auth)
                assert answer.code == 0
                assert answer.properties.authentication_data == client.expected
                assert answer.properties.authentication_method == METHOD
            client = scram()
            wire.send(proof(client.first(), code=AGAIN))
            challenge = await wire.expect(Auth)
            wire.publish("t", b"meanwhile")
            assert await wire.published() == [("t", b"meanwhile")]
            assert challenge.properties.authentication_data
            wire.send(proof(client.final(challenge.properties.authentication_data)))
            assert (await wire.expect(Auth)).code == 0

    asyncio.run(check())


@pytest.mark.parametrize("client", [scram("nurse", "wrong"), scram("doctor")])
def test_whoever_fails_or_proves_another_name_is_disconnected(users: Path, client: Client) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await log_in(broker, scram())
            answer = await again(wire, client)
            assert isinstance(answer, Disconnect)
            assert answer.code == ReasonCode.NOT_AUTHORIZED
            assert await wire.next() is None

    asyncio.run(check())


@pytest.mark.parametrize(
    "packets",
    [
        [proof(b"x")],
        [proof(scram().first(), code=AGAIN), proof(scram().first(), code=AGAIN)],
        [proof(scram().first(), "PLAIN", AGAIN)],
    ],
    ids=["proof without an exchange", "two beginnings", "another method"],
)
def test_auth_out_of_place_is_a_protocol_error(users: Path, packets: list[Auth]) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            wire = await log_in(broker, scram())
            wire.send(*packets)
            *_, last = await wire.closed()
            assert isinstance(last, Disconnect)
            assert last.code == ReasonCode.PROTOCOL_ERROR

    asyncio.run(check())


def test_a_proof_of_connect_cannot_be_replayed_for_re_authentication(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users)) as broker:
            client = scram()
            wire = await begin(broker, client)
            data = (await wire.expect(Auth)).properties.authentication_data
            assert data
            recorded = proof(client.final(data))
            wire.send(recorded)
            await wire.expect(ConnAck)
            wire.send(proof(client.first(), code=AGAIN))
            await wire.expect(Auth)
            wire.send(recorded)
            assert (await wire.expect(Disconnect)).code == ReasonCode.NOT_AUTHORIZED

    asyncio.run(check())


def test_auth_of_a_client_that_gave_no_method_is_a_protocol_error(users: Path) -> None:
    async def check() -> None:
        async with serving(config(users, allow_anonymous=True)) as broker:
            wire = await Wire.connect(broker, "plain")
            assert wire.connack is not None
            assert wire.connack.properties.authentication_method is None
            wire.send(proof(scram().first(), code=AGAIN))
            assert (await wire.expect(Disconnect)).code == ReasonCode.PROTOCOL_ERROR

    asyncio.run(check())


# ------------------------------------------------------------------------------------------ the plug point


class CountDown(EnhancedAuthPlugin):
    """A method of one's own: the client says a number, and so many rounds follow."""

    method: ClassVar[str] = "COUNTDOWN"

    def begin(self, session: Any) -> CountDown.Exchange:
        return self.Exchange(session.client_id)

    class Exchange:
        def __init__(self, client_id: str) -> None:
            self.client_id = client_id

        async def step(self, data: bytes) -> bytes | Proven:
            await asyncio.sleep(0)
            if data == b"no":
                raise AuthRefused("said no")
            left = int(data)  # a bug of the plugin where it is no number
            return b"%d" % left if left else Proven(f"user of {self.client_id}")


class Twin(CountDown):
    pass


async def count(broker: Any, data: bytes | None) -> list[Any]:
    wire = await Wire.open(broker)
    properties = Properties(authentication_method="COUNTDOWN", authentication_data=data)
    wire.send(Connect("c", properties=properties))
    seen: list[Any] = []
    while isinstance(packet := await wire.next(), Auth):
        seen.append(packet.properties.authentication_data)
        wire.send(proof(b"%d" % (int(packet.properties.authentication_data or b"0") - 1), "COUNTDOWN"))
    assert isinstance(packet, ConnAck)
    return [*seen, packet.code]


def test_a_method_of_ones_own_takes_as_many_rounds_as_it_needs_within_bounds() -> None:
    async def check() -> None:
        plugins = {f"{__name__}.CountDown": {}}
        async with serving({"plugins": plugins, "allow_anonymous": False}) as broker:
            assert await count(broker, b"3") == [b"3", b"2", b"1", 0]
            assert broker.sessions["c"][0].username == "user of c"
            assert await count(broker, b"no") == [ReasonCode.NOT_AUTHORIZED]
            assert await count(broker, b"a bug") == [ReasonCode.NOT_AUTHORIZED]
            assert await count(broker, None) == [ReasonCode.NOT_AUTHORIZED]
            assert (await count(broker, b"99"))[-1] == ReasonCode.NOT_AUTHORIZED

    asyncio.run(check())


def test_two_plugins_for_one_method_are_a_mistake() -> None:
    plugins: Any = {f"{__name__}.CountDown": {}, f"{__name__}.Twin": {}}

    async def check() -> None:
        with pytest.raises(StartError, match="two plugins for authentication method COUNTDOWN"):
            make_broker(parse({"plugins": plugins}))

    asyncio.run(check())
