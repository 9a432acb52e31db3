"""What a gateway makes of a recombined key: only in scopes that it may read, only under the publisher's epoch key."""

from __future__ import annotations

import pytest

from bridge.document.policy import Scope
from bridge.reader.key_opening import OpeningKeys
from keys.epochs import ScopeKeys
from keys.errors import BadContent, WrongEpochKey
from tests.bridge.helpers import ForgedKey, forge_key
from tests.keys.helpers import secret_behind
from tests.sim.world import World
from tests.support.regions import fresh, one_region

world = fresh(one_region, "site", scopes=[Scope("plant/#"), Scope("sealed/#", shares_only=True)])


def secret_of(world: World, key: ForgedKey) -> bytes:
    return secret_behind(key.shares, [world.overlay.views[1].hop])


@pytest.mark.parametrize("scope", ["plant/#", "sealed/#"])
def test_the_secret_opens_the_key_that_the_publisher_seals_with(world: World, scope: str) -> None:
    opening, key = OpeningKeys(world.secrets, world.keys), forge_key(world, "site", scope)
    assert opening.may_open(key.header)
    assert not opening.lacks_epoch_key(key.header)
    opening.check_epoch_key(key.header)
    assert opening.open_key(key.header, {}, secret_of(world, key)).key_id == key.header.key_id
    with pytest.raises(BadContent):
        opening.open_key(key.header, {}, bytes(32))


def test_an_epoch_key_that_is_not_here_is_lacking_and_another_one_is_wrong(world: World) -> None:
    held, keyed, sealed = ScopeKeys(), forge_key(world, "site", "plant/#"), forge_key(world, "site", "sealed/#")
    opening = OpeningKeys(world.secrets, held)
    assert opening.lacks_epoch_key(keyed.header)
    assert not opening.lacks_epoch_key(sealed.header), "a scope of shares alone has no epoch key"
    held.put_key(keyed.header.epoch_key, bytes(31) + b"x")
    assert not opening.lacks_epoch_key(keyed.header)
    with pytest.raises(WrongEpochKey):
        opening.check_epoch_key(keyed.header)


def test_a_scope_that_was_taken_away_is_not_for_us(world: World) -> None:
    opening, key = OpeningKeys(world.secrets, world.keys), forge_key(world, "site", "plant/#")
    opening.adopt_scopes([secret for secret in world.secrets if secret.scope.filter != "plant/#"])
    assert not opening.may_open(key.header)
