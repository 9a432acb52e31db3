"""Cards to certificates: whose key a name has, after rotations, losses and tricks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import yaml

from bridge.document import Overlay
from gateway.owner.cards import DAY_MS, SignOptions, certify, reissued
from gateway.owner.description import Description
from gateway.trust.domains import Card, TrustDomain
from gateway.trust.errors import TrustError
from gateway.trust.rotation import prepare
from keys.identity import Role
from tests.support.parties import HOSTS, NOW, NOW_MS, Parties

IDS = {"north": 1}


class Owner(Parties):
    """`certify` of the description, after a first version or without."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.previous: Overlay | None = None

    def certify(self, **options: object) -> dict[str, object]:
        path = self.directory / "overlay.yaml"
        path.write_text(yaml.safe_dump(self.description))
        wanted = Description.model_validate(self.description)
        domain = TrustDomain.load(self.owner)
        return dict(certify(path, wanted, IDS, domain, self.previous, SignOptions(**options), NOW))  # type: ignore[arg-type]

    def rotated(self, name: str = "g1") -> Path:
        """The card of a key that the present one countersigned."""
        return prepare(self.directory / name, TrustDomain.load(self.owner), NOW).directory / "card.json"

    def another(self, name: str, role: Role = Role.GATEWAY) -> Path:
        """A card for the same name and another key, that nobody countersigned."""
        made = TrustDomain.load(self.owner).issue(name, role, HOSTS, self.directory / f"other-{name}", NOW)
        return made.directory / "card.json"

    def key_of(self, card: Path) -> bytes:
        return Card.load(card).public_key


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


@pytest.fixture
def later(owner: Owner) -> Owner:
    """After the first version."""
    owner.previous = owner.sign().overlay
    return owner


def test_members_stand_by_region_and_end_with_their_certificates(owner: Owner) -> None:
    made = owner.certify()
    assert list(made) == ["r1", "r2", "r3", "g1", "spark"]
    wanted = Description.model_validate(owner.description)
    for member in made.values():
        certificate = member.certificate  # type: ignore[attr-defined]
        assert certificate.not_after_ms == NOW_MS + wanted.valid_days * DAY_MS
        assert certificate.region == 1


def test_a_card_of_another_role_is_refused(owner: Owner) -> None:
    shutil.copy(owner.directory / "g1" / "card.json", owner.directory / "r1" / "card.json")
    with pytest.raises(TrustError, match="is the card of a gateway, not of a replica"):
        owner.certify()


def test_nobody_is_listed_twice(owner: Owner) -> None:
    owner.description["members"].append(owner.description["members"][0])
    with pytest.raises(TrustError, match="g1 is listed twice; list each member once"):
        owner.certify()


def test_a_key_that_nobody_countersigned_is_somebody_elses(later: Owner) -> None:
    with pytest.raises(TrustError, match=r"that key did not sign it.*--replace-lost g1"):
        later.certify(cards=(later.another("g1"),))


def test_a_lost_key_is_replaced_only_where_the_owner_says_so(later: Owner) -> None:
    card = later.another("g1")
    member = later.certify(cards=(card,), replace_lost=("g1",))["g1"]
    assert member.certificate.public_key == later.key_of(card)  # type: ignore[attr-defined]
    assert member.before is None, "the lost key counts no longer"  # type: ignore[attr-defined]
    with pytest.raises(TrustError, match="--replace-lost r1: no new card of that name; leave it out"):
        later.certify(cards=(card,), replace_lost=("g1", "r1"))


def test_a_rotated_key_counts_beside_the_former_one_for_the_overlap(later: Owner) -> None:
    former = later.key_of(later.directory / "g1" / "card.json")
    card = later.rotated()
    member = later.certify(cards=(card,), overlap_hours=2.0)["g1"]
    assert member.certificate.public_key == later.key_of(card)  # type: ignore[attr-defined]
    assert member.before.public_key == former  # type: ignore[attr-defined]
    assert member.before.not_after_ms == NOW_MS + 2 * 3_600_000  # type: ignore[attr-defined]
    never = later.certify(cards=(card,), overlap_hours=1e6)["g1"]
    assert never.before.not_after_ms <= later.previous.members["g1"].certificate.not_after_ms  # type: ignore[attr-defined,union-attr]


def test_the_card_of_before_a_rotation_takes_nothing_back(later: Owner) -> None:
    card = later.rotated()
    later.previous = later.sign(cards=(card,)).overlay
    member = later.certify()["g1"]  # the description still names the former card
    assert member.certificate.public_key == later.key_of(card)  # type: ignore[attr-defined]
    assert member.before is not None  # type: ignore[attr-defined]


def test_a_newer_card_that_nobody_is_called_by_is_said(owner: Owner) -> None:
    with pytest.raises(TrustError, match=r"stranger: no member of .* has that name; leave the card out"):
        owner.certify(cards=(owner.another("stranger"),))


def test_a_name_keeps_its_role(later: Owner) -> None:
    later.another("g1", Role.INGEST)
    shutil.copy(later.directory / "other-g1" / "card.json", later.directory / "g1" / "card.json")
    with pytest.raises(TrustError, match="g1 was a gateway before; issue it under another name"):
        later.certify()


def test_reissued_is_the_same_with_another_end(later: Owner) -> None:
    assert later.previous is not None
    old = later.previous.certificate("g1")
    new = reissued(TrustDomain.load(later.owner), old, old.not_after_ms + DAY_MS)
    assert new.not_after_ms == old.not_after_ms + DAY_MS
    assert (new.name, new.role, new.public_key, new.region, new.domain) == (
        old.name, old.role, old.public_key, old.region, old.domain,
    )  # fmt: skip
