"""`veilmq overlay attach` and `detach` of a gateway with its card alone; what is said, listed and waited for."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.owner import sign_overlay
from gateway.party import Party
from gateway.setup import Made, Plan, join, make_overlay
from gateway.trust import load_overlay
from keys.identity import Role

NOW = time.time()


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_overlay(tmp_path / "owners", Plan(), 21000, NOW)


def sent(folder: Path) -> Path:
    """The card, as it comes to the owner: nothing else of the folder does."""
    path = folder.parent / f"{folder.name}-card.json"
    shutil.copy(folder / "identity" / "card.json", path)
    assert b"PRIVATE" not in path.read_bytes()
    return path


def test_a_gateway_joins_with_its_card_alone_and_leaves(made: Made, tmp_path: Path, veilmq: Any) -> None:
    status, out, err = veilmq("join", tmp_path / "g3", "--role", "gateway", "--protect", "plant/#")
    assert (status, err) == (0, "")
    assert "--publish 'plant/#' --read 'plant/#'" in out
    attach = ("overlay", "attach", made.overlay_path, "--owner", made.directory / "owner", "--region", "region1",
              "--card", sent(tmp_path / "g3"), "--publish", "plant/#", "--read", "plant/#")  # fmt: skip
    assert "which nobody in the overlay dials" in veilmq(*attach, "--address", "127.0.0.1:1")[2]
    assert "would be in" in veilmq(*attach, "--dry-run")[1]
    status, out, err = veilmq(*attach)
    assert (status, err) == (0, "")
    assert "overlay.yaml lists it" in out
    shutil.copy(made.overlay_path, tmp_path / "g3" / "overlay.json")
    party = Party(load(tmp_path / "g3" / "broker.yaml"))
    assert [one.clear_filter for one in party.outgoing] == ["plant/#"]
    assert party.settings.listeners["default"].bind == "127.0.0.1:1883"

    # What the owner signs next still knows it, since the description follows.
    signed = sign_overlay(made.directory / "overlay.yaml", made.directory / "owner", made.overlay_path, NOW).overlay
    assert "g3" in signed.members
    detach = ("overlay", "detach", made.overlay_path, "--owner", made.directory / "owner", "--member", "g3")
    status, out, err = veilmq(*detach)
    assert (status, err) == (0, "")
    assert "new keys for plant/#" in out
    assert "g3" not in load_overlay(made.overlay_path, int(time.time() * 1000)).members


def test_who_joins_without_rights_is_told_how_to_get_some(made: Made, tmp_path: Path, veilmq: Any) -> None:
    join(tmp_path / "g3", Role.GATEWAY, "", NOW)
    (made.directory / "overlay.yaml").unlink()
    status, out, _ = veilmq(
        "overlay", "attach", made.overlay_path, "--owner", made.directory / "owner", "--region", "region1",
        "--card", sent(tmp_path / "g3"),
    )  # fmt: skip
    assert status == 0
    assert "may publish and read nothing yet" in out
    assert "add to members in the description: {card:" in out


@pytest.mark.long
def test_a_change_waits_for_the_one_before_and_says_so(made: Made, tmp_path: Path, veilmq: Any) -> None:
    for name, port in (("r4", 29001), ("r5", 29002)):
        join(tmp_path / name, Role.REPLICA, f"127.0.0.1:{port}", NOW)
    owner = ("--owner", made.directory / "owner", "--region", "region1")
    first = ("overlay", "attach", made.overlay_path, *owner, "--card", tmp_path / "r4/identity/card.json")
    second = ("overlay", "attach", made.overlay_path, *owner, "--card", tmp_path / "r5/identity/card.json")
    assert veilmq(*first, "--address", "127.0.0.1:29001", "--grace", "1")[0] == 0
    status, out, err = veilmq(*second, "--address", "127.0.0.1:29002", "--wait", "2")
    assert status == 2
    assert out.count("waiting: region region1 changed just now") == 1
    assert "has 0 of 2 endorsements here" in err, "the time passed, and nobody endorsed"
    status, out, _ = veilmq(*second, "--address", "127.0.0.1:29002", "--wait", "0")
    assert (status, out) == (2, "")
