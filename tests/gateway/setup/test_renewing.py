"""`veilmq up` renews what would end: TLS certificates of its members, and the overlay's with the owner's consent."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from cryptography import x509

from gateway.owner import sign_overlay
from gateway.setup import Made, Plan, make_overlay, role_folders
from gateway.setup.renewing import LOOK_EVERY_S, Renewals
from gateway.trust import load_overlay
from tests.support.files import edited

NOW = time.time()
DAY_S = 86_400


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_overlay(tmp_path / "site", Plan(), 21_000, NOW)


def stepped(made: Made, now: float) -> list[str]:
    said: list[str] = []
    renewals = Renewals(made.directory / "owner", made.overlay, said.append)
    renewals.step(role_folders(made.directory), now)
    renewals.step(role_folders(made.directory), now + 1)
    renewals.step(role_folders(made.directory), now + LOOK_EVERY_S)
    return said


def leaf_end(made: Made, name: str) -> float:
    pem = (made.directory / name / "identity/cert.pem").read_bytes()
    return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()


@pytest.mark.long
def test_years_pass_and_nothing_ends(made: Made) -> None:
    assert stepped(made, NOW) == []
    now, last = NOW, NOW + 8 * 365 * DAY_S
    while now < last:
        now += 30 * DAY_S
        stepped(made, now)
        overlay = load_overlay(made.overlay, int(now * 1000))
        assert min(m.certificate.not_after_ms for m in overlay.members.values()) > (now + 29 * DAY_S) * 1000
        for member in made.members:
            assert leaf_end(made, member.name) > now + 29 * DAY_S
    assert load_overlay(made.overlay, int(now * 1000)).policy.version > 8


def test_without_consent_the_overlay_is_left_alone_and_members_are_not(made: Made) -> None:
    description = made.directory / "overlay.yaml"
    with edited(description) as content:
        del content["renew_before_days"]
    sign_overlay(description, made.directory / "owner", made.overlay, NOW)
    before = made.overlay.read_bytes()
    said = stepped(made, NOW + 800 * DAY_S)
    assert made.overlay.read_bytes() == before
    assert sorted(line.split(" renewed")[0] for line in said) == [
        f"the TLS certificate of {name}" for name in ("g1", "g2", "r1", "r2", "r3")
    ]


def test_what_cannot_be_renewed_is_said_once_and_does_not_stop_the_rest(made: Made) -> None:
    (made.directory / "r1/domain/root.key").chmod(0o644)
    record = made.directory / "owner/overlays/overlay.json"
    record.write_text("{}")
    said: list[str] = []
    renewals = Renewals(made.directory / "owner", made.overlay, said.append)
    for hours in range(3):
        renewals.step(role_folders(made.directory), NOW + 800 * DAY_S + hours * LOOK_EVERY_S)
    assert len([line for line in said if "not renewed" in line]) == 2
    assert any("overlays/overlay.json: is damaged" in line for line in said)
    assert any("r1" in line and "chmod 600" in line for line in said)
    assert leaf_end(made, "r2") > NOW + 1000 * DAY_S
