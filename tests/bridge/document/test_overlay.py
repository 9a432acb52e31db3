"""The signed overlay: what is believed, and that each thing that is wrong is refused in one line that says the cure."""

from __future__ import annotations

import base64
import copy
import json
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from bridge.document import DEPTH_MAX, SHARES_PER_KEY_MAX, History
from bridge.document.overlay import Member, Overlay, OverlayError, RegionView
from bridge.document.policy import Policy, Scope
from keys.envelope import Mode
from keys.errors import BadFrame
from keys.identity import Certificate, Identity, Role
from tests.sim.world import NOT_AFTER_MS, NOW, make_world

pytestmark = pytest.mark.invariant(44)

OWNER = Identity.generate(bytes(range(32)))
NOW_MS = int(NOW * 1000)


def overlay_of(
    sizes: dict[int, int], edges: list[tuple[int, int]], *, trusted: bool = False, domain: str | None = None,
    role: Role = Role.REPLICA, of_region: int | None = None, twice: bool = False, missing: bool = False,
    scopes: tuple[Scope, ...] = (Scope("plant/#"),),
) -> Overlay:  # fmt: skip
    draw = random.Random(7)
    views, members = [], []
    for region, size in sizes.items():
        names = [f"m{region}.{i}" for i in range(size)]
        views.append(
            RegionView(region, 1, f"region-{region}", tuple(names[:1] + names[:-1] if twice else names), trusted)
        )
        for name in names[1:] if missing else names:
            identity = Identity.generate(draw.randbytes(32))
            certificate = Certificate.issue(
                OWNER,
                name=name,
                role=role,
                public_key=identity.public_bytes,
                agreement_key=identity.agreement_bytes,
                domain=domain or f"d-{name}",
                region=region if of_region is None else of_region,
                not_after_ms=NOT_AFTER_MS,
            )
            members.append(Member(certificate, "127.0.0.1:1", b"ca"))
    return Overlay.sign(OWNER, Policy("o", 1, tuple(edges), scopes), views, members)


def refused(make: Callable[[], Overlay], *words: str) -> None:
    with pytest.raises(OverlayError) as caught:
        make()
    message = str(caught.value)
    assert "\n" not in message
    for word in words:
        assert word in message, message


# ------------------------------------------------------------------------------------------------- regions


@pytest.mark.parametrize("size", [1, 2])
def test_two_replicas_cannot_share_a_secret_unless_trusted(size: int):
    refused(lambda: overlay_of({1: size}, []), "at least 3", "trusted: true")
    assert overlay_of({1: size}, [], trusted=True).views[1].trusted


@pytest.mark.parametrize(("size", "threshold"), [(3, 2), (4, 3), (5, 3), (7, 4)])
def test_the_threshold_is_a_majority(size: int, threshold: int):
    assert overlay_of({1: size}, []).views[1].hop.threshold == threshold


def test_replicas_of_one_trust_domain_are_refused():
    refused(lambda: overlay_of({1: 3}, [], domain="acme"), "one trust domain", "acme", "different parties")


def test_what_is_wrong_with_members_is_said():
    refused(lambda: overlay_of({1: 3}, [], twice=True), "twice")
    refused(lambda: overlay_of({1: 3}, [], missing=True), "no certificate", "card")
    refused(lambda: overlay_of({1: 3}, [], role=Role.GATEWAY), "not certified as a replica")
    refused(lambda: overlay_of({1: 3}, [], of_region=2), "not certified as a replica")


# ------------------------------------------------------------------------------------------------ the tree


@pytest.mark.parametrize(
    ("sizes", "edges", "words"),
    [
        ({1: 3, 2: 3}, [], ["tree"]),
        ({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3), (1, 3)], ["tree"]),
        ({1: 3, 2: 3, 3: 3}, [(1, 2), (1, 2)], ["tree"]),
        ({1: 3}, [(1, 2)], ["no view"]),
    ],
    ids=["apart", "cycle", "twice", "unknown"],
)
def test_regions_must_form_a_tree(sizes: dict[int, int], edges: list[tuple[int, int]], words: list[str]):
    refused(lambda: overlay_of(sizes, edges), *words)


