"""`veilmq init`: what is made, that each folder stands alone, and what is refused in one line."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from gateway.base import load
from gateway.party import Party
from gateway.setup import Plan, make_overlay, role_folders
from gateway.setup.initialising import first_free
from gateway.trust import load_overlay
from tests.ports import free_ports

NOW = time.time()


def test_two_regions_and_a_key_service(tmp_path: Path, veilmq: Any) -> None:
    status, out, err = veilmq(
        "init", tmp_path / "new", "--regions", "2", "--key-servers", "4", "--gateways", "3", "--protect", "a/#",
        "--protect", "b/+/c", "--port", "21000",
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert "veilmq up" in out
    overlay = load_overlay(tmp_path / "new" / "overlay.json", int(NOW * 1000))
    assert sorted(overlay.members) == sorted(
        ["r1", "r2", "r3", "r4", "r5", "r6", "k1", "k2", "k3", "k4", "g1", "g2", "g3"]
    )
    assert len({member.certificate.domain for member in overlay.members.values()}) == 13
    assert {view.name: view.members for view in overlay.latest.values()} == {
        "region1": ("r1", "r2", "r3"), "region2": ("r4", "r5", "r6"),
    }  # fmt: skip
    for name in ("k1", "k4"):
        assert (tmp_path / "new" / name / "material").stat().st_mode & 0o077 == 0


def test_a_folder_stands_alone(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    for folder in role_folders(made.directory):
        elsewhere = tmp_path / "host" / folder.name
        shutil.copytree(folder.path, elsewhere)
    shutil.rmtree(made.directory)
    for folder in role_folders(tmp_path / "host"):
        party = Party(load(folder.config))  # loads and checks everything that a start would
        assert party.name == folder.name
        assert folder.path in party.where.identity.parents


def test_no_two_members_bind_the_same_port(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(regions=2, gateways=3), 21000, NOW)
    binds = [bind for member in made.members for bind in (member.bind, member.metrics)]
    assert len(set(binds)) == len(binds)


def test_a_port_is_free_again_once_its_server_ended() -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)) as server:
        assert first_free(port, ()) != port
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()  # who closes first keeps the connection in TIME_WAIT
            assert client.recv(1) == b""
    assert first_free(port, ()) == port


def test_a_first_port_in_use_is_told(tmp_path: Path, veilmq: Any) -> None:
    (port,) = free_ports(1)
    with socket.create_server(("127.0.0.1", port)):
        status, out, _ = veilmq("init", tmp_path / "new", "--port", port)
    made = load(tmp_path / "new" / "g1" / "broker.yaml").listeners["default"].bind
    assert status == 0
    assert f"port {port} is in use, so g1 listens on {made}" in out


def test_a_member_may_be_elsewhere(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(addresses={"r2": "r2.example.net:8883"}), 21000, NOW)
    overlay = load_overlay(made.overlay_path, int(NOW * 1000))
    assert overlay.members["r2"].address == "r2.example.net:8883"
    assert load(made.directory / "r2" / "broker.yaml").listeners["default"].bind == "0.0.0.0:8883"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--replicas", "2"], "cannot share a secret"),
        (["--key-servers", "3"], "bear no liar"),
        (["--gateways", "0"], "at least one"),
        (["--gateways", "1000"], "more than 200"),
        (["--address", "r9=a:1"], "there is no r9"),
        (["--address", "r1"], "write NAME=HOST:PORT"),
        (["--address", "r1=nowhere"], "is no HOST:PORT"),
        (["--protect", "a/#/b"], "'#' "),
    ],
)
def test_what_no_overlay_can_be_is_one_line(tmp_path: Path, veilmq: Any, options: list[str], said: str) -> None:
    status, _, err = veilmq("init", tmp_path / "new", *options)
    assert status == 2
    assert said in err
    assert err.count("\n") == 1


def test_nothing_is_overwritten(tmp_path: Path, veilmq: Any) -> None:
    (tmp_path / "mine").write_text("precious")
    status, _, err = veilmq("init", tmp_path)
    assert status == 2
    assert "holds something already" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
