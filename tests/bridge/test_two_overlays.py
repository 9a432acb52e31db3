"""Two overlays of one owner with equal names: nothing that members of one sign counts in the other.

Signatures name no overlay. What keeps overlays apart is that a key signs in one alone: a member takes no other overlay
under its identity (here and in `gateway.trust`), and the owner lists no key twice (`gateway.owner`).
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from bridge.contract import Adopt, Blame, Deliver, Offered, Publication, ReceiptCame, Received, Send, Subscribed
from bridge.contract.machine import Committed, Effect, Wire
from bridge.document import Overlay, OverlayError, Scope, batch_topic
from bridge.membership.adopting import canonical
from bridge.receipts import RECEIPTS_TOPIC
from bridge.wire import SUBSCRIBE_TOPIC
from keys.envelope import Mode
from tests.bridge.helpers import NOW, counted, gateway, replica, same_version, sent
from tests.bridge.membership.test_early_wires import answer, offer
from tests.bridge.receipts.helpers import Scene
from tests.sim.world import World, make_world

SCOPES = [Scope("plant/#", receipts=True), Scope("clear/#", Mode.PLAIN, receipts=True)]
GATEWAYS = {"site": 1, "near": 1, "control": 2}


def world_of(seed: int = 1) -> World:
    """Names are equal for every seed, keys are not."""
    return make_world({1: 3, 2: 3}, [(1, 2)], GATEWAYS, SCOPES, seed=seed)


def of_one_owner(world: World, name: str, version: int) -> Overlay:
    """Another overlay of the owner, with the same members and keys."""
    assert world.owner is not None
    old = world.overlay
    policy = replace(old.policy, overlay=name, version=version)
    return Overlay.sign(world.owner, policy, old.latest.values(), old.members.values())


class Signed(Scene):
    """The wires of an overlay's members: publications, sealed and plain, a statement, a receipt."""

    def wires_of_all(self) -> list[tuple[str, Wire]]:
        """Returns each with its signer; publications stand under a replica that would bring them."""
        publication = Publication("clear/t", b"in clear", 1, time_ms=int(NOW * 1000))
        plain = self.site.handle(Committed(((9, 0, publication),)), NOW)
        stated = gateway(self.world, "near").handle(Subscribed("clear/#"), NOW)
        return [
            *self.wires,
            *(("r1a", send.wire) for send in sent(plain)),
            *(("near", send.wire) for send in sent(stated)),
            ("near", Wire(RECEIPTS_TOPIC, self.signed())),
        ]


def brought(world: World, wires: list[tuple[str, Wire]]) -> tuple[list[Effect], list[Effect]]:
    """The effects of these wires at a replica and at a gateway of an overlay, past everything of the overlay itself."""
    first = replica(world, "r1a", ("r1b", "r1c", "r2a", "site", "near"))
    reader = gateway(world, "near")
    reader.handle(Subscribed("#"), NOW)
    same_version(first, "r1b", "r2a", "site", "near")
    same_version(reader, "r1a", "r1b", "r1c")
    at_replica, at_reader = list[Effect](), list[Effect]()
    for signer, wire in wires:
        peer = "site" if signer == "r1a" else signer
        if peer in ("site", "near", "r1b", "r2a"):
            at_replica += first.handle(Received(peer, wire), NOW)
        for place in ("r1a", "r1b", "r1c"):
            at_reader += reader.handle(Received(place, wire), NOW)
    return at_replica, at_reader


def taken(effects: list[Effect], wires: list[tuple[str, Wire]]) -> list[object]:
    """Wires that were passed on, and what reached clients."""
    payloads = {wire.payload for _, wire in wires if wire.payload}
    passed = [send.wire.topic for send in sent(effects) if send.wire.payload in payloads]
    return passed + [effect for effect in effects if isinstance(effect, (Deliver, ReceiptCame))]


@pytest.mark.attack(180)
def test_what_members_of_one_sign_counts_nothing_among_members_of_equal_names_with_keys_of_their_own() -> None:
    wires = Signed(world_of()).wires_of_all()
    assert {wire.topic for _, wire in wires} == {batch_topic(1), batch_topic(2), SUBSCRIBE_TOPIC, RECEIPTS_TOPIC}
    at_replica, at_reader = brought(world_of(2), wires)
    assert taken(at_replica, wires) == []
    assert taken(at_reader, wires) == []
    own_replica, own_reader = brought(world_of(), wires)
    assert taken(own_replica, wires), "the very same wires count at home"
    assert any(isinstance(effect, Deliver) for effect in own_reader)


def test_with_one_key_in_both_a_plain_publication_would_cross() -> None:
    """Witness for the rule: header and receipt name scope and publisher by number and key, and not the overlay."""
    world = world_of()
    wires = Signed(world).wires_of_all()
    world.overlay = of_one_owner(world, "other", 1)
    _, at_reader = brought(world, wires)
    assert b"in clear" in [e.publication.payload for e in at_reader if isinstance(e, Deliver)]


@pytest.mark.attack(180)
@pytest.mark.parametrize("name", ["near", "r1a"])
def test_a_member_takes_no_other_overlay_of_its_owner_from_a_neighbour(name: str) -> None:
    """Attack: whoever has a file of another overlay hands it out as a newer version; rights and keys went by it."""
    world = world_of()
    other = of_one_owner(world, "other", world.overlay.policy.version + 4)
    peer = "r1b" if name == "near" else "r2b"
    node = gateway(world, name) if name == "near" else replica(world, name, (peer,))
    assert any(isinstance(effect, Send) for effect in offer(node, peer, other)), "it asks for the document"
    effects = answer(node, peer, other)
    assert not any(isinstance(effect, Adopt) for effect in effects)
    assert counted(effects, "refused") == 1
    assert any(isinstance(effect, Blame) and "overlay other" in effect.why for effect in effects)
    assert node.overlay is world.overlay
    own = of_one_owner(world, "test", world.overlay.policy.version + 5)
    assert any(isinstance(effect, Adopt) for effect in node.handle(Offered(canonical(own)), NOW))


@pytest.mark.attack(180)
def test_a_member_takes_no_other_overlay_of_its_owner_from_its_file() -> None:
    world = world_of()
    node = gateway(world, "near")
    with pytest.raises(OverlayError, match="of overlay other, we are in test; each takes an identity"):
        node.offered(canonical(of_one_owner(world, "other", 9)), NOW)
    assert node.overlay is world.overlay
