"""What `veilmq check` says about our key, our rights and their ends, the key service and its material."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bridge.document import Overlay
from gateway.base import Settings, load
from gateway.checking.check_trust import CheckFinding, check_keys, check_rights, identity_of
from gateway.overlay import DIRECTORY
from gateway.owner import SignOptions, sign_overlay
from gateway.owner.signing import grant, revoke
from gateway.setup import Made
from gateway.trust import LocalIdentity, TrustDomain, TrustError, load_overlay, load_secrets
from gateway.trust.rotation import prepare
from keys.grants import Right

NOW = time.time()
DAY_S = 86_400.0


class Member:
    """One member's files as `check` has loaded them."""

    def __init__(self, made: Made, name: str, now: float = NOW) -> None:
        self.folder = made.directory / name
        self.settings: Settings = load(self.folder / "broker.yaml")
        self.local = LocalIdentity.load(self.folder / "identity")
        self.overlay: Overlay = load_overlay(made.overlay_path, int(now * 1000))

    def key_findings(self, now: float = NOW) -> list[tuple[str, str]]:
        return told(check_keys(self.settings, self.local, self.overlay, now))

    def rights(self, now: float = NOW) -> list[tuple[str, str]]:
        secrets = load_secrets(self.local, self.overlay)[0]
        return told(check_rights(self.local.name, self.overlay, secrets, secrets, now))


def told(findings: Any) -> list[tuple[str, str]]:
    found: list[CheckFinding] = list(findings)
    return [(finding.level, finding.text) for finding in found]


# ------------------------------------------------------------------------------------------------ our key


def test_a_stranger_is_told_to_hand_in_a_card(plant: Made, tmp_path: Path) -> None:
    domain = TrustDomain.create(tmp_path / "domain", "elsewhere", NOW)
    stranger = domain.issue("x9", LocalIdentity.load(plant.directory / "g1/identity").role, (), tmp_path / "x9", NOW)
    with pytest.raises(TrustError, match="x9 is no member of overlay overlay; ask the owner to add your card"):
        identity_of(stranger, Member(plant, "g1").overlay)


def test_a_start_takes_the_next_key_once_the_overlay_lists_it(plant: Made) -> None:
    member = Member(plant, "g1")
    made = prepare(member.folder / "identity", TrustDomain.load(member.folder / "domain"), NOW)
    assert identity_of(member.local, member.overlay).identity.public_bytes == member.local.identity.public_bytes
    signed = sign_overlay(
        plant.directory / "overlay.yaml", plant.directory / "owner", plant.overlay_path, NOW,
        SignOptions(cards=(made.directory / "card.json",)),
    )  # fmt: skip
    assert identity_of(member.local, signed.overlay).identity.public_bytes == made.identity.public_bytes
    assert member.local.directory == member.folder / "identity", "nothing is moved"
    found = Member(plant, "g1").key_findings()
    assert any("the key of g1 was rotated; the former one counts until" in text for _, text in found)


# --------------------------------------------------------------------------------------- key service, epochs


def test_the_key_service_and_its_epochs(plant: Made) -> None:
    found = Member(plant, "g1").key_findings()
    assert found[0] == ("ok", "key service: threshold of 4, bears 1 that lie")
    assert [level for level, _ in found] == ["ok", "ok"]
    assert "keys of the next from" in found[1][1]


def test_a_clock_that_is_behind_the_first_epoch(plant: Made) -> None:
    member = Member(plant, "g1")
    found = member.key_findings(member.overlay.policy.calendar.start_s(0) - 1)
    assert any(level == "warning" and "set the clock" in text for level, text in found)


def test_only_a_key_server_has_a_key_server_section(plant: Made) -> None:
    gateway, server = Member(plant, "g1"), Member(plant, "k1")
    gateway.settings = server.settings
    assert ("error", "overlay.key_server is for key servers, g1 is a gateway; remove it") in gateway.key_findings()
    server.settings = Member(plant, "g1").settings
    assert ("error", "a key server needs overlay.key_server; add key_server: {material: FILE}") in server.key_findings()


def test_material_is_there_or_kept_or_missing(plant: Made) -> None:
    server = Member(plant, "k1")
    material, data = server.folder / "material", server.folder / "data"
    assert server.key_findings()[-1][0] == "ok"
    assert "the first start takes it in" in server.key_findings()[-1][1]
    material.unlink()
    assert server.key_findings()[-1][0] == "error"
    assert "none is kept" in server.key_findings()[-1][1]
    kept = data / DIRECTORY / "material"
    kept.parent.mkdir(parents=True)
    kept.touch()
    assert server.key_findings()[-1] == ("ok", "key material is kept in the data directory")


@pytest.mark.parametrize(
    ("content", "mode", "said"), [(None, 0o644, "chmod 600"), (b"nonsense", 0o600, "is not key material")]
)
def test_material_that_cannot_be_used(plant: Made, content: bytes | None, mode: int, said: str) -> None:
    server = Member(plant, "k1")
    path = server.folder / "material"
    if content is not None:
        path.write_bytes(content)
    path.chmod(mode)
    level, text = server.key_findings()[-1]
    assert level == "error"
    assert said in text


def test_a_key_server_that_the_overlay_does_not_name(plant: Made) -> None:
    server = Member(plant, "k1")
    object.__setattr__(server.overlay.policy, "key_servers", ("k2", "k3", "k4"))
    assert (
        "warning",
        "k1 is none of the overlay's key servers; ask the owner to sign you in as one",
    ) in server.key_findings()


# ------------------------------------------------------------------------------------------------- rights


def test_rights_without_an_end_are_quiet(plant: Made) -> None:
    assert Member(plant, "g1").rights() == []


def test_a_right_that_ends_soon_is_warned_of_unless_another_goes_on(plant: Made) -> None:
    owner = plant.directory / "owner"
    revoke(plant.overlay_path, owner, "g1", [("plant/#", Right.READ)], NOW, False)
    found = Member(plant, "g1").rights()
    assert [level for level, _ in found] == ["warning"]
    assert "the right to read plant/# ends at" in found[0][1]
    grant(plant.overlay_path, owner, "g1", [("plant/#", Right.READ)], NOW, False)
    assert Member(plant, "g1").rights() == []


def test_a_right_that_ended_is_not_said_to_end(plant: Made) -> None:
    revoke(plant.overlay_path, plant.directory / "owner", "g1", [("plant/#", Right.READ)], NOW, False)
    member = Member(plant, "g1")
    assert not any("ends at" in text for _, text in member.rights(NOW + 400 * DAY_S))


def test_what_we_send_and_may_not_is_an_error(plant: Made) -> None:
    before = Member(plant, "g1")
    secrets = load_secrets(before.local, before.overlay)[0]
    revoke(plant.overlay_path, plant.directory / "owner", "g1", [("plant/#", Right.PUBLISH)], NOW, True)
    after = Member(plant, "g1")
    epoch = after.overlay.policy.calendar.epoch_at(NOW)
    assert not after.overlay.may_publish_in("g1", secrets[0].scope, epoch)
    found = told(check_rights("g1", after.overlay, secrets, secrets, NOW))
    assert ("error", "plant/#: we have no right to publish there; ask the owner for the right, or remove it here") in (
        found
    )