def test_paths_that_make_too_many_shares_or_are_too_long_are_refused():
    chain = [(n, n + 1) for n in range(1, DEPTH_MAX + 1)]
    assert overlay_of(dict.fromkeys(range(1, DEPTH_MAX + 1), 3), chain[:-1]).path(1, DEPTH_MAX)
    refused(lambda: overlay_of(dict.fromkeys(range(1, DEPTH_MAX + 2), 3), chain), f"at most {DEPTH_MAX}", "shorten")
    refused(lambda: overlay_of(dict.fromkeys(range(1, 5), 7), chain[:3]), str(7**4), str(SHARES_PER_KEY_MAX))
    assert overlay_of(dict.fromkeys(range(1, 5), 5), chain[:3]).path(1, 4) == (1, 2, 3, 4)


@pytest.mark.invariant(24)
@pytest.mark.parametrize("counts", [(3, 10, 10), (3, 11, 11), (3, 3, 9, 9), (3, 19)])
def test_paths_whose_liars_could_outlast_a_readers_search_are_refused(counts: tuple[int, ...]):
    chain = [(n, n + 1) for n in range(1, len(counts))]
    refused(lambda: overlay_of(dict(enumerate(counts, 1)), chain), "combinations", "smaller regions")


ROW = [(1, 2), (2, 3), (3, 4), (4, 5)]
FIVE = dict.fromkeys(range(1, 6), 3)


def test_the_limits_are_of_paths_on_which_keys_travel():
    """Plain publications have no shares: their regions may be as many as the tree holds, and so may those beside a
    sealed scope's own."""
    plain = Scope("open/#", Mode.PLAIN)
    assert overlay_of(FIVE, ROW, scopes=(plain,)).path(1, 5) == (1, 2, 3, 4, 5)
    assert overlay_of(FIVE, ROW, scopes=(plain, Scope("plant/#", regions=(2, 3, 4, 5))))
    kept = Scope("plant/#", history=History(1, 16))
    assert overlay_of(FIVE, ROW, scopes=(plain, Scope("plant/#"))).path(1, 5) == (1, 2, 3, 4, 5)
    refused(lambda: overlay_of(FIVE, ROW, scopes=(plain, kept)), "plant/#", "5 regions and a history", "no history")
    many = dict.fromkeys(range(1, DEPTH_MAX + 2), 3)
    row = [(n, n + 1) for n in range(1, DEPTH_MAX + 1)]
    assert overlay_of(many, row, scopes=(plain,)).path(1, 2)
    refused(lambda: overlay_of(many, row, scopes=(Scope("plant/#", shares_only=True),)), f"at most {DEPTH_MAX}")
    large = dict.fromkeys(range(1, 5), 7)
    assert overlay_of(large, ROW[:3], scopes=(plain, Scope("plant/#", regions=(1, 2))))
    refused(lambda: overlay_of(large, ROW[:3], scopes=(plain, Scope("plant/#"))), str(7**4))


@pytest.mark.parametrize("mode", [Mode.COPIES, Mode.PLAIN])
def test_the_regions_of_a_scope_must_be_joined(mode: Mode):
    """Between others nothing of the scope may pass: what is published on one side would never reach the other."""

    def scoped(*regions: int) -> Overlay:
        scopes = (Scope("plant/#", mode, regions), Scope("#", Mode.PLAIN))
        return overlay_of({1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (2, 3), (2, 4)], scopes=scopes)

    refused(lambda: scoped(1, 3), "plant/#", "region-1", "region-3", "region-2", "not joined")
    refused(lambda: scoped(1, 3, 4), "plant/#", "not joined")
    refused(lambda: scoped(1, 2, 5), "plant/#", "5", "no region")
    for joined in ((), (4,), (1, 2), (1, 2, 3), (1, 2, 3, 4)):
        assert scoped(*joined).regions_of(scoped(*joined).policy.scopes[0]) == set(joined or (1, 2, 3, 4))


def test_what_a_scope_that_is_not_joined_would_lose_is_not_adopted_from_a_document_either(
    monkeypatch: pytest.MonkeyPatch,
):
    """A document that an older version signed: it does not load, and who has one in force keeps that."""
    with monkeypatch.context() as older:
        older.setattr("bridge.document.overlay.unjoined", lambda overlay, tree: "")
        written = overlay_of({1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], scopes=(Scope("plant/#", regions=(1, 3)),))
    document = written.to_document()
    refused(lambda: Overlay.from_document(document, NOW_MS), "plant/#", "not joined")


