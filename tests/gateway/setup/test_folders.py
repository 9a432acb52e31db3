"""Members' folders: which there are, in which order they start, and which can be started."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.setup.folders import RoleFolder, role_folders


def folder(directory: Path, name: str, *files: str) -> RoleFolder:
    for file in files:
        path = directory / name / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return RoleFolder(directory / name)


def test_gateways_start_last_and_what_holds_no_member_is_passed_over(tmp_path: Path) -> None:
    for name in ("g1", "r2", "k1", "r1"):
        folder(tmp_path, name, "broker.yaml")
    folder(tmp_path, "owner", "ca.pem")
    folder(tmp_path, "logs", "r1.log")
    (tmp_path / "overlay.json").touch()
    assert [each.name for each in role_folders(tmp_path)] == ["k1", "r1", "r2", "g1"]


@pytest.mark.parametrize(
    ("files", "ready"),
    [
        (["broker.yaml"], True),  # a plain broker
        (["broker.yaml", "identity/key.pem"], False),  # has joined, and waits for the owner
        (["broker.yaml", "identity/key.pem", "overlay.json"], True),
        (["identity/key.pem", "overlay.json"], False),
    ],
)
def test_a_member_waits_for_the_signed_overlay(tmp_path: Path, files: list[str], ready: bool) -> None:
    assert folder(tmp_path, "m", *files).is_ready is ready
