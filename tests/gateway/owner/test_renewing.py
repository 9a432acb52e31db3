"""Certificates are renewed in time, by a timer that mostly does nothing, and nothing else changes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from gateway.owner.renewing import renew
from gateway.setup import Plan, make_overlay
from gateway.trust import TrustError, load_overlay

NOW = time.time()
DAY_S = 86_400


def test_only_when_it_is_due_and_with_the_same_keys_and_rights(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "site", Plan(key_servers=4), 21000, NOW)
    owner = made.directory / "owner"
    before = load_overlay(made.overlay, int(NOW * 1000))
    assert renew(made.overlay, owner, NOW).overlay is None
    assert renew(made.overlay, owner, NOW + 300 * DAY_S).overlay is None
    later = NOW + 306 * DAY_S
    done = renew(made.overlay, owner, later)
    assert done.overlay is not None
    after = load_overlay(made.overlay, int((later + 364 * DAY_S) * 1000))
    assert after.policy.version == before.policy.version + 1
    assert set(after.members) == set(before.members)
    for name, member in after.members.items():
        was = before.members[name].certificate
        assert (member.certificate.public_key, member.certificate.region) == (was.public_key, was.region)
        assert member.certificate.not_after_ms == int(later * 1000) + 365 * DAY_S * 1000
    assert after.policy.grants == before.policy.grants
    assert after.latest == before.latest
    assert renew(made.overlay, owner, later + 1).overlay is None


def test_what_would_renew_for_ever_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TrustError, match="renew for ever"):
        renew(tmp_path / "overlay.json", tmp_path, NOW, valid_days=30, before_days=60)
