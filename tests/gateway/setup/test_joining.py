"""`veilmq join`, then `overlay attach` with the card alone: replicas and gateways; no private key travels."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.party import Party
from gateway.setup import Made, Plan, SetupError, join, make_overlay
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


def test_a_replica_joins_with_its_card_alone(made: Made, tmp_path: Path, veilmq: Any) -> None:
    status, out, err = veilmq("join", tmp_path / "r4", "--address", "127.0.0.1:29001")
    assert (status, err) == (0, "")
    assert "--address 127.0.0.1:29001" in out
    attach = ("overlay", "attach", made.overlay_path, "--owner", made.directory / "owner", "--region", "region1",
              "--card", sent(tmp_path / "r4"))  # fmt: skip
    assert "say by --address HOST:PORT" in veilmq(*attach)[2]
    assert "publishes and reads nothing" in veilmq(*attach, "--address", "127.0.0.1:29001", "--read", "plant/#")[2]
    status, out, err = veilmq(*attach, "--address", "127.0.0.1:29001")
    assert (status, err) == (0, "")
    assert "overlay.yaml lists it in region region1" in out
    shutil.copy(made.overlay_path, tmp_path / "r4" / "overlay.json")
    assert Party(load(tmp_path / "r4" / "broker.yaml")).name == "r4"
    assert veilmq("join", tmp_path / "r4", "--address", "127.0.0.1:29001")[0] == 2


def test_members_that_join_side_by_side_have_ports_of_their_own(tmp_path: Path, veilmq: Any) -> None:
    """Neither runs yet, so that the system would give both the one port that is free."""
    for name, port in (("r4", 29_001), ("r5", 29_001 - 1)):
        assert veilmq("join", tmp_path / name, "--address", f"127.0.0.1:{port}")[0] == 0
    (tmp_path / "r6").mkdir()
    (tmp_path / "r6" / "broker.yaml").write_bytes(b"\xff")
    assert veilmq("join", tmp_path / "r7", "--address", "127.0.0.1:29000")[0] == 0
    metrics = [load(tmp_path / name / "broker.yaml").metrics for name in ("r4", "r5", "r7")]
    assert len({each.bind for each in metrics if each is not None}) == 3


def test_a_gateway_that_others_reach_lets_nobody_in_without_a_login(tmp_path: Path, veilmq: Any) -> None:
    status, out, _ = veilmq("join", tmp_path / "g3", "--role", "gateway", "--address", "g3.example.net:1883")
    assert status == 0
    assert f"veilmq passwd {tmp_path / 'g3' / 'passwords'} USER" in out
    settings = load(tmp_path / "g3" / "broker.yaml")
    assert settings.allow_anonymous is not True
    assert settings.listeners["default"].bind == "0.0.0.0:1883"
    assert (tmp_path / "g3" / "passwords").stat().st_mode & 0o077 == 0
    init = make_overlay(tmp_path / "site", Plan(addresses={"g1": "g1.example.net:1883"}), 21000, NOW)
    assert (init.directory / "g1" / "passwords").exists()
    assert not (init.directory / "g2" / "passwords").exists()
    assert load(init.directory / "g1" / "broker.yaml").allow_anonymous is not True
    assert load(init.directory / "g2" / "broker.yaml").allow_anonymous is True


@pytest.mark.parametrize("address", ["", "nowhere", "a:b", "a:70000", ":1"])
def test_join_refuses_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(SetupError, match="is no HOST:PORT"):
        join(tmp_path / "r4", Role.REPLICA, address, NOW)
    assert not (tmp_path / "r4").exists()


def test_a_replica_seals_nothing(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="--protect is for gateways"):
        join(tmp_path / "r4", Role.REPLICA, "127.0.0.1:29001", NOW, protect=("a/#",))
