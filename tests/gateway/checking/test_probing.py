"""`veilmq check --probe`, against brokers that answer as a test says: what each fault is called, and what is cured."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridge.document import Overlay
from gateway.checking import probing
from gateway.checking.probing import CONTROL_ROOT, probe
from gateway.client import PACKET_BYTES_MAX, ClientError
from gateway.mqtt5.packets import ConnAck, Properties, Publish
from gateway.overlay import hosted
from gateway.owner import sign_overlay
from gateway.trust import TrustDomain
from keys.identity import Role

BROKERS = ("a", "b", "c")
REST = ", publications of 1048576 bytes, topics of 128 levels, sessions for 604800 s, 0 topic aliases"


@pytest.fixture(scope="module")
def overlay(tmp_path_factory: pytest.TempPathFactory) -> Overlay:
    """A gateway, site, in a region of three hosted brokers."""
    directory = tmp_path_factory.mktemp("cloud")
    TrustDomain.create(directory / "owner", "owner", time.time()).issue(
        "site", Role.GATEWAY, (), directory / "site", time.time()
    )
    description = {
        "name": "test",
        "regions": [{"name": "cloud", "members": [
            {"hosted": True, "name": name, "domain": f"{name}.test", "address": f"{name}.test:8883"} for name in BROKERS
        ]}],
        "scopes": [{"filter": "plant/#"}],
        "members": [{"card": "site/card.json", "region": "cloud", "publish": ["#"], "read": ["#"]}],
    }  # fmt: skip
    path = directory / "overlay.yaml"
    path.write_text(yaml.safe_dump(description))
    return sign_overlay(path, directory / "owner", directory / "overlay.json", time.time()).overlay


class FakeBroker:
    """A broker that carries everything, but for what a test changes. One for all clients."""

    def __init__(self) -> None:
        self.packet_limit = PACKET_BYTES_MAX
        self.refuses: Callable[[str], int] = lambda topic_filter: 1
        self.publish_code = 0
        self.alter: Callable[[Publish], Publish | None] = lambda publish: publish
        self.alter_retained: Callable[[Publish], Publish | None] = lambda publish: publish
        self.connects: Callable[[], None] = lambda: None
        self.retained: dict[str, Publish] = {}
        self.clients: list[FakeClient] = []
        self.subscribed: list[tuple[str, int]] = []
        self.closed = 0
        self.offer = Properties()
        self.longest, self.deepest = 1 << 30, 1 << 30
        self.expiries: list[tuple[str, int, bool]] = []


class FakeClient:
    """`MqttClient`, as far as the probe uses it."""

    def __init__(self, broker: FakeBroker, unusable: Callable[[ConnAck], str]) -> None:
        self.broker, self.packet_limit, self._unusable = broker, broker.packet_limit, unusable
        self.on_publish: Callable[[Publish], None] = lambda publish: None
        self.filters: set[str] = set()

    async def connect(self) -> None:
        self.broker.connects()
        assert not self._unusable(ConnAck(False, 0, self.broker.offer))
        self.broker.clients.append(self)

    async def close(self) -> None:
        self.broker.clients.remove(self)
        self.broker.closed += 1

    def subscribe(self, topic: str, qos: int, *, retain_handling: int, on_answer: Callable[[int], None]) -> None:
        self.broker.subscribed.append((topic, retain_handling))
        self.filters.add(topic)
        on_answer(self.broker.refuses(topic))
        if topic in self.broker.retained:
            self._deliver(self.broker.alter_retained(dataclasses.replace(self.broker.retained[topic], retain=True)))

    def publish(
        self, topic: str, payload: bytes, qos: int, retain: bool, user: Any, on_done: Callable[[], None],
        on_refused: Callable[[int], None],
    ) -> None:  # fmt: skip
        if len(payload) > self.broker.longest or topic.count("/") >= self.broker.deepest:
            return  # no answer, as brokers do that close a connection for it
        if self.broker.publish_code:
            on_refused(self.broker.publish_code)
            return
        on_done()
        publish = Publish(topic, payload, qos, properties=Properties(user=user), packet_id=1)
        self.broker.retained.pop(topic, None)
        if payload and retain:
            self.broker.retained[topic] = publish
        for client in self.broker.clients:
            if topic in client.filters and payload:
                client._deliver(self.broker.alter(publish))

    def _deliver(self, publish: Publish | None) -> None:
        if publish is not None:
            self.on_publish(publish)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> FakeBroker:
    made = FakeBroker()

    def dial(*arguments: Any, **options: Any) -> FakeClient:
        made.expiries.append((options["client_id"], options["session_expiry_s"], options["clean_start"]))
        return FakeClient(made, options["unusable"])

    monkeypatch.setattr(hosted, "dial", dial)
    monkeypatch.setattr(probing, "TRY_S", 0.02)
    return made


def told(overlay: Overlay, *filters: str) -> list[tuple[str, str]]:
    return [(finding.level, finding.text) for finding in probe(overlay, "site", {}, filters)]


def test_brokers_that_carry_everything(overlay: Overlay, broker: FakeBroker) -> None:
    assert told(overlay, "tokens/#") == [
        ("ok", f"{name} ({name}.test:8883): carries retained, user properties, QoS 1{REST}") for name in BROKERS
    ]
    assert ("tokens/#", 2) in broker.subscribed, "without what is retained there"
    assert broker.retained == {}, "the probe leaves nothing"
    assert (broker.clients, broker.closed) == ([], 15)
    topics = {topic for topic, _ in broker.subscribed if topic.startswith(CONTROL_ROOT)}
    assert len(topics) == 9, "a name of its own for each broker and trial"


def test_a_bound_on_packets_is_said_and_respected(overlay: Overlay, broker: FakeBroker) -> None:
    broker.packet_limit = 5_000
    sizes: list[int] = []

    def note(publish: Publish) -> Publish:
        sizes.append(len(publish.payload) + sum(len(k) + len(v) for k, v in publish.properties.user))
        return publish

    broker.alter = note
    assert told(overlay)[0] == (
        "ok", "a (a.test:8883): carries retained, user properties, QoS 1, packets of up to 5000 bytes, publications of "
        "3976 bytes, topics of 128 levels, sessions for 604800 s, 0 topic aliases",
    )  # fmt: skip
    assert max(sizes) < 5_000


def test_a_session_is_asked_for_as_long_as_it_will_be_needed_and_left_nowhere(
    overlay: Overlay, broker: FakeBroker
) -> None:
    told(overlay)
    (first, expiry_s, clean), (second, next_s, next_clean) = broker.expiries[:2]
    assert (expiry_s, clean) == (7 * 86_400, True)
    assert (second, next_s, next_clean) == (first, 0, True), "the same client id ends that session"


def test_a_provider_that_forgets_sessions_soon_will_not_do(overlay: Overlay, broker: FakeBroker) -> None:
    broker.offer = Properties(session_expiry_s=300)
    assert told(overlay)[0] == (
        "error", "a (a.test:8883): keeps sessions for 300 s, and gateways need 3600, jobs 604800; raise its limit, or "
        "take another broker",
    )  # fmt: skip
    assert [expiry_s for _, expiry_s, _ in broker.expiries[:2]] == [604_800, 0]
    broker.offer = Properties(session_expiry_s=86_400)
    level, text = told(overlay)[0]
    assert (level, "sessions for 86400 s" in text, "it asks for 604800" in text) == ("warning", True, True)


@pytest.mark.long
def test_what_a_provider_grants_is_said_and_what_it_does_not_say_is_tried(overlay: Overlay, broker: FakeBroker) -> None:
    broker.offer = Properties(receive_maximum=20, topic_alias_maximum=10, shared_subscription_available=0)
    broker.longest, broker.deepest = 300_000, 16
    level, text = told(overlay)[0]
    assert level == "warning"
    assert text.endswith(
        "QoS 1, publications of 262144 bytes, topics of 16 levels, sessions for 604800 s, 20 unacknowledged, "
        "10 topic aliases, no shared subscriptions; deeper topics may not cross; devices keep to that"
    )
    broker.longest = 100_000
    assert "publications of 65536 bytes" in told(overlay)[0][1]
    broker.deepest = 4
    level, text = told(overlay)[0]
    assert (level, "carries no topic of 8 levels" in text) == ("error", True)


CURE = "take another broker"


def changed(**fields: Any) -> Callable[[Publish], Publish]:
    return lambda publish: dataclasses.replace(publish, **fields)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ({"refuses": lambda topic: 0x87}, "at QoS 1 (0x87); ask for the right"),
        ({"refuses": lambda topic: 0}, "at QoS 1 (0x00); ask for the right"),
        ({"publish_code": 0x87}, f"does not let us publish below {CONTROL_ROOT}/ (0x87); ask for the right"),
        ({"alter": changed(qos=0)}, f"delivers a live publication at QoS 0, not 1; {CURE}"),
        ({"alter": changed(properties=Properties())}, f"alters user properties of a live publication; {CURE}"),
        ({"alter": changed(payload=b"x")}, f"alters the payload of a live publication; {CURE}"),
        ({"alter_retained": changed(payload=b"x")}, f"alters the payload of a retained publication; {CURE}"),
        ({"alter_retained": changed(retain=False)}, f"does not mark a retained publication as one; {CURE}"),
    ],
)
def test_each_fault_has_its_name(overlay: Overlay, broker: FakeBroker, fault: dict[str, Any], said: str) -> None:
    for name, value in fault.items():
        setattr(broker, name, value)
    level, text = told(overlay)[0]
    assert level == "error"
    assert text.startswith("a (a.test:8883): ")
    assert text.endswith(said)
    assert (broker.clients, broker.retained) == ([], {}), "the probe leaves nothing"


def test_a_scope_that_we_may_not_read_there(overlay: Overlay, broker: FakeBroker) -> None:
    broker.refuses = lambda topic: 0x87 if topic == "tokens/#" else 1
    level, text = told(overlay, "tokens/#")[0]
    assert (level, "subscribe to tokens/# at QoS 1 (0x87)" in text) == ("error", True)


@pytest.mark.parametrize("lost", ["alter", "alter_retained"])
def test_a_broker_that_lets_nothing_through(
    overlay: Overlay, broker: FakeBroker, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    monkeypatch.setattr(probing, "ANSWER_S", 0.01)
    setattr(broker, lost, lambda publish: None)
    level, text = told(overlay)[0]
    assert (level, "lets no answer through within" in text) == ("error", True)
    assert broker.retained == {}


def test_a_broker_that_cannot_be_reached_is_an_error_and_the_next_is_asked(
    overlay: Overlay, broker: FakeBroker
) -> None:
    quiet = logging.getLogger("veilmq.client")
    calls: list[bool] = []

    def connects() -> None:
        calls.append(quiet.disabled)
        if len(calls) == 1:
            raise ClientError("cannot be reached (Connection refused); is it running?")

    broker.connects = connects
    found = told(overlay)
    assert [level for level, _ in found] == ["error", "ok", "ok"]
    assert found[0][1] == "a (a.test:8883): cannot be reached (Connection refused); is it running?"
    assert all(calls), "the finding says it all, the log of clients is off meanwhile"
    assert not quiet.disabled


def test_a_login_that_cannot_be_read_is_one_line_before_anybody_is_asked(
    overlay: Overlay, broker: FakeBroker, tmp_path: Path
) -> None:
    from gateway.base import ConfigError, Hosted

    with pytest.raises(ConfigError, match=r"a: .*No such file"):
        list(probe(overlay, "site", {"a": Hosted(username="u", password_file=tmp_path / "none")}, []))
    assert broker.closed == 0
