"""What gateway and job ask of a wire alike; that they say the same of every one is in `tests/sim/test_one_rule.py`."""

from __future__ import annotations

import pytest

from bridge.contract.machine import Blame, Count, Send
from bridge.reader.intake import Intake, asked, misfit
from bridge.reader.key_opening import OpeningKeys
from bridge.wire.key_repository import key_topic
from bridge.wire.pieces import NO_PART
from bridge.wire.pulling import PULL_TOPIC
from bridge.wire.statements import KEYS_TOPIC
from keys.envelope import PROPERTY_HEADER, DataKey, Mode
from keys.errors import BadFrame
from tests.bridge.helpers import craft, forge_key
from tests.sim.world import NOW, World
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", "control", hosted=("r1c",))


@pytest.fixture
def intake(world: World) -> Intake[DataKey]:
    return Intake(world.overlay, 1, OpeningKeys(world.secrets, world.keys))


def test_a_publication_has_a_signed_header_and_a_key_that_stands_alone_none(world: World, intake: Intake[DataKey]):
    alone = key_topic("plant/#", world.identities["site"].party_id)
    assert intake.told_property({PROPERTY_HEADER: "text"}, "plant/a") == "text"
    assert [intake.told_property({PROPERTY_HEADER: "text"}, topic) for topic in (KEYS_TOPIC, alone)] == [None, None]
    with pytest.raises(BadFrame):
        intake.told_property({}, "plant/a")


def test_shares_of_two_replicas_open_a_key(world: World, intake: Intake[DataKey]):
    key = forge_key(world, "site", "plant/#")
    opened = [intake.keys_of(f"r1{'abc'[n]}", dict(key.properties(key.shares[n : n + 1])), NOW)[1] for n in (0, 1, 2)]
    assert opened == [None, key.header.key_id, None]
    assert intake.keys_of("r1a", {}, NOW) == ([], None)


def test_content_that_misfits_is_charged_to_who_brings_it(world: World, intake: Intake[DataKey]):
    wire = craft(world, "site", "plant/a", sequence=1, key_id=b"k" * 16)
    admitted = intake.admission.publication(dict(wire.properties)[PROPERTY_HEADER], wire.topic, NOW)
    assert intake.pieces(admitted, wire.payload, None) == {0: wire.payload}
    assert intake.pieces(admitted, wire.payload + b"x", None) is None
    count, blame = misfit("r1a")
    assert isinstance(count, Count)
    assert isinstance(blame, Blame)
    assert (count.label, blame.member, blame.named) == ("content", "r1a", False)


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.ONE])
def test_what_is_announced_only_is_asked_for_at_brokers_that_answer(world: World, intake: Intake[DataKey], mode: Mode):
    wire = craft(world, "site", "plant/a", sequence=1, key_id=b"k" * 16, mode=mode)
    admitted = intake.admission.publication(dict(wire.properties)[PROPERTY_HEADER], wire.topic, NOW)
    announced = intake.pieces(admitted, b"", NO_PART)
    assert announced == {}
    assert intake.content("r1c", admitted, announced, NOW) is None
    assert any(at is not None for at in intake.deadlines)
    sends = [effect for step in range(20) for effect in intake.tick(NOW + step / 10)[0] if isinstance(effect, Send)]
    assert {send.wire.topic for send in sends} == {PULL_TOPIC}
    assert "r1c" not in asked(world.overlay, 1)
    assert intake.content("r1a", admitted, {0: wire.payload}, NOW + 2) == wire.payload
    assert intake.content("r1b", admitted, {0: wire.payload}, NOW + 2) == wire.payload, (
        "the usual case: nothing is held"
    )
