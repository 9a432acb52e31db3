"""Admission: what is checked before anything is stored, each refusal under its own error."""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import replace
from itertools import product

import pytest

from bridge.contract.machine import Blame, Count, Wire
from bridge.document.overlay import Overlay
from bridge.document.policy import REFRESH_MESSAGES_MAX, Refresh, Scope
from bridge.document.wire_topics import batch_topic
from bridge.wire import admission as arriving
from bridge.wire.admission import BLOCKS_FREE, BUMP_GRACE_S, KEPT_S, Admission, Admitted, refused
from bridge.wire.pieces import read
from keys.envelope import (
    PROPERTY_HEADER,
    PROPERTY_KEY,
    PROPERTY_SHARES,
    PROPERTY_WRAPS,
    Mode,
    SignedHeader,
    from_property,
    sign_header,
    to_property,
)
from keys.epochs import Calendar, KeyName, scope_key
from keys.errors import BadFrame, BadShare, BadSignature, Expired, KeysError, NotAuthorised, UnknownView, WrongEpochKey
from keys.keyheader import KEY_DOMAIN, NO_KCV, KeyHeader
from keys.sharetree import SHARES_LIMIT, Place, Share, encode_shares
from keys.wrapping import encode_wraps
from tests.bridge.helpers import ForgedKey, craft, forge_key, gateway, publish, wire_topic, with_properties
from tests.keys.wrapped import Way
from tests.sim.world import NOT_AFTER_MS, NOW, ROOT, World, make_world
from tests.support.regions import fresh, row_of_regions

AFTER = NOT_AFTER_MS / 1000 + 1


SCOPES = [Scope("plant/#"), Scope("open/#"), Scope("clear/#", Mode.PLAIN)]
world = fresh(row_of_regions, 2, {"site": 1, "evil": 1}, SCOPES, rights={"evil": (("open/#",), ())})


def publication(admission: Admission, wire: Wire, now: float = NOW) -> Admitted:
    return admission.publication(dict(wire.properties)[PROPERTY_HEADER], wire.topic, now)


def admit(world: World, wire: Wire, now: float = NOW) -> Admitted:
    return publication(Admission(world.overlay, replica=True), wire, now)


def refusal(world: World, wire: Wire, now: float = NOW) -> type[KeysError]:
    with pytest.raises(KeysError) as caught:
        admit(world, wire, now)
    return caught.type


