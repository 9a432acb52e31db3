"""Certificates are renewed in time, by a timer that mostly does nothing, and nothing else changes."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import yaml

from gateway.owner import sign_overlay
from gateway.owner.renewing import consented, renew
from gateway.setup import Plan, make_overlay
from gateway.trust import TrustError, load_overlay

NOW = time.time()
DAY_S = 86_400


def test_only_when_it_is_due_and_with_the_same_keys_and_rights(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "site", Plan(key_servers=4), 21000, NOW)
    owner = made.directory / "owner"
    before = load_overlay(made.overlay_path, int(NOW * 1000))
    assert renew(made.overlay_path, owner, NOW).overlay is None
    assert renew(made.overlay_path, owner, NOW + 300 * DAY_S).overlay is None
    later = NOW + 306 * DAY_S
    done = renew(made.overlay_path, owner, later)
    assert done.overlay is not None
    after = load_overlay(made.overlay_path, int((later + 364 * DAY_S) * 1000))
    assert after.policy.version == before.policy.version + 1
    assert set(after.members) == set(before.members)
    for name, member in after.members.items():
        was = before.members[name].certificate
        assert (member.certificate.public_key, member.certificate.region) == (was.public_key, was.region)
        assert member.certificate.not_after_ms == int(later * 1000) + 365 * DAY_S * 1000
    assert after.policy.grants == before.policy.grants
    assert after.latest == before.latest
    assert renew(made.overlay_path, owner, later + 1).overlay is None


def test_what_would_renew_for_ever_is_refused(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "site", Plan(), 21000, NOW)
    with pytest.raises(TrustError, match="renew for ever"):
        renew(made.overlay_path, made.directory / "owner", NOW, valid_days=30, before_days=60)


def test_how_long_and_how_soon_is_what_the_description_said_when_it_was_signed(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "site", Plan(), 21000, NOW)
    owner, description = made.directory / "owner", made.directory / "overlay.yaml"
    assert consented(made.overlay_path, owner)
    content = yaml.safe_load(description.read_text())

    def sign(**changes: int | None) -> None:
        description.write_text(yaml.safe_dump(content | changes))
        sign_overlay(description, owner, made.overlay_path, NOW)

    sign(valid_days=90, renew_before_days=30)
    assert renew(made.overlay_path, owner, NOW + 59 * DAY_S).overlay is None
    assert renew(made.overlay_path, owner, NOW + 61 * DAY_S).first_end_s == pytest.approx(NOW + 151 * DAY_S, abs=1)
    sign(renew_before_days=None)
    assert not consented(made.overlay_path, owner)
    with pytest.raises(TrustError, match="renew_before_days 365 is not below valid_days 365"):
        sign(renew_before_days=365)


def test_a_record_of_before_there_was_renewal_is_read(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "site", Plan(), 21000, NOW)
    path = made.directory / "owner/overlays/overlay.json"
    content = json.loads(path.read_text())
    del content["renewal"]
    path.write_text(json.dumps(content))
    assert not consented(made.overlay_path, made.directory / "owner")
    assert renew(made.overlay_path, made.directory / "owner", NOW).overlay is None
