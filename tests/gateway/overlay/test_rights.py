"""Whether a topic may be published on now: by policy and by what the configuration says of plain scopes."""

from __future__ import annotations

from bridge.document.policy import Scope
from gateway.overlay.rights import Rights
from keys.envelope import Mode
from tests.bridge.helpers import NOW, gateway
from tests.sim.world import make_world


def test_a_right_of_the_policy_and_plain_topics_only_where_we_send_them_plain():
    scopes = [Scope("plant/#"), Scope("open/#", Mode.PLAIN)]
    world = make_world({1: 3}, [], {"site": 1}, scopes, rights={"site": (["plant/a/#", "open/#"], [])})
    node = gateway(world, "site")
    for plain, allowed in ((["open/#"], True), ([], False)):
        rights = Rights(plain)
        for _ in range(2):
            assert rights.may_publish(node, "plant/a/1", world.overlay, NOW)
            assert not rights.may_publish(node, "plant/b", world.overlay, NOW)
            assert not rights.may_publish(node, "elsewhere", world.overlay, NOW)
            assert rights.may_publish(node, "open/1", world.overlay, NOW) is allowed
        rights.clear()
        assert rights.may_publish(node, "plant/a/1", world.overlay, NOW)