def test_paths_and_neighbours():
    overlay = overlay_of({1: 3, 2: 3, 3: 3, 4: 3}, [(1, 2), (1, 3), (3, 4)])
    assert overlay.path(2, 4) == (2, 1, 3, 4)
    assert overlay.path(4, 4) == (4,)
    assert overlay.neighbours(1) == (2, 3)
    assert [hop.region for hop in overlay.hops_between(2, 3)] == [2, 1, 3]


# ------------------------------------------------------------------------------------------------- scopes


def test_a_topic_belongs_to_its_most_specific_scope():
    scopes = [Scope("plant/#"), Scope("plant/line1/#"), Scope("plant/line1/temp")]
    overlay = make_world({1: 3}, [], {}, scopes).overlay
    for topic, wire_filter in (
        ("plant/x", "plant/#"),
        ("plant/line1/x", "plant/line1/#"),
        ("plant/line1/temp", "plant/line1/temp"),
    ):
        found = overlay.scope_of(topic)
        assert found is not None
        assert found.filter == wire_filter
    assert overlay.scope_of("other") is None
    assert overlay.scope_of("$veil/keys") is None


def test_a_right_must_cover_the_whole_scope():
    rights = {"all": ((), ("plant/#",)), "part": ((), ("plant/line1/#",)), "none": (("plant/#",), ())}
    overlay = make_world({1: 3}, [], dict.fromkeys(rights, 1), [Scope("plant/#")], rights=rights).overlay
    assert [overlay.may_read(name, overlay.policy.scopes[0], 0) for name in rights] == [True, False, False]


def test_a_key_states_the_publishers_region_first_and_only_regions_of_its_scope():
    overlay = make_world(
        {1: 3, 2: 3, 3: 3}, [(1, 2), (2, 3)], {}, [Scope("plant/#", regions=(1, 2)), Scope("#")]
    ).overlay
    first, second = overlay.policy.scopes
    assert [hop.region for hop in overlay.key_hops(first, 2)] == [2, 1]
    assert [hop.region for hop in overlay.key_hops(second, 3)] == [3, 1, 2]


# ----------------------------------------------------------------------------------------------- document


def document() -> dict[str, Any]:
    scopes = [Scope("plant/#", regions=(1,), shares_only=True), Scope("t/#", Mode.PLAIN, tokens=True)]
    return make_world({1: 3, 2: 3}, [(1, 2)], {"site": 1}, scopes).overlay.to_document()


def test_a_document_survives_json():
    written = document()
    overlay = Overlay.from_document(json.loads(json.dumps(written)), NOW_MS)
    assert overlay.to_document() == written
    assert overlay.policy.scopes[0].regions == (1,)
    assert overlay.policy.scopes[0].shares_only
    assert overlay.certificate("site").region == 1


def test_the_owner_can_be_pinned():
    written = document()
    assert Overlay.from_document(written, NOW_MS, base64.b64decode(written["owner"]))
    refused(lambda: Overlay.from_document(written, NOW_MS, OWNER.public_bytes), "another owner", "ask the owner")


def test_an_expired_certificate_is_refused():
    refused(lambda: Overlay.from_document(document(), NOT_AFTER_MS + 1), "ended", "issue it anew")


@pytest.mark.parametrize("where", ["policy", "views", "members", "owner"])
def test_a_flipped_bit_is_noticed(where: str):
    """In every tenth byte of each signed thing; whatever it breaks is told in one line."""
    original = document()
    holder = original[where] if where in ("policy", "owner") else original[where][0]
    field = {"policy": "body", "views": "body", "members": "certificate"}.get(where)
    data = base64.b64decode(holder if field is None else holder[field])
    for at in range(0, len(data), 10):
        changed = base64.b64encode(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]).decode()
        forged = copy.deepcopy(original)
        if field is None:
            forged[where] = changed
        else:
            (forged[where] if where == "policy" else forged[where][0])[field] = changed
        refused(lambda forged=forged: Overlay.from_document(forged, NOW_MS), "tampered", "owner")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d.pop("views"),
        lambda d: d.update(members=3),
        lambda d: d.update(owner=None),
        lambda d: d["views"].append("x"),
        lambda d: d["policy"].pop("signature"),
        lambda d: d["members"][0].update(ca="?"),
        lambda d: d.update(owner="AAAA"),
        lambda d: d["members"].append({"certificate": "", "address": "", "ca": ""}),
    ],
)
def test_what_is_no_overlay_file_is_said_in_one_line(spoil: Callable[[dict[str, Any]], object]):
    spoiled = document()
    spoil(spoiled)
    refused(lambda: Overlay.from_document(spoiled, NOW_MS), "overlay file")


