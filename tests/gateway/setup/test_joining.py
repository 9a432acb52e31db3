"""`veilmq join`: a folder whose keys stay, a card that is enough, and what is no address."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.owner.attaching import attach
from gateway.party import Party
from gateway.setup import Plan, SetupError, join, make_overlay
from keys.identity import Role

NOW = time.time()


def test_join_then_attach_with_the_card_alone(tmp_path: Path, veilmq: Any) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    status, out, err = veilmq("join", tmp_path / "r4", "--address", "127.0.0.1:29001")
    assert (status, err) == (0, "")
    assert "attach" in out
    sent = tmp_path / "sent.json"
    shutil.copy(tmp_path / "r4" / "identity" / "card.json", sent)
    attach(made.overlay, made.directory / "owner", "region1", sent, "127.0.0.1:29001", NOW)
    shutil.copy(made.overlay, tmp_path / "r4" / "overlay.json")
    assert Party(load(tmp_path / "r4" / "broker.yaml")).name == "r4"
    assert veilmq("join", tmp_path / "r4", "--address", "127.0.0.1:29001")[0] == 2


@pytest.mark.parametrize("address", ["nowhere", "a:b", "a:70000", ":1"])
def test_join_refuses_what_is_no_address(tmp_path: Path, address: str) -> None:
    with pytest.raises(SetupError, match="is no HOST:PORT"):
        join(tmp_path / "r4", Role.REPLICA, address, NOW)
    assert not (tmp_path / "r4").exists()
