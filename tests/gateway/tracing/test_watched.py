"""Replicas of a region as witnesses of the gateway: its death is a failure by the word of those of three operators."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.traces.kinds import TraceKind
from bridge.tracking.entity import Told
from gateway.base import WatchedSettings
from gateway.base.config import ConfigError, parse
from gateway.files import write_private
from gateway.tracing.client import Tracker, connection
from gateway.tracing.watched import STUCK_S, Watched
from gateway.trust.credentials import Credentials
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_witnesses import heartbeats, kinds, until
from tests.gateway.traced_site import Site
from tests.ports import free_ports
from tests.support.files import edited

REPLICAS = ("a1", "a2", "a3")
K = TraceKind


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[tuple[OverlayProcesses, list[str]]]:
    """Replicas that trace at a listener beside that of the overlay; a gateway that is an entity at all of them."""
    made = OverlayProcesses(tmp_path).make({"a": 3}, [], {"g1": "a"})
    brokers = []
    for name, port in zip(REPLICAS, free_ports(3), strict=True):
        path = tmp_path / f"{name}.yaml"
        with edited(path) as content:
            content["listeners"]["entities"] = {"bind": f"127.0.0.1:{port}", "ssl": False, "overlay": False}
            content["allow_anonymous"] = True
            others = [f"{other}/card.json" for other in REPLICAS if other != name]
            content["traces"] = {"authority": "owner/ca.pem", "identity": name, "nodes": others}
        brokers.append(f"127.0.0.1:{port}")
    domain = TrustDomain.load(tmp_path / "owner")
    cards = [Card.load(tmp_path / name / "card.json") for name in REPLICAS]
    for name in ("g1-entity", "desk"):
        Credentials.issue(domain, name, cards, tmp_path / name, time.time())
    with edited(tmp_path / "g1.yaml") as content:
        content["watched"] = {"credentials": "g1-entity", "brokers": brokers, "discoverers": ["desk"]}
    try:
        yield made, brokers
    finally:
        made.stop()


@pytest.mark.slow
def test_a_gateway_dies_by_the_word_of_a_majority_of_its_regions_replicas(
    watched: tuple[OverlayProcesses, list[str]],
) -> None:
    members, brokers = watched
    assert "we are g1-entity, of which 2 of 3 decide" in members.veilmq("check", "-c", "g1.yaml")
    members.start(*REPLICAS, "g1")
    with Tracker(members.directory / "desk", brokers) as desk:
        desk.follow("g1-entity")
        lived = until(desk, heartbeats(1), 60)
        assert K.READY in kinds(lived)
        members.running["a2"].kill()
        assert not kinds(until(desk, heartbeats(3))) & {K.FAILED, K.FAILURE_SUSPICION, K.DISCONNECT}
        members.running["g1"].kill()
        failed = until(desk, lambda seen: seen.kind is K.FAILED)[-1]
        assert failed.fields["witnesses"] == [0, 2]
        members.running["g1"].wait()
        members.start("g1")
        until(desk, lambda seen: seen.fields.get("after") == "failed", 60)
        members.running["g1"].terminate()
        until(desk, lambda seen: seen.kind is K.SHUTDOWN)


class Ticked:
    next_deadline = 0.0

    def __init__(self) -> None:
        self.said = 0

    def tick(self, now: float) -> list[object]:
        self.said += 1
        return []

    def handle(self, event: object, index: int, now: float) -> list[object]:
        return self.tick(now)


def test_a_gateway_whose_event_loop_hangs_neither_says_that_it_lives_nor_answers(tmp_path: Path) -> None:
    watched = Watched(WatchedSettings(credentials=Site(tmp_path).credentials("g1"), brokers=["a:1", "b:1", "c:1"]))
    entity = watched._entity = Ticked()  # type: ignore[assignment]
    for beat_at, said in ((time.monotonic(), 2), (time.monotonic() - STUCK_S - 1, 0)):
        watched._beat_at, entity.said = beat_at, 0
        watched._advance_machine(0.0)
        watched._take_told(0, Told("a", b""), 0.0)
        assert entity.said == said
        deadline = watched._machine_deadline()
        assert deadline is not None
        assert (deadline > watched._clock()) == (not said), "and it is looked at later, not all the time"


def test_who_watches_is_an_odd_number() -> None:
    with pytest.raises(ConfigError, match="majority"):
        parse({"watched": {"credentials": "x", "brokers": ["a:1", "b:1"]}})


def test_one_broker_named_twice_is_one_witness() -> None:
    with pytest.raises(ConfigError, match="twice"):
        parse({"watched": {"credentials": "x", "brokers": ["a:1", "b:1", "A:1"]}})


@pytest.mark.parametrize("content", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\nxx\n", b"\xff\xfe"])
def test_a_file_that_holds_no_authority_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ca.pem"
    path.write_bytes(content)
    with pytest.raises(TrustError, match=r"ca\.pem"):
        connection(cafile=path)
    with pytest.raises(TrustError, match=str(tmp_path)):
        connection(cafile=tmp_path)


def test_a_password_that_is_no_text_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "password"
    write_private(path, b"\xff\xfe")
    with pytest.raises(TrustError, match="password"):
        connection("me", path)