def test_parts_may_not_be_given_twice():
    """A second view of a region, or card of a name, would silently win over the first."""
    for part in ("views", "members"):
        doubled = document()
        doubled[part].append(doubled[part][0])
        refused(lambda doubled=doubled: Overlay.from_document(doubled, NOW_MS), "tampered")


def test_one_key_may_not_serve_two_members():
    """Whoever holds it would be two replicas at once."""
    both = Identity.generate(bytes(32))
    members = [
        Member(
            Certificate.issue(
                OWNER,
                name=name,
                role=Role.REPLICA,
                public_key=both.public_bytes,
                agreement_key=both.agreement_bytes,
                domain=name,
                region=1,
                not_after_ms=NOT_AFTER_MS,
            )
        )
        for name in ("a", "b", "c")
    ]
    view = RegionView(1, 1, "region", ("a", "b", "c"))
    refused(lambda: Overlay.sign(OWNER, Policy("o", 1, (), (Scope("#"),)), [view], members), "a key twice")


def test_frames_refuse_unknown_modes_and_flags():
    frame = bytearray(Scope("plant/#").encode())
    with pytest.raises(BadFrame):
        Scope.decode(bytes([*frame[:2], 0x80, *frame[3:]]))
    at = frame.index(b"#") + 1
    with pytest.raises(BadFrame):
        Scope.decode(bytes([*frame[:at], 99, *frame[at + 1 :]]))


def test_old_parts_do_not_mix_with_new_ones_and_addresses_are_signed() -> None:
    """Attack: whoever delivers the file exchanges a replica's address, or takes a removed member in again."""
    world = make_world({1: 3}, [], {"site": 1, "gone": 1})
    document = world.overlay.to_document()
    moved = json.loads(json.dumps(document))
    moved["members"][1]["address"] = "203.0.113.9:8883"
    with pytest.raises(OverlayError, match="tampered"):
        Overlay.from_document(moved, int(NOW * 1000))
    fewer = json.loads(json.dumps(document))
    del fewer["members"][0]
    with pytest.raises(OverlayError, match="tampered"):
        Overlay.from_document(fewer, int(NOW * 1000))
    assert Overlay.from_document(document, int(NOW * 1000)).to_document() == document


def test_the_policy_alone_is_verified_too() -> None:
    """What is checked before the rest of a document is read."""
    world = make_world({1: 3}, [], {"site": 1})
    document = world.overlay.to_document()
    assert Overlay.policy_of(document, world.overlay.owner) == world.overlay.policy
    for owner, spoiled in ((OWNER.public_bytes, document), (world.overlay.owner, {"policy": 1}), (b"", {})):
        with pytest.raises(OverlayError):
            Overlay.policy_of(spoiled, owner)


@pytest.mark.parametrize("field", ["address", "ca", "box", "before"])
def test_every_field_of_a_member_is_of_its_version(field: str):
    """Attack: whoever delivers the file exchanges the CA of a trust domain, a box for an older one (whose token key was
    exchanged since), or lists a former certificate that the owner dropped."""
    world = make_world({1: 3}, [], {"site": 1})
    document = world.overlay.to_document()
    certificate = document["members"][0]["certificate"]
    document["members"][0][field] = {"address": "203.0.113.9:8883", "before": certificate}.get(field, "AAAA")
    refused(lambda: Overlay.from_document(document, NOW_MS), "views or members are not those of this version")


def test_a_former_certificate_is_the_owners_too():
    world = make_world({1: 3}, [], {"site": 1})
    assert world.owner is not None
    site = world.overlay.members["site"]
    forged = replace(site.certificate, public_key=OWNER.public_bytes)  # with the signature of another
    members = [replace(m, before=forged) if m is site else m for m in world.overlay.members.values()]
    overlay = Overlay.sign(world.owner, world.overlay.policy, world.overlay.views.values(), members)
    refused(lambda: Overlay.from_document(overlay.to_document(), NOW_MS), "does not verify")
