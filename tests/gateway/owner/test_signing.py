"""The owner's side: rights given and taken, epochs, new keys and tokens, and what an attacker might replace."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from bridge.document.batching import Batching
from bridge.document.overlay import Overlay, OverlayError
from bridge.document.policy import Issuer, Refresh
from gateway.owner.signing import Signed, grant, rekey, revoke
from gateway.trust.domains import TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.overlay_file import describe_grants, describe_overlay, load_overlay, load_secrets, worst_search
from keys.envelope import Mode
from keys.epochs import KeyName
from keys.grants import ENDLESS, Right
from keys.identity import Role
from keys.material import combine
from tests.gateway.trust.test_domains import mode
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties, ServedParties

DAY_S = 86_400
MIDNIGHT = NOW // DAY_S * DAY_S
PUMPS = [("pumps/#", Right.READ)]


def epochs_of(overlay: Overlay, member: str, wire: str) -> list[tuple[int, int]]:
    return [(g.first_epoch, g.last_epoch) for g in overlay.grants_of(member) if g.filter == wire]


def bump_of(overlay: Overlay, wire: str) -> int:
    scope = overlay.scope_named(wire)
    assert scope is not None
    return scope.bump


# ------------------------------------------------------------------------------------- the owner issues keys


def test_a_grant_is_signed_and_gives_the_present_key(world: Parties) -> None:
    world.sign()
    overlay = grant(world.out, world.owner, "spark", [("public/#", Right.PUBLISH), ("ward/#", Right.READ)], NOW)
    assert load_overlay(world.out, NOW_MS).policy.version == overlay.policy.version == 2
    secrets, keys = load_secrets(world.local("spark"), overlay)
    assert {s.clear_filter for s in secrets} == {"ward/#", "pumps/#", "public/#"}
    assert len(keys) == 2


def test_without_a_key_service_a_right_ends_at_once_and_its_key_with_it(world: Parties) -> None:
    world.sign()
    old = dict(load_secrets(world.local("spark"), load_overlay(world.out, NOW_MS))[1])
    overlay, taken = revoke(world.out, world.owner, "spark", PUMPS, NOW)
    assert (taken.ends_s, taken.bumped) == (NOW, ("pumps/#",))
    assert overlay.grants_of("spark") == ()
    assert bump_of(overlay, "pumps/#") == 1
    assert load_secrets(world.local("spark"), overlay)[0] == []
    new = dict(load_secrets(world.local("g1"), overlay)[1])
    assert new[KeyName("pumps/#", 0, 1)] not in old.values()


def test_a_reader_keeps_the_keys_since_it_became_one_and_history_gives_all(world: Parties) -> None:
    world.sign()
    grant(world.out, world.owner, "g1", PUMPS, NOW)
    revoke(world.out, world.owner, "spark", None, NOW)
    overlay = grant(world.out, world.owner, "spark", PUMPS, NOW)

    def bumps(name: str, overlay: Overlay) -> list[int]:
        return [key.bump for key, _ in load_secrets(world.local(name), overlay)[1] if key.scope == "pumps/#"]

    assert bumps("g1", overlay) == [0, 1]
    assert bumps("spark", overlay) == [1]
    with pytest.raises(TrustError, match="has these rights already"):
        grant(world.out, world.owner, "spark", PUMPS, NOW)
    assert bumps("spark", grant(world.out, world.owner, "spark", PUMPS, NOW, history=True)) == [0, 1]


def test_a_member_that_is_removed_leaves_with_outdated_keys(world: Parties) -> None:
    world.sign()
    signed = world.sign(lambda d: d["members"].pop())
    assert signed.bumped == ("pumps/#",)
    assert "spark" not in signed.overlay.members
    assert not [g for g in signed.overlay.policy.grants if g.member == "spark"]


def test_a_scope_that_comes_back_does_not_come_back_under_old_keys(world: Parties) -> None:
    world.sign()
    revoke(world.out, world.owner, "spark", None, NOW)
    world.description["members"].pop()
    pumps = world.description["scopes"].pop(1)
    world.sign()
    assert bump_of(world.sign(lambda d: d["scopes"].append(pumps)).overlay, "pumps/#") == 1


# ------------------------------------------------------------------------------------------ signing again


def test_rights_in_the_description_count_once_and_differences_are_named(world: Parties) -> None:
    world.sign()
    with pytest.raises(TrustError, match=r"spark: read ward/# is new, compared with version 1; .*grant\|revoke"):
        world.sign(lambda d: d["members"][1]["read"].append("ward/#"))
    grant(world.out, world.owner, "spark", [("ward/#", Right.READ)], NOW)
    assert world.sign().overlay.policy.version == 3
    with pytest.raises(TrustError, match="g1: publish # is gone"):
        world.sign(lambda d: d["members"][0].update(publish=[]))


def test_a_grant_that_is_edited_by_hand_is_refused(world: Parties) -> None:
    world.sign()
    document = json.loads(world.out.read_text())
    body = document["policy"]["body"]
    document["policy"]["body"] = body[:-8] + ("AAAA" if body[-8:-4] != "AAAA" else "BBBB") + body[-4:]
    world.out.write_text(json.dumps(document))
    with pytest.raises(TrustError, match="not this owner's overlay"):
        grant(world.out, world.owner, "g1", PUMPS, NOW)


def test_another_owner_grants_nothing(world: Parties) -> None:
    world.sign()
    with pytest.raises(TrustError, match="not this owner's overlay"):
        grant(world.out, world.directory / "party1", "g1", PUMPS, NOW)


def test_a_crash_before_the_file_is_written_is_mended_by_the_next_change(
    world: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.sign()

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("gateway.owner.signing.write_public", crash)
        with pytest.raises(KeyboardInterrupt):
            revoke(world.out, world.owner, "spark", None, NOW)
    overlay = grant(world.out, world.owner, "g1", PUMPS, NOW)
    assert (overlay.policy.version, overlay.grants_of("spark")) == (3, ())


@pytest.mark.parametrize(
    ("member", "wanted", "says"),
    [
        ("nobody", PUMPS, "no gateway or ingest job is called nobody; known are g1, spark"),
        ("r1", PUMPS, "no gateway or ingest job is called r1"),
        ("g1", [("kitchen/#", Right.PUBLISH)], "no scope has topics of kitchen/#; known are"),
        ("g1", [("pumps/1", Right.READ)], "reading is by whole scopes, and pumps/1 covers none"),
        ("g1", [("a/#/b", Right.READ)], "g1: read: a/#/b"),
        ("spark", PUMPS, "has these rights already"),
    ],
)
def test_a_grant_that_makes_no_sense_is_one_line(
    world: Parties, member: str, wanted: list[tuple[str, Right]], says: str
) -> None:
    world.sign()
    with pytest.raises(TrustError, match=says) as caught:
        grant(world.out, world.owner, member, wanted, NOW)
    assert "\n" not in str(caught.value)
    assert load_overlay(world.out, NOW_MS).policy.version == 1


def test_ended_certificates_are_renewed_before_rights_change(world: Parties) -> None:
    world.sign()
    later = NOW + 366 * DAY_S
    with pytest.raises(TrustError, match="renew them by `veilmq overlay sign` first"):
        grant(world.out, world.owner, "g1", PUMPS, later)
    world.sign(now=later)
    assert grant(world.out, world.owner, "g1", PUMPS, later).policy.version == 3


# ---------------------------------------------------------------------------------------------- key service


def test_material_is_dealt_once_and_the_owner_keeps_none(served: ServedParties) -> None:
    signed = served.sign()
    policy = signed.overlay.policy
    assert (policy.issuer, policy.server_faults, policy.key_servers) == (Issuer.THRESHOLD, 1, ("k1", "k2", "k3", "k4"))
    assert {mode(path) for path in signed.materials} == {0o600}
    dealt = served.materials(signed)
    name = KeyName("pumps/#", 0, 0)
    outputs = {index: out for m in dealt.values() for index, out in m.generation_of(0).outputs(name)}
    subkeys = {subkey for m in dealt.values() for _, subkey in m.generations[0].subkeys}
    assert len(outputs) == len(subkeys) == 4
    secrets = [combine(list(outputs.values())), *subkeys]
    forms = [form for s in secrets for form in (s, s.hex().encode(), base64.b64encode(s))]
    for path in (path for path in served.directory.rglob("*") if path.is_file() and path not in signed.materials):
        assert not [form for form in forms if form in path.read_bytes()], path
    assert served.sign().materials == ()
    assert not dict(load_secrets(served.local("g1"), signed.overlay)[1])


def test_every_server_of_a_chain_gets_the_same(tmp_path: Path) -> None:
    world = ServedParties(tmp_path, "chain", 2)
    assert len({m.encode() for m in world.materials(world.sign()).values()}) == 1


def test_a_service_of_too_few_or_too_many_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OverlayError, match="has 3 to 10 servers, not 2"):
        ServedParties(tmp_path, "threshold", 2).sign()


def test_rekeying_deals_anew_from_the_next_epoch_on(served: ServedParties) -> None:
    before = served.materials(served.sign())
    signed = served.rekey()
    after = served.materials(signed)
    assert signed.since_s == MIDNIGHT + DAY_S
    joined = before["k1"].followed_by(after["k1"])  # as the key server does it
    assert joined.generation_of(0) == before["k1"].generations[0]
    assert joined.generation_of(1) == after["k1"].generations[0]


def test_material_that_its_server_may_still_need_is_not_overwritten(served: ServedParties) -> None:
    first = served.sign().materials[0]
    kept = first.read_bytes()
    with pytest.raises(TrustError, match=r"k1\.material: is still here; hand it to its server"):
        rekey(served.directory / "overlay.yaml", served.owner, served.out, NOW)
    assert first.read_bytes() == kept


def test_other_servers_or_another_issuer_need_a_rekey(served: ServedParties) -> None:
    served.sign()
    served.description["key_service"]["servers"][3] = served.server(5)
    with pytest.raises(TrustError, match=r"list of key servers differs .*`veilmq trust rekey`"):
        served.sign()
    assert set(served.materials(served.rekey())) == {"k1", "k2", "k3", "k5"}
    served.description["key_service"]["issuer"] = "chain"
    with pytest.raises(TrustError, match="`veilmq trust rekey`"):
        served.sign()
    signed = served.rekey()
    assert signed.overlay.policy.issuer is Issuer.CHAIN


def test_numbers_of_epochs_go_on_when_their_length_changes(served: ServedParties) -> None:
    dealt = served.materials(served.sign())
    later = MIDNIGHT + 9 * DAY_S + 7300
    served.description["epochs"] = {"length_s": 3600}
    signed = served.rekey(later)
    calendar = signed.overlay.policy.calendar
    assert calendar.epoch_at(later) == 10  # the epoch after number 9 of the old calendar
    assert calendar.start_s(10) == later - 100 == signed.since_s
    dealt["k1"].walked(9).followed_by(served.materials(signed)["k1"])
    assert epochs_of(signed.overlay, "spark", "pumps/#") == [(0, ENDLESS)]


def test_from_the_owner_to_a_service_and_back_no_key_counts_twice(tmp_path: Path) -> None:
    world = ServedParties(tmp_path)
    service = {key: world.description.pop(key) for key in ("key_service", "epochs")}
    first = dict(load_secrets(world.local("spark"), world.sign().overlay)[1])
    world.description.update(service)
    signed = world.rekey()
    assert signed.overlay.policy.calendar.epoch_at(NOW) == 1
    assert not dict(load_secrets(world.local("spark"), signed.overlay)[1])
    revoke(world.out, world.owner, "g1", None, NOW)
    world.description["members"][0].update(publish=[], read=[])
    del world.description["key_service"], world.description["epochs"]
    back = world.rekey(NOW + 60)
    assert back.overlay.policy.issuer is Issuer.OWNER
    assert back.overlay.grants_of("g1") == ()  # its right was ending
    last = dict(load_secrets(world.local("spark"), back.overlay)[1])
    assert not set(first.values()) & set(last.values())


def test_there_is_nothing_to_rekey_without_a_service(world: Parties) -> None:
    world.sign()
    with pytest.raises(TrustError, match="no key service to rekey"):
        rekey(world.directory / "overlay.yaml", world.owner, world.out, NOW)


def test_a_key_server_rotates_its_identity_without_new_material(served: ServedParties) -> None:
    served.sign()
    former = served.local("k1").identity
    operator = TrustDomain.load(served.directory / "operator1")
    operator.issue("k1", Role.KEY_SERVER, HOSTS, served.directory / "next", NOW, former)
    signed = served.sign(cards=(served.directory / "next" / "card.json",))
    assert signed.materials == ()
    assert signed.overlay.members["k1"].before is not None


# --------------------------------------------------------------------------------------------------- tokens


def test_new_tokens_hide_names_anew_while_the_old_ones_are_read(world: Parties) -> None:
    old = world.sign().overlay.policy.scopes[0]
    overlay = world.sign(new_tokens=True).overlay
    (retiring,) = [scope for scope in overlay.policy.scopes if scope.retiring]
    assert retiring.filter == old.filter != overlay.policy.scopes[0].filter
    of_ward = [s for s in load_secrets(world.local("g1"), overlay)[0] if s.clear_filter == "ward/#"]
    assert len({s.token_key for s in of_ward}) == 2
    for secret in of_ward:
        assert overlay.may_read("g1", secret.scope, 0)
        assert overlay.may_publish("g1", secret.wire_topic("ward/7/pulse"), 0)
    with pytest.raises(TrustError, match="--drop-retiring first"):
        world.sign(new_tokens=True)
    ended = world.sign(drop_retiring=True).overlay
    assert not [scope for scope in ended.policy.scopes if scope.retiring]
    assert old.filter not in {g.filter for g in ended.policy.grants}
    with pytest.raises(TrustError, match="no scope is retiring"):
        world.sign(drop_retiring=True)


def test_a_scope_goes_on_with_its_streams_whatever_its_tokens(world: Parties) -> None:
    (first,) = [s.number for s in world.sign().overlay.policy.scopes if s.tokens]
    seen = {first}
    for _ in range(2):
        scopes = world.sign(new_tokens=True).overlay.policy.scopes
        (present,) = [s for s in scopes if s.tokens and not s.retiring]
        assert present.number not in seen
        assert {s.stream for s in scopes if s.tokens} == {first}
        seen.add(present.number)
        (ended,) = [s for s in world.sign(drop_retiring=True).overlay.policy.scopes if s.tokens]
        assert (ended.number, ended.stream) == (present.number, first)


def test_rights_follow_the_tokens_also_when_they_are_granted_later(world: Parties) -> None:
    world.sign(new_tokens=True)
    overlay = grant(world.out, world.owner, "spark", [("ward/#", Right.READ)], NOW)
    assert all(overlay.may_read("spark", s, 0) for s in overlay.policy.scopes if s.tokens)
    gone, taken = revoke(world.out, world.owner, "spark", [("ward/#", Right.READ)], NOW)
    assert taken.bumped == ("ward/#",)
    assert not any(gone.may_read("spark", s, 0) for s in gone.policy.scopes if s.tokens)


def test_a_scope_with_names_inside_one_without_keeps_them(world: Parties) -> None:
    world.description["scopes"].append({"filter": "ward/menu/#", "mode": "plain"})
    overlay = world.sign().overlay
    assert overlay.may_read("g1", overlay.policy.scopes[-1], 0)
    assert overlay.may_publish("g1", "ward/menu/today", 0)


# ------------------------------------------------------------------------------------------------ data keys


def of_scope(world: Parties, change: dict[str, Any]) -> Signed:
    return world.sign(lambda description: description["scopes"][1].update(change))


def test_how_data_keys_travel_and_when_they_are_renewed_is_signed_and_shown(world: Parties) -> None:
    world.description["scopes"][2]["mode"] = "plain"
    before = world.sign().overlay
    assert [s["refresh"] for s in describe_overlay(before)["scopes"] if s["mode"] != "plain"] == [
        {"messages": 64, "bytes": 1 << 20, "seconds": 60}
    ] * 3
    of_scope(world, {"keys": "topic", "refresh": {"messages": 1, "seconds": 5}})
    scope = load_overlay(world.out, NOW_MS).scope_named("pumps/#")
    assert scope is not None
    assert (scope.keys_on_topic, scope.refresh) == (True, Refresh(1, 1 << 20, 5))
    shown = {s["filter"]: s for s in describe_overlay(load_overlay(world.out, NOW_MS))["scopes"]}
    assert shown["pumps/#"]["keys"] == "topic"
    assert shown["pumps/#"]["refresh"] == {"messages": 1, "bytes": 1 << 20, "seconds": 5}
    assert "keys" not in next(s for s in shown.values() if s["mode"] == "plain")


def test_how_many_go_together_is_signed_and_shown_and_ends_no_key(world: Parties) -> None:
    world.sign()
    signed = of_scope(world, {"batch": {"records": 1, "linger_ms": 7}})
    assert signed.bumped == ()
    scopes = {s["filter"]: s for s in describe_overlay(load_overlay(world.out, NOW_MS))["scopes"]}
    assert scopes["pumps/#"]["batch"] == {"records": 1, "bytes": 64 << 10, "linger_ms": 7}
    scope = load_overlay(world.out, NOW_MS).scope_named("pumps/#")
    assert scope is not None
    assert scope.batch == Batching(1, 64 << 10, 7)


def test_another_number_of_messages_a_key_ends_the_keys_that_were_made_under_the_old_one(world: Parties) -> None:
    """Everybody refuses a key for more messages than the scope has; those of before go with their bump."""
    world.sign()
    assert of_scope(world, {"keys": "topic", "refresh": {"seconds": 5, "bytes": 1000}}).bumped == ()
    assert of_scope(world, {"refresh": {"messages": 10}}).bumped == ("pumps/#",)
    assert of_scope(world, {"refresh": {"messages": 10, "seconds": 9}}).bumped == ()
    assert of_scope(world, {"refresh": {"messages": 20}}).bumped == ("pumps/#",)
    assert bump_of(load_overlay(world.out, NOW_MS), "pumps/#") == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"refresh": {"messages": 0}}, "scopes.1.refresh.messages: input should be greater than or equal to 1"),
        ({"refresh": {"messages": 65_537}}, "scopes.1.refresh.messages: input should be less than or equal to 65536"),
        ({"refresh": {"bytes": 0}}, "scopes.1.refresh.bytes"),
        ({"refresh": {"seconds": 86_401}}, "scopes.1.refresh.seconds"),
        ({"refresh": {"hours": 1}}, "scopes.1.refresh.hours: unknown key"),
        ({"batch": {"records": 0}}, "scopes.1.batch.records: input should be greater than or equal to 1"),
        ({"batch": {"records": 1_025}}, "scopes.1.batch.records: input should be less than or equal to 1024"),
        ({"batch": {"bytes": 1 << 21}}, "scopes.1.batch.bytes: input should be less than or equal to 524288"),
        ({"batch": {"linger_ms": -1}}, "scopes.1.batch.linger_ms: input should be greater than or equal to 0"),
        ({"batch": {"linger_ms": 1_001}}, "scopes.1.batch.linger_ms: input should be less than or equal to 1000"),
        ({"batch": {"linger_s": 1}}, "scopes.1.batch.linger_s: unknown key; did you mean linger_ms?"),
        ({"batch": 5}, "scopes.1.batch: input should be a valid dictionary"),
        ({"keys": "mail"}, "scopes.1.keys: input should be 'riding' or 'topic'"),
        ({"mode": "plain", "keys": "topic"}, "scope pumps/# is plain and has no data keys; leave keys and refresh out"),
        ({"mode": "plain", "refresh": {}}, "scope pumps/# is plain and has no data keys; leave keys and refresh out"),
    ],
)
def test_what_a_scope_cannot_do_is_refused_in_one_line(world: Parties, change: dict[str, Any], said: str) -> None:
    with pytest.raises(TrustError) as caught:
        of_scope(world, change)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# ------------------------------------------------------------------------------------------------- showing


def test_grants_are_shown_with_dates_and_clear_names(served: ServedParties) -> None:
    served.sign()
    overlay, _ = revoke(served.out, served.owner, "spark", None, NOW)
    shown = describe_grants(overlay, {overlay.policy.scopes[0].filter: "ward/#"})
    entries = {(entry["member"], entry["filter"]): entry for entry in shown["grants"]}
    assert entries["spark", "pumps/#"]["last_epoch"] == 0
    assert entries["spark", "pumps/#"]["until"] == "2027-01-16 00:00:00 UTC"
    assert entries["g1", "ward/#"]["rights"] == ["publish", "read"]
    assert entries["g1", "ward/#"]["until"] == ""
    service = describe_overlay(overlay)
    assert service["key_service"]["faults"] == 1
    assert service["epochs"]["length_s"] == DAY_S


def in_a_row(description: dict[str, Any]) -> None:
    """Three regions, north - mid - south, of one trusted replica each; the sealed scope `pumps` only at both ends."""
    names = ("north", "mid", "south")
    cards = [[{"card": f"r{n}/card.json", "address": f"127.0.0.1:{8880 + n}"}] for n in (1, 2, 3)]
    description["regions"] = [
        {"name": n, "trusted": True, "members": card} for n, card in zip(names, cards, strict=True)
    ]
    description["edges"] = [["north", "mid"], ["mid", "south"]]
    description["scopes"][1]["regions"] = ["north", "south"]


def test_a_scope_whose_regions_are_not_joined_is_not_signed(world: Parties) -> None:
    """What one end publishes would never reach the other, and nobody would say so."""
    with pytest.raises(OverlayError, match=r"north and south of scope pumps/# are not joined: region mid") as refused:
        world.sign(in_a_row)
    assert "\n" not in str(refused.value)
    assert not world.out.exists()
    world.sign(lambda description: description["scopes"][1].update(regions=["north", "mid", "south"]))
    assert world.out.exists()


def test_what_a_search_can_cost_at_worst_is_shown(world: Parties) -> None:
    """For each scope the longest search that f liars of each region can cause; none where there are no keys."""
    world.description["scopes"][2]["mode"] = "plain"
    overlay = world.sign().overlay
    shown = {scope["filter"]: scope["worst_search"] for scope in describe_overlay(overlay)["scopes"]}
    counts = {region: view.hop.count for region, view in overlay.views.items()}
    for scope in overlay.policy.scopes:
        if scope.mode is Mode.PLAIN:
            assert shown[scope.filter] == 0
        else:
            assert shown[scope.filter] >= max(counts[region] for region in overlay.regions_of(scope))
    assert max(shown.values()) == worst_search(overlay, overlay.policy.scopes[0])


@pytest.mark.attack(180)
def test_an_owner_lists_no_key_in_two_overlays(world: Parties) -> None:
    """Signatures name no overlay: a publication, statement or receipt of one would count in the other."""
    world.sign()
    demo, world.out = world.out, world.directory / "other.json"
    with pytest.raises(TrustError, match=r"r1: its key stands in overlay demo, too, .*; take the card of another"):
        world.sign(lambda description: description.update(name="other"))
    assert not world.out.exists()
    (world.owner / "overlays" / "demo.json").unlink()
    demo.unlink()
    assert world.sign().overlay.policy.overlay == "other"
