"""The owner's record: private, never older than what was signed, and two commands do not share it."""

from __future__ import annotations

import json

import pytest

from gateway.owner.record import locked, record_path
from gateway.owner.signing import grant, revoke
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from tests.gateway.owner.test_signing import PUMPS
from tests.support.parties import NOW, Parties, ServedParties


def test_an_old_file_put_before_the_owner_brings_no_right_back(world: Parties) -> None:
    """Attack: a revoked member restores the overlay.json of before, and waits for the owner's next change."""
    world.sign()
    old = world.out.read_bytes()
    revoke(world.out, world.owner, "spark", None, NOW)
    world.out.write_bytes(old)
    overlay = grant(world.out, world.owner, "g1", PUMPS, NOW)
    assert overlay.policy.version == 3
    assert overlay.grants_of("spark") == ()


def test_the_owners_record_is_private_and_its_loss_is_said(world: Parties) -> None:
    world.sign()
    path = record_path(TrustDomain.load(world.owner), "demo")
    kept = path.read_bytes()
    path.chmod(0o640)
    with pytest.raises(TrustError, match="chmod 600"):
        world.sign()
    path.chmod(0o600)
    path.write_text("{}")
    with pytest.raises(TrustError, match="is damaged; restore it"):
        world.sign()
    path.unlink()
    with pytest.raises(TrustError, match=r"is missing, but .* was signed before"):
        world.sign()
    path.write_bytes(kept)
    path.chmod(0o600)
    world.sign()
    path.write_bytes(kept)
    with pytest.raises(TrustError, match=r"remembers version 1, but .* is version 2"):
        world.sign()


def test_two_commands_do_not_sign_one_version_twice(served: ServedParties) -> None:
    served.sign()
    with locked(TrustDomain.load(served.owner)), pytest.raises(TrustError, match="another veilmq signs with it now"):
        grant(served.out, served.owner, "g1", PUMPS, NOW)
    assert grant(served.out, served.owner, "g1", PUMPS, NOW).policy.version == 2


def test_a_record_of_before_scopes_had_streams_goes_on_with_their_numbers(world: Parties) -> None:
    first = {s.number for s in world.sign().overlay.policy.scopes if s.tokens}
    path = record_path(TrustDomain.load(world.owner), "demo")
    fields = json.loads(path.read_bytes())
    del fields["streams"]
    path.write_text(json.dumps(fields))
    path.chmod(0o600)
    assert {s.stream for s in world.sign(new_tokens=True).overlay.policy.scopes if s.tokens} == first