def test_an_honest_publication_is_admitted_with_its_publisher_and_scope(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    admitted = admit(world, wire)
    assert (admitted.publisher.name, admitted.scope.filter, admitted.live) == ("site", "plant/#", True)


def test_changed_content_is_told_and_not_refused(world: World):
    """The header still counts: one verified copy of it is enough, whoever brings the bytes."""
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    header = admit(world, replace(wire, payload=b"other")).header
    assert read(header, wire.payload, None) == {0: wire.payload}
    assert read(header, b"other", None) is None


def test_each_lie_has_its_error(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    assert refusal(world, Wire("veilmq/batch/2", wire.payload, properties=wire.properties)) is BadSignature
    assert refusal(world, with_properties(wire, (PROPERTY_HEADER, "AAAA"))) is BadFrame
    assert refusal(world, with_properties(wire, (PROPERTY_HEADER, "not base64!"))) is BadFrame
    assert refusal(world, craft(world, "evil", "plant/t", sequence=1, key_id=b"k" * 16)) is NotAuthorised
    assert refusal(world, craft(world, "r1a", "open/t", sequence=1, key_id=b"k" * 16)) is NotAuthorised
    assert refusal(world, craft(world, "site", "elsewhere", sequence=1, key_id=b"k" * 16)) is BadFrame
    assert refusal(world, craft(world, "site", "clear/t", sequence=1, key_id=b"k" * 16)) is BadFrame
    assert refusal(world, craft(world, "site", "plant/t", sequence=1, mode=Mode.PLAIN)) is BadFrame
    assert refusal(world, craft(world, "site", "plant/t", sequence=3, previous=3, key_id=b"k" * 16)) is BadFrame
    assert refusal(world, craft(world, "site", "plant/t", sequence=0, key_id=b"k" * 16)) is BadFrame
    assert refusal(world, wire, AFTER) is Expired


def test_a_stranger_is_refused(world: World):
    stranger = make_world({1: 3}, [], {"site": 1}, seed=99)
    assert refusal(world, publish(gateway(stranger, "site"), "plant/t", sequence=1)["r1a"]) is NotAuthorised


def once_admitted(world: World, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> Admission:
    """At a replica that has admitted `wire` and can verify no further signature."""
    admission = Admission(world.overlay, replica=True)
    publication(admission, wire)

    def refuse(*_: object) -> None:
        raise BadSignature("verified again")

    monkeypatch.setattr("bridge.wire.admission.verify_header", refuse)
    return admission


def test_a_header_is_verified_once_and_whatever_differs_from_it_anew(world: World, monkeypatch: pytest.MonkeyPatch):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    admission = once_admitted(world, wire, monkeypatch)
    assert publication(admission, wire).header.sequence == 1
    again = publish(gateway(world, "site"), "plant/t", sequence=2)["r1a"]
    for lie in (replace(wire, topic="veilmq/batch/2"), again):
        with pytest.raises(BadSignature):
            publication(admission, lie)


def test_a_verified_header_is_asked_about_the_time_and_forgotten_with_the_overlay(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1)["r1a"]
    admission = once_admitted(world, wire, monkeypatch)
    with pytest.raises(Expired):
        publication(admission, wire, AFTER)
    admission.adopt_overlay(world.with_policy(), NOW)
    with pytest.raises(BadSignature, match="again"):
        publication(admission, wire)


@pytest.mark.parametrize("retain", [False, True])
def test_a_reader_asks_vouchers_for_what_is_older_than_replicas_keep(world: World, retain: bool):
    reader = Admission(world.overlay, replica=False)
    wire = publish(gateway(world, "site"), "plant/t", sequence=1, retain=retain)["r1a"]
    for _ in range(2):  # remembered, too
        assert publication(reader, wire, NOW + KEPT_S).live
        assert publication(reader, wire, NOW + KEPT_S + 0.1).live is retain


def test_a_reader_asks_vouchers_for_what_is_of_a_certificate_that_has_ended(world: World):
    """It may have been away, or its clock be ahead; a replica in whose time it ended refuses."""
    reader = Admission(world.overlay, replica=False)
    key = forge_key(world, "site", "plant/#")
    for wire in (
        publish(gateway(world, "site"), "plant/t", sequence=1, now=NOT_AFTER_MS / 1000)["r1a"],
        craft(world, "site", "clear/t", sequence=2, mode=Mode.PLAIN, now=AFTER),
    ):
        for _ in range(2):
            assert not publication(reader, wire, AFTER).live
            assert publication(reader, wire, NOT_AFTER_MS / 1000).live
            assert reader.key_header(dict(key.properties()), AFTER) == key.header
        assert refusal(world, wire, AFTER) is Expired


def test_what_is_refused_is_not_remembered_and_the_rest_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arriving, "HEADERS_MAX", 3)
    admission = Admission(world.overlay, replica=True)

    def come(wire: Wire) -> int:
        with contextlib.suppress(KeysError):
            publication(admission, wire)
        return len(admission._admitted)

    assert come(craft(world, "evil", "plant/t", sequence=1, key_id=b"k" * 16)) == 0
    assert come(craft(world, "site", "veilmq/batch/" + "1" * 9999, sequence=1, key_id=b"k" * 16)) == 0
    wires = [craft(world, "site", "plant/t", sequence=number, key_id=b"k" * 16) for number in range(1, 6)]
    assert [come(wire) for wire in wires] == [1, 2, 3, 3, 3]
    assert [topic for _, topic in admission._admitted] == ["veilmq/batch/1"] * 3
    assert come(wires[-1]) == 3  # a copy, which evicts nothing


def test_keys_are_verified_once_and_forgeries_each_time(world: World):
    admission, key = Admission(world.overlay, replica=True), forge_key(world, "site", "plant/#")
    carried = dict(key.properties())
    first = admission.key_header(carried, NOW)
    assert admission.key_header(carried, NOW) is first
    forged = replace(key.header, signature=bytes(64))
    for _ in range(2):
        with pytest.raises(BadSignature):
            admission.key_header({PROPERTY_KEY: to_property(forged.encode())}, NOW)
    assert admission.key_header({}, NOW) is None
    with pytest.raises(Expired):
        admission.key_header(carried, AFTER)


def test_keys_need_a_scope_our_views_and_the_right_to_publish_there(world: World):
    admission, key, identity = (
        Admission(world.overlay, replica=True),
        forge_key(world, "site", "plant/#"),
        world.identities["site"],
    )

    def resigned(**changes: object) -> dict[str, str]:
        header = replace(key.header, **changes)
        header = replace(header, signature=identity.sign(KEY_DOMAIN, header.signed_bytes))
        return {PROPERTY_KEY: to_property(header.encode())}

    with pytest.raises(NotAuthorised):
        admission.key_header(resigned(scope="nowhere/#"), NOW)
    first, second = key.header.hops
    for hops in ((first,), (second, first), (replace(first, threshold=1), second)):
        with pytest.raises(BadShare):
            admission.key_header(resigned(hops=hops), NOW)
    for view, error in ((2, UnknownView), (0, Expired)):  # to come, or closed: neither is anybody's fault
        with pytest.raises(error):
            admission.key_header(resigned(hops=(replace(first, view=view), second)), NOW)
    with pytest.raises(NotAuthorised):
        admission.key_header(dict(forge_key(world, "evil", "plant/#").properties()), NOW)
    assert admission.key_header(dict(forge_key(world, "evil", "open/#").properties()), NOW) is not None


def share_at(*places: Place) -> dict[str, str]:
    share = Share(places, (bytes(4),) * (len(places) - 1), bytes(32))
    return {PROPERTY_SHARES: to_property(encode_shares([share]))}


def test_labels_fit_the_path_the_views_and_the_link(world: World):
    admission = Admission(world.overlay, replica=True)
    sender, ours = Place(1, 1, 2), Place(2, 1, 3)
    hop = world.overlay.views[1].hop
    assert len(admission.shares(share_at(sender, ours), [sender, ours])) == 1
    assert len(admission.shares(share_at(Place(1, 1, 3), ours), [hop, ours])) == 1
    for wrong in (
        (ours,),
        (Place(1, 1, 1), ours),
        (sender, Place(2, 1, 2)),
        (sender, Place(2, 2, 3)),
        (Place(2, 1, 3), Place(1, 1, 2)),
    ):
        with pytest.raises(BadShare):
            admission.shares(share_at(*wrong), [sender, ours])
    for claimed in (Place(1, 1, 4), Place(1, 2, 1), Place(3, 1, 1)):
        with pytest.raises(BadShare):
            admission.shares(share_at(claimed, ours), [hop, ours])


@pytest.mark.parametrize("frame", [b"", b"\0" * 40, bytes([1, 1, 0, 9]), bytes([1, 1, 0, 1]) + bytes(8) + b"\xff\xff"])
def test_malformed_share_frames_are_refused(world: World, frame: bytes):
    with pytest.raises(BadFrame):
        Admission(world.overlay, replica=True).shares(
            {PROPERTY_SHARES: to_property(frame)}, [world.overlay.views[1].hop]
        )


def test_a_huge_share_list_is_refused(world: World):
    body = bytes([1, 1, 0, 1]) + (1).to_bytes(4) + (1).to_bytes(4) + (SHARES_LIMIT + 1).to_bytes(2)
    with pytest.raises(BadFrame):
        Admission(world.overlay, replica=True).shares(
            {PROPERTY_SHARES: to_property(body + bytes(33 * 1000))}, [world.overlay.views[1].hop]
        )


@pytest.mark.parametrize(
    ("error", "suspects"),
    [(Expired, False), (WrongEpochKey, False), (NotAuthorised, True), (BadSignature, True), (BadFrame, True)],
)
def test_whoever_may_only_be_late_is_not_suspected(error: type[KeysError], suspects: bool):
    effects = refused("r1a", error("why"))
    assert Count("refused", 1, error.__name__) in effects
    assert any(isinstance(effect, Blame) for effect in effects) is suspects


# ---------------------------------------------------------------------------------- versions of the overlay


def test_a_right_that_is_taken_away_counts_from_the_version_that_takes_it(world: World):
    checks = Admission(world.overlay, replica=True)
    wires = [craft(world, "site", "clear/t", sequence=number, mode=Mode.PLAIN) for number in (1, 2)]
    publication(checks, wires[0])
    checks.adopt_overlay(world.revoked("site", -1), NOW)
    for wire in wires:
        with pytest.raises(NotAuthorised):
            publication(checks, wire)


def bumped(world: World) -> Overlay:
    """The next version, with another bump of every scope, and no right changed."""
    scopes = tuple(replace(scope, bump=scope.bump + 1) for scope in world.overlay.policy.scopes)
    return world.with_policy(scopes=scopes)


def test_a_bump_outdates_once_however_many_versions_follow(world: World):
    """Neither does a later version prolong what an outdated key counts for, nor end it at once."""
    checks = Admission(world.overlay, replica=True)
    old = KeyName("plant/#", 0, 0)
    assert not checks.stale(old, NOW)
    newer = bumped(world)
    checks.adopt_overlay(newer, NOW)
    ends = NOW + BUMP_GRACE_S
    assert checks.next_stale(NOW) == ends
    checks.adopt_overlay(newer, NOW + BUMP_GRACE_S / 2)
    assert (checks.stale(old, ends - 0.1), checks.stale(old, ends)) == (False, True)
    checks.adopt_overlay(newer, ends + 1)
    assert checks.stale(old, ends + 1)
    assert checks.next_stale(ends + 1) == float("inf")
    assert not checks.stale(KeyName("plant/#", 0, 1), ends + 1)


def test_a_member_that_starts_after_a_bump_gives_no_grace(world: World):
    checks = Admission(bumped(world), replica=True)
    assert checks.stale(KeyName("plant/#", 0, 0), NOW)


def test_what_becomes_stale_first_is_told(world: World):
    checks = Admission(world.overlay, replica=True)
    assert checks.next_stale(NOW) == float("inf")
    first = world.with_policy(
        scopes=(replace(world.overlay.policy.scopes[0], bump=1), *world.overlay.policy.scopes[1:])
    )
    checks.adopt_overlay(first, NOW)
    both = world.with_policy(scopes=tuple(replace(scope, bump=1) for scope in world.overlay.policy.scopes))
    checks.adopt_overlay(both, NOW + 1)
    assert checks.next_stale(NOW + 1) == NOW + BUMP_GRACE_S


def test_keys_of_a_scope_that_is_gone_are_stale(world: World):
    checks = Admission(world.with_policy(scopes=world.overlay.policy.scopes[1:]), replica=True)
    assert checks.stale(KeyName("plant/#", 0, 0), NOW)
    assert not checks.stale(KeyName("open/#", 0, 0), NOW)


@pytest.fixture
def minutely() -> World:
    """A world whose epochs last a minute."""
    calendar = Calendar(length_s=60, ahead_s=10, grace_s=10)
    return make_world({1: 3}, [], {"site": 1}, [Scope("clear/#", Mode.PLAIN)], calendar=calendar)


def in_epoch(world: World, number: int, topic: str, epoch: int, *, retain: bool = False) -> tuple[Wire, float]:
    """Returns a publication of the site in the epoch so many after `NOW`, and its time."""
    now = NOW + 60 * epoch
    return craft(world, "site", topic, sequence=number, mode=Mode.PLAIN, now=now, retain=retain), now


def test_what_is_remembered_of_rights_and_topics_is_bounded(minutely: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arriving, "RIGHTS_MAX", 3)
    monkeypatch.setattr(arriving, "VERIFIED_KEYS_MAX", 3)
    checks = Admission(minutely.overlay, replica=True)
    for number in range(1, 20):
        publication(checks, *in_epoch(minutely, number, "clear/t", number))
        assert len(checks._rights) <= 3


def test_rights_are_remembered_by_scope_so_that_retained_topics_do_not_add_up_with_the_epochs(minutely: World):
    checks = Admission(minutely.overlay, replica=False)
    for number in range(1, 31):
        publication(checks, *in_epoch(minutely, number, f"clear/{number % 10}", number % 3, retain=True))
    assert len(checks._rights) == 3


def test_a_certificate_counts_to_its_last_millisecond(world: World):
    wire = publish(gateway(world, "site"), "plant/t", sequence=1, now=NOT_AFTER_MS / 1000)["r1a"]
    assert admit(world, wire, NOT_AFTER_MS / 1000)


def test_the_first_and_the_last_place_of_a_region_are_in_it(world: World):
    hops = world.overlay.views[1].hop, world.overlay.views[2].hop
    for place in (1, 3):
        properties = share_at(Place(1, 1, place), Place(2, 1, place))
        assert Admission.shares(properties, hops)
    for place in (4, 255):
        with pytest.raises(BadShare):
            Admission.shares(share_at(Place(1, 1, place), Place(2, 1, 1)), hops)


def test_a_refusal_suspects_and_names_nobody():
    assert refused("r1a", BadFrame("why")) == [Count("refused", 1, "BadFrame"), Blame("r1a", False, "why")]


def test_numbers_are_what_databases_and_calendars_can_show(world: World):
    last = {"sequence": arriving.SEQUENCE_MAX, "time_ms": arriving.TIME_MS_MAX}
    reader = Admission(world.overlay, replica=False)
    assert publication(reader, craft(world, "site", "plant/t", key_id=b"k" * 16, retain=True, **last)).live
    for beyond in ({**last, "sequence": last["sequence"] + 1}, {**last, "time_ms": last["time_ms"] + 1}):
        assert refusal(world, craft(world, "site", "plant/t", key_id=b"k" * 16, retain=True, **beyond)) is BadFrame


def test_a_topic_that_is_none_is_a_bad_frame_and_a_carrier_no_publisher(world: World):
    assert refusal(world, craft(world, "site", "veilmq/batch/+", sequence=1, key_id=b"k" * 16)) is BadFrame
    for certificate in (world.overlay.certificate("r1a"), world.overlay.certificate("site")):
        if certificate.name == "site":
            assert Admission(world.overlay, replica=True).publisher(certificate.party_id) is certificate
        else:
            with pytest.raises(NotAuthorised, match="may publish"):
                Admission(world.overlay, replica=True).publisher(certificate.party_id)


def test_shares_may_be_absent_and_labels_neither_short_nor_long(world: World):
    places = Place(1, 1, 2), Place(2, 1, 3)
    assert Admission.shares({}, places) == []
    for label, expected in ((places[:1], places), (places, places[:1])):
        with pytest.raises(BadShare, match="depth"):
            Admission.shares(share_at(*label), expected)


# --------------------------------------------------------------------------------------------------- keys


def resigned(world: World, forged: ForgedKey, publisher: str = "site", **changes: object) -> dict[str, str]:
    header = replace(forged.header, **changes)  # type: ignore[arg-type]
    header = replace(header, signature=world.identities[publisher].sign(KEY_DOMAIN, header.signed_bytes))
    return {PROPERTY_KEY: to_property(header.encode())}


def test_a_verified_key_is_not_verified_again_and_forgotten_with_the_overlay(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    admission, carried = Admission(world.overlay, replica=True), dict(forge_key(world, "site", "plant/#").properties())
    admission.key_header(carried, NOW)

    def refuse(*_: object) -> None:
        raise BadSignature("verified again")

    monkeypatch.setattr(KeyHeader, "verify", refuse)
    assert admission.key_header(carried, NOW) is not None
    admission.adopt_overlay(world.with_policy(), NOW)
    with pytest.raises(BadSignature, match="again"):
        admission.key_header(carried, NOW)


def test_of_many_verified_keys_the_newest_are_remembered(world: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(arriving, "VERIFIED_KEYS_MAX", 3)
    admission = Admission(world.overlay, replica=True)
    texts = [dict(forge_key(world, "site", "plant/#", salt).properties()) for salt in range(5)]
    sizes = []
    for carried in texts:
        admission.key_header(carried, NOW)
        sizes.append(len(admission._keys))
    assert sizes == [1, 2, 3, 3, 3]
    assert list(admission._keys) == [carried[PROPERTY_KEY] for carried in texts[2:]]


@pytest.fixture
def ruled() -> World:
    few = Refresh(messages=10)
    scopes = [Scope("plant/#", bump=1, refresh=few), Scope("bare/#", shares_only=True, bump=1, refresh=few)]
    world = make_world({1: 3}, [], {"site": 1}, scopes)
    for secret in world.secrets:
        for bump in (0, 1):
            world.keys.put_key(KeyName(secret.scope.filter, 0, bump), scope_key(ROOT, secret.scope.filter, 0, bump))
    return world


def test_a_key_serves_as_many_messages_as_its_scope_says_now(ruled: World):
    reader = Admission(ruled.overlay, replica=False)
    for messages, bump, fits in ((10, 1, True), (11, 1, False), (11, 0, True), (REFRESH_MESSAGES_MAX, 0, True)):
        key = forge_key(ruled, "site", "plant/#", messages, bump=bump, messages=messages)
        with contextlib.nullcontext() if fits else pytest.raises(NotAuthorised, match="the scope has 10"):
            reader.key_header(dict(key.properties()), NOW)
    bare = forge_key(ruled, "site", "bare/#", bump=1, messages=11)
    assert reader.key_header(dict(bare.properties()), NOW), (
        "where no epoch key is, messages are not counted by the scope"
    )


def test_a_key_goes_with_an_epoch_key_exactly_where_the_scope_has_one(ruled: World):
    reader = Admission(ruled.overlay, replica=False)
    keyed, bare = (forge_key(ruled, "site", name, bump=1, messages=10) for name in ("plant/#", "bare/#"))
    assert (keyed.header.kcv == NO_KCV, bare.header.kcv == NO_KCV) == (False, True)
    for key, kcv in ((keyed, NO_KCV), (bare, keyed.header.kcv)):
        with pytest.raises(BadFrame, match="epoch key"):
            reader.key_header(resigned(ruled, key, kcv=kcv), NOW)
    older = forge_key(ruled, "site", "plant/#", bump=0, messages=10)
    assert reader.key_header(resigned(ruled, older, kcv=NO_KCV), NOW), "its scope may have been another"


def test_a_key_that_a_bump_outdated_is_refused_at_replicas_only(ruled: World):
    old = dict(forge_key(ruled, "site", "plant/#", bump=0, messages=10).properties())
    assert Admission(ruled.overlay, replica=False).key_header(old, NOW)
    with pytest.raises(WrongEpochKey):
        Admission(ruled.overlay, replica=True).key_header(old, NOW)


# ------------------------------------------------------------------------------------------------- epochs

CALENDAR = Calendar(int(NOW * 1000), length_s=60, grace_s=10, skew_s=2)


def in_epochs(calendar: Calendar = CALENDAR) -> World:
    world = make_world({1: 3}, [], {"site": 1}, [Scope("clear/#", Mode.PLAIN), Scope("plant/#")], calendar=calendar)
    world.learn(world.keys, range(4))
    return world


def sealed_at(world: World, time_ms: int) -> Wire:
    return craft(world, "site", "clear/t", sequence=1, mode=Mode.PLAIN, time_ms=time_ms, retain=True)


def test_the_epoch_of_a_header_is_that_of_the_middle_of_its_millisecond(monkeypatch: pytest.MonkeyPatch):
    """Whatever was asked before; and asked once for all that follow in the same epoch."""
    world, zero = in_epochs(), CALENDAR.zero_ms
    at = {
        time: (time - zero) // 60_000 for edge in (0, 60_000, 120_000) for time in (zero + edge, zero + edge + 59_999)
    }
    wires = {time_ms: sealed_at(world, time_ms) for time_ms in at}
    asked = []
    ask = Admission._epoch_of
    monkeypatch.setattr(Admission, "_epoch_of", lambda self, time_ms: asked.append(time_ms) or ask(self, time_ms))
    for first, then in product(at, at):
        reader = Admission(world.overlay, replica=False)
        asked.clear()
        assert [publication(reader, wires[time_ms]).epoch for time_ms in (first, then)] == [at[first], at[then]]
        assert len(asked) == (1 if at[first] == at[then] else 2)


def test_times_before_the_first_epoch_are_in_it_and_without_epochs_all_are():
    world = in_epochs()
    reader, zero = Admission(world.overlay, replica=False), CALENDAR.zero_ms
    assert [publication(reader, sealed_at(world, zero + ms)).epoch for ms in (-1, -70_000, 60_000, -1)] == [0, 0, 1, 0]


def test_without_epochs_the_endless_one_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, world: World):
    asked = []
    ask = Admission._epoch_of
    monkeypatch.setattr(Admission, "_epoch_of", lambda self, time_ms: asked.append(time_ms) or ask(self, time_ms))
    reader = Admission(world.overlay, replica=False)
    for time_ms in (0, 1, arriving.TIME_MS_MAX):
        assert publication(reader, sealed_at(world, time_ms)).epoch == 0
    assert asked == [0]


def test_a_right_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, world: World):
    asked = []
    learn = Admission._learn_scope
    monkeypatch.setattr(Admission, "_learn_scope", lambda self, *what: asked.append(what[1][1:]) or learn(self, *what))
    replica = Admission(world.overlay, replica=True)
    for retain in (False, True, False, True):
        for number in (1, 2):
            publication(replica, craft(world, "site", "clear/a", sequence=number, mode=Mode.PLAIN, retain=retain))
    assert asked == [(3, 0)], "once for the scope and epoch, whatever the topic"


def test_a_replica_admits_what_can_be_fresh_and_a_reader_says_whether_it_is():
    """Epoch 1 lasts from 60 to 120 s; clocks differ by 2 s, its keys seal for 10 s more."""
    world, reply = in_epochs(), {}
    wire = sealed_at(world, CALENDAR.zero_ms + 60_000)
    replica, reader = Admission(world.overlay, replica=True), Admission(world.overlay, replica=False)
    for after_s in (-70, 0, 57.9, 58, 59, 60, 125, 131.9, 132, 200, 100, 100):
        try:
            reply[after_s] = publication(replica, wire, NOW + after_s).live
        except KeysError as error:
            reply[after_s] = type(error)
        first = publication(Admission(world.overlay, replica=False), wire, NOW + after_s).live
        again = [publication(reader, wire, NOW + after_s).live for _ in range(2)]
        assert [first, *again] == [reply[after_s] is True] * 3
    early = dict.fromkeys((-70, 0, 57.9), NotAuthorised)
    assert reply == {
        **early,
        **dict.fromkeys((58, 59, 60, 125, 131.9, 100), True),
        **dict.fromkeys((132, 200), Expired),
    }


def test_before_the_first_epoch_nothing_has_begun():
    world = in_epochs()
    with pytest.raises(NotAuthorised, match="not begun"):
        publication(Admission(world.overlay, replica=True), sealed_at(world, CALENDAR.zero_ms), NOW - 2.1)


def test_what_was_admitted_once_stays_the_same_object_until_it_is_late():
    world = in_epochs()
    reader, wire = Admission(world.overlay, replica=False), sealed_at(world, CALENDAR.zero_ms)
    first = publication(reader, wire, NOW)
    assert publication(reader, wire, NOW + 1) is first
    assert publication(reader, wire, NOW + 100) == first._replace(live=False)


def test_keys_of_a_dead_epoch_are_refused_also_if_they_are_known():
    world = in_epochs()
    replica, carried = Admission(world.overlay, replica=True), dict(forge_key(world, "site", "plant/#").properties())
    with pytest.raises(Expired):
        replica.key_header(carried, NOW + 72)
    assert replica.key_header(carried, NOW + 71.9)
    with pytest.raises(Expired):
        replica.key_header(carried, NOW + 72)


def test_an_epoch_dies_when_its_grace_is_over_by_any_clock():
    checks = Admission(in_epochs().overlay, replica=True)
    assert [checks.oldest(NOW + after_s) for after_s in (0, 71.9, 72, 131.9, 132)] == [0, 0, 1, 1, 2]
    assert checks.next_stale(NOW) == NOW + 72
    assert checks.next_stale(NOW + 72) == NOW + 132
    names = [KeyName("plant/#", epoch, 0) for epoch in (0, 1)]
    assert [checks.stale(name, NOW + 71.9) for name in names] == [False, False]
    assert [checks.stale(name, NOW + 72) for name in names] == [True, False]


def test_another_calendar_counts_from_the_version_that_brings_it():
    world = in_epochs()
    checks, wire = Admission(world.overlay, replica=True), sealed_at(world, CALENDAR.zero_ms + 100_000)
    assert publication(checks, wire, NOW + 100).epoch == 1
    checks.adopt_overlay(world.with_policy(calendar=replace(CALENDAR, length_s=100)), NOW)
    assert publication(checks, sealed_at(world, CALENDAR.zero_ms + 99_999), NOW + 100).epoch == 0
    assert checks.oldest(NOW + 112) == 1


def test_ended_bumps_are_forgotten_and_announced_no_more(world: World):
    checks, newer = Admission(world.overlay, replica=True), bumped(world)
    checks.adopt_overlay(newer, NOW)
    ends = NOW + BUMP_GRACE_S
    assert checks.next_stale(ends - 0.1) == ends
    assert checks.next_stale(ends) == checks.next_stale(ends + 1) == float("inf")
    checks.adopt_overlay(newer, ends - 0.1)
    assert len(checks._bumped) == 3
    checks.adopt_overlay(newer, ends)
    assert checks._bumped == {}


@pytest.mark.attack(26)
def test_batches_of_a_scope_come_only_from_whoever_may_publish_in_it():
    scopes = [Scope("plant/#", number=1), Scope("open/#", number=2)]
    world = make_world({1: 3}, [], {"site": 1, "evil": 1}, scopes, rights={"evil": (("open/#",), ())})

    def batch(name: str, number: int) -> Wire:
        return craft(world, name, batch_topic(number), sequence=1, key_id=b"k" * 16)

    assert admit(world, batch("site", 1)).scope.filter == "plant/#"
    assert admit(world, batch("evil", 2)).scope.filter == "open/#"
    for name, number, error in (("evil", 1, NotAuthorised), ("site", 3, NotAuthorised), ("site", 0, BadFrame)):
        assert refusal(world, batch(name, number)) is error


@pytest.mark.parametrize("retain", [False, True])
def test_header_and_wire_topic_say_the_same_of_being_retained(world: World, retain: bool):
    topic = wire_topic(world, "site", "plant/t", retain=not retain)
    assert refusal(world, craft(world, "site", topic, sequence=1, key_id=b"k" * 16, retain=retain)) is BadFrame


@pytest.mark.attack(26)
def test_nobody_publishes_on_what_another_member_retains(world: World):
    topic = wire_topic(world, "evil", "plant/t", retain=True)
    assert refusal(world, craft(world, "site", topic, sequence=1, key_id=b"k" * 16, retain=True)) is BadFrame
    own = craft(world, "site", "plant/t", sequence=1, key_id=b"k" * 16, retain=True)
    assert admit(world, own).header.retain


def blocks(world: World, count: int) -> Wire:
    """Of `evil`, properly signed, in so many blocks."""
    key = forge_key(world, "evil", "open/#")
    wire = craft(world, "evil", "open/t", sequence=1, key=key)
    header = SignedHeader.decode(from_property(dict(wire.properties)[PROPERTY_HEADER])).header
    cut = replace(header, mode=Mode.BLOCKS, digests=tuple(hashlib.sha256(bytes([n])).digest() for n in range(count)))
    signed = sign_header(world.identities["evil"], cut, wire.topic)
    return replace(wire, properties=((PROPERTY_HEADER, to_property(signed.encode())),))


@pytest.mark.attack(59)
@pytest.mark.parametrize("is_replica", [True, False])
def test_content_is_in_no_more_blocks_than_a_region_may_have_replicas(world: World, is_replica: bool):
    """Attack: 512 KiB in 255 blocks. Every reader would work on them for half a second, every replica that makes some
    again for as long; a publisher's budget is of bytes."""
    admission = Admission(world.overlay, replica=is_replica)
    assert publication(admission, blocks(world, BLOCKS_FREE)).publisher.name == "evil"
    for count in (BLOCKS_FREE + 1, 255):
        with pytest.raises(UnknownView) as caught:
            publication(admission, blocks(world, count))
        assert caught.value.author == world.identities["evil"].party_id, "who brings it is no liar"


def test_a_large_region_cuts_content_into_as_many_blocks_as_it_has_replicas():
    large = make_world({1: BLOCKS_FREE + 2}, [], {"evil": 1}, [Scope("open/#")])
    admission = Admission(large.overlay, replica=True)
    assert publication(admission, blocks(large, BLOCKS_FREE + 2)).publisher.name == "evil"
    with pytest.raises(UnknownView):
        publication(admission, blocks(large, BLOCKS_FREE + 3))


# -------------------------------------------------------------------------------------------- wrapped keys


def long_way(count: int = 5) -> World:
    edges = [(n, n + 1) for n in range(1, count)]
    return make_world(dict.fromkeys(range(1, count + 1), 3), edges, {"site": 1, "mid": 3})


def signed_as(world: World, key: ForgedKey, publisher: str, *, wrapped: bool) -> dict[str, str]:
    """The key with that flag, properly signed."""
    header = replace(key.header, wrapped=wrapped)
    signature = world.identities[publisher].sign(KEY_DOMAIN, header.signed_bytes)
    return {PROPERTY_KEY: to_property(replace(header, signature=signature).encode())}


@pytest.mark.parametrize(("count", "publisher", "needed"), [(4, "site", False), (5, "site", True), (5, "mid", False)])
def test_a_key_is_wrapped_where_its_tree_needs_it_and_nowhere_else(count: int, publisher: str, needed: bool):
    """From the middle of five regions no way is long."""
    world = long_way(count)
    key = forge_key(world, publisher, "plant/#")
    for replica in (True, False):
        admission = Admission(world.overlay, replica=replica)
        admitted = admission.key_header(signed_as(world, key, publisher, wrapped=needed), NOW)
        assert admitted is not None
        assert admitted.wrapped is needed
        with pytest.raises(BadShare, match="wrapped"):
            admission.key_header(signed_as(world, key, publisher, wrapped=not needed), NOW)


def test_the_flag_of_a_signed_header_cannot_be_changed_on_the_way():
    world = long_way()
    told = signed_as(world, forge_key(world, "site", "plant/#"), "site", wrapped=True)
    frame = from_property(told[PROPERTY_KEY])
    with pytest.raises(BadSignature):
        Admission(world.overlay, replica=True).key_header(
            {PROPERTY_KEY: to_property(frame[:2] + b"\0" + frame[3:])}, NOW
        )


def test_wraps_are_those_of_the_key_beside_them():
    way = Way((3, 3, 3, 3, 3))
    told = {PROPERTY_WRAPS: to_property(encode_wraps(way.header.key_id, way.hops, way.wraps))}
    reader = way.place(4, 1)
    assert set(Admission.wraps(told, way.header, way.hops, reader)) == set(way.wraps)
    assert Admission.wraps({}, way.header, way.hops, reader) == []
    other = Way((3, 3, 3, 3, 3), seed="other").header
    plain = replace(way.header, wrapped=False)
    for header, sender in ((other, reader), (plain, reader), (way.header, way.hops[4]), (way.header, way.place(3, 1))):
        with pytest.raises(BadShare):
            Admission.wraps(told, header, way.hops, sender)
    for bad in ("", "AAAA", told[PROPERTY_WRAPS][:-4], told[PROPERTY_WRAPS] + "AAAA"):
        with pytest.raises(BadFrame):
            Admission.wraps({PROPERTY_WRAPS: bad}, way.header, way.hops, reader)
