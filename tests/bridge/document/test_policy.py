"""The policy frame: what is written is read, what cannot be is refused, and a key service fits its overlay."""

from __future__ import annotations

import base64
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.document.overlay import Overlay, OverlayError
from bridge.document.policy import REFRESH_BYTES_MAX, REFRESH_MESSAGES_MAX, Issuer, Policy, Refresh, Scope
from keys.envelope import Mode
from keys.epochs import Calendar
from keys.errors import BadFrame
from keys.grants import Grant, Right
from tests.sim.keyservers import SERVERS, key_world
from tests.sim.world import make_world

pytestmark = pytest.mark.invariant(44)

SCOPES = st.builds(
    Scope, st.sampled_from(["a/#", "b/c"]), st.sampled_from(Mode), st.lists(st.integers(0, 9), max_size=3).map(tuple),
    st.booleans(), st.booleans(), st.integers(0, 65_535), st.booleans(), st.booleans(),
    st.builds(Refresh, st.integers(1, REFRESH_MESSAGES_MAX), st.integers(1, REFRESH_BYTES_MAX), st.integers(1, 86_400)),
)  # fmt: skip
POLICIES = st.builds(
    Policy, st.text(max_size=9).filter(lambda s: s.isprintable()), st.integers(0, 2**64 - 1),
    st.just(((1, 2),)), st.lists(SCOPES, max_size=3).map(tuple),
    st.lists(st.builds(Grant, st.just("site"), st.just("a/#"), st.sampled_from([Right.READ, Right.PUBLISH])),
             max_size=3).map(tuple),
    st.sampled_from([Calendar(), Calendar(5, 100, 10, 10, 1, 3)]), st.sampled_from(Issuer),
    st.sampled_from([(), ("key1",), SERVERS]), st.binary(min_size=32, max_size=32),
)  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(POLICIES)
def test_a_policy_is_read_as_it_was_written(policy: Policy):
    assert Policy.decode(policy.signed_bytes(), b"") == policy


@settings(max_examples=60, deadline=None)
@given(POLICIES, st.data())
def test_a_policy_that_is_cut_off_or_longer_is_refused(policy: Policy, data: st.DataObject):
    body = policy.signed_bytes()
    cut = data.draw(st.integers(0, len(body) - 1))
    for spoiled in (body[:cut], body + b"\0"):
        with pytest.raises(BadFrame):
            Policy.decode(spoiled, b"")


@pytest.mark.parametrize("refresh", [
    Refresh(0), Refresh(REFRESH_MESSAGES_MAX + 1), Refresh(1, 0), Refresh(1, REFRESH_BYTES_MAX + 1), Refresh(1, 1, 0),
    Refresh(1, 1, 86_401),
], ids=str)  # fmt: skip
def test_a_scope_whose_keys_are_renewed_never_or_at_every_nothing_is_refused(refresh: Refresh):
    with pytest.raises(BadFrame, match="data keys renewed"):
        Scope.decode(Scope("a/#", refresh=refresh).encode())


def test_an_unknown_issuer_is_refused():
    body = Policy("o", 1, (), ()).signed_bytes()
    with pytest.raises(BadFrame, match="issuer"):
        Policy.decode(body[:-2] + b"\x09" + body[-1:], b"")


def test_only_a_threshold_service_bears_liars():
    faults = [
        Policy("o", 1, (), (), issuer=issuer, key_servers=SERVERS).server_faults
        for issuer in (Issuer.CHAIN, Issuer.THRESHOLD)
    ]
    assert faults == [0, 1]
    assert Policy("o", 1, (), (), issuer=Issuer.THRESHOLD, key_servers=SERVERS[:3]).server_faults == 0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"key_servers": SERVERS[:2]}, "3 to 10 servers, not 2"),
        ({"key_servers": (*SERVERS[:3], "key1")}, "each once"),
        ({"key_servers": (*SERVERS[:3], "site")}, "site is not certified as a key server"),
        ({"key_servers": (*SERVERS[:3], "nobody")}, "nobody is not certified"),
        ({"key_servers": ()}, "each once"),
        ({"issuer": Issuer.OWNER}, "have none"),
        ({"issuer": Issuer.OWNER, "key_servers": ()}, "epochs need a key service"),
    ],
)
def test_a_key_service_that_cannot_work_is_refused(changes: dict[str, object], why: str):
    world = key_world(1).world
    with pytest.raises(OverlayError, match=why) as caught:
        world.with_policy(**changes)
    assert "\n" not in str(caught.value)


def test_scopes_without_epoch_keys_say_so():
    scopes = [Scope("a/#"), Scope("b/#", mode=Mode.PLAIN), Scope("c/#", shares_only=True)]
    assert [scope.keyed for scope in scopes] == [True, False, False]


def test_the_signature_covers_the_whole_policy():
    world = make_world({1: 3}, [], {"site": 1})
    document = world.overlay.to_document()
    other = replace(world.overlay.policy, calendar=Calendar(0, 100, 10, 10, 1))
    document["policy"] = document["policy"] | {"body": base64.b64encode(other.signed_bytes()).decode()}
    with pytest.raises(OverlayError, match="tampered"):
        Overlay.policy_of(document, world.overlay.owner)


def test_a_scope_with_other_tokens_says_under_which_number_its_streams_began():
    scope = Scope("tokens/#", tokens=True, number=5, origin=2)
    assert Scope.decode(scope.encode()) == scope
    assert [each.stream for each in (scope, Scope("a/#", number=3))] == [2, 3]
    for origin in (5, 6):
        with pytest.raises(BadFrame, match="was not before it"):
            Scope.decode(replace(scope, origin=origin).encode())
    flagged = bytearray(scope.encode())
    flagged[-4:] = bytes(4)
    with pytest.raises(BadFrame, match="was not before it"):
        Scope.decode(bytes(flagged))


def test_one_scope_that_does_not_retire_goes_on_with_each_stream():
    world = make_world({1: 3}, [], {"site": 1})
    first = world.overlay.policy.scopes[0]
    later = Scope("tokens/#", tokens=True, number=9, origin=first.number)
    with pytest.raises(OverlayError, match="only one may"):
        world.with_policy(scopes=(first, later))
    overlay = world.with_policy(scopes=(replace(first, retiring=True), later))
    assert [overlay.stream_of(number) for number in (1, 9, 7)] == [1, 1, 7]
