"""The organiser's files and links: what it refuses to start with, and that a number is on disk before it is said."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.contract import LinkUp, Received, Tick, Wire
from bridge.measuring import SUMMARY_TOPIC
from bridge.membership import SWAPS_TOPIC
from bridge.organiser import HIGHEST
from gateway.files import PrivateFileError, write_private
from gateway.overlay.organiser import NUMBER_FILE, Organiser
from gateway.setup.backing_up import back_up, restore
from gateway.trust import RESTORED, TrustError
from tests.gateway.commands.test_organising import signed_words
from tests.gateway.overlay_processes import OverlayProcesses
from tests.gateway.test_organiser_live import ROW, add_boss


@pytest.fixture
def made(tmp_path: Path) -> OverlayProcesses:
    overlay = OverlayProcesses(tmp_path)
    overlay.make(dict.fromkeys(ROW, 1), [ROW[:2], ROW[1:]], {"site": "north", "control": "south"}, trusted=ROW)
    add_boss(overlay, "middle", {"links": [["north", "south"]], "interval_s": 60, "dwell_s": 600})
    return overlay


def organiser(made: OverlayProcesses, name: str = "boss", signs: bool = True) -> Organiser:
    return Organiser(made.directory / name, made.directory / "boss-overlay.json", signs)


class Dialled(dict[str, Any]):
    """Clients that only note what they were given to send, and what was on disk then."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.sent: list[tuple[str, str]] = []
        self["middle1"] = SimpleNamespace(
            publish=lambda topic, *rest: self.sent.append((topic, file.read_text() if file.exists() else "")),
        )


async def signed(made: OverlayProcesses, client: Organiser) -> list[tuple[str, str]]:
    """What it says once it heard what spares."""
    dialled = Dialled(made.directory / "boss" / NUMBER_FILE)
    client._dials = dialled  # type: ignore[assignment]
    client._driver.handle(LinkUp("middle1"))
    for said in signed_words(made):
        client._driver.handle(Received("middle1", Wire(SUMMARY_TOPIC, said.encode())))
    client._driver._dials = SimpleNamespace(adopt_peers=lambda peers: None)  # type: ignore[assignment]
    client._driver.handle(Tick())
    return [sent for sent in dialled.sent if sent[0] == SWAPS_TOPIC]


def test_an_organiser_from_a_backup_gives_no_number_until_it_has_another_key(made: OverlayProcesses) -> None:
    """Attack: a backup of before it signed, restored after; a number given twice would be evidence against it."""
    folder = made.directory / "boss"
    back_up(folder, made.directory / "boss.tar.gz")
    assert asyncio.run(signed(made, organiser(made)))
    shutil.rmtree(folder)
    restore(made.directory / "boss.tar.gz", folder)
    with pytest.raises(TrustError, match=r"comes from a backup.*; give boss another key"):
        organiser(made)
    organiser(made, signs=False)  # proposals may be looked at
    other = (folder / RESTORED).read_bytes().replace(b"a", b"b").replace(b"1", b"2")
    write_private(folder / NUMBER_FILE, b"1\n")
    (folder / RESTORED).write_bytes(other)  # as after a rotation: the key that came back is not the present one
    organiser(made)


def test_an_organiser_that_lost_its_number_gives_none_while_a_swap_of_it_is_known(made: OverlayProcesses) -> None:
    """Attack: a disk is lost; a second swap of a number that was given would be evidence."""
    assert asyncio.run(signed(made, organiser(made)))
    (made.directory / "boss" / NUMBER_FILE).unlink()
    with pytest.raises(TrustError, match="is lost, and boss signed swaps"):
        organiser(made)


def test_the_number_is_on_disk_before_anybody_hears_of_it(made: OverlayProcesses) -> None:
    assert asyncio.run(signed(made, organiser(made))) == [(SWAPS_TOPIC, "1\n")]
    file = made.directory / "boss" / NUMBER_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    again = organiser(made)
    assert again.node.open_swap is not None, "it is in its overlay file, too"
    made.hand_out("boss")
    forgetful = organiser(made)
    assert forgetful.node.open_swap is None
    assert asyncio.run(signed(made, forgetful)) == [(SWAPS_TOPIC, "2\n")], "a number is never given twice"


def test_what_cannot_be_kept_is_not_said(made: OverlayProcesses, monkeypatch: pytest.MonkeyPatch) -> None:
    client = organiser(made)

    def full(*_: object, **__: object) -> None:
        raise PrivateFileError("no space left")

    monkeypatch.setattr("gateway.overlay.organiser.write_private", full)
    with pytest.raises(PrivateFileError):
        asyncio.run(signed(made, client))
    with pytest.raises(AssertionError):
        client.keep_rows([(b"other", b"")])
    with pytest.raises(AssertionError):
        client.keys_changed()
    assert HIGHEST


def test_who_is_no_organiser_is_told_in_one_line(made: OverlayProcesses) -> None:
    with pytest.raises(TrustError, match="take the identity of a gateway or an ingest job"):
        organiser(made, "north1")
    stranger = made.directory / "boss" / NUMBER_FILE
    stranger.write_text("many\n")
    stranger.chmod(0o600)
    with pytest.raises(TrustError, match="highest number"):
        organiser(made)
    stranger.unlink()
    assert (
        "site is not the organiser"
        in Organiser(made.directory / "site", made.directory / "site-overlay.json", True).node.standing()
    )


def test_it_links_with_the_replicas_of_its_region_alone(made: OverlayProcesses) -> None:
    client = organiser(made)
    assert client.peers_to_dial() == ["middle1"]
    assert client.errors == {}
    assert client.overlay.policy.organising is not None
