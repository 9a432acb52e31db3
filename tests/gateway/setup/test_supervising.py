"""`veilmq up`: what crashes is started again, what was stopped is not, and nothing is left when it ends.

On one machine the newest overlay reaches every copy of it, and endorsements come back to the owner's.

`veilmq up` renews what would end: TLS certificates of its members, and the overlay's with the owner's consent.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cryptography import x509

from bridge.document import Overlay
from gateway.owner import sign_overlay
from gateway.owner.attaching import attach
from gateway.setup import Made, Plan, join, make_overlay, role_folders, supervising
from gateway.setup.plan import SetupError
from gateway.setup.supervising import LOOK_EVERY_S, CopiedFiles, Renewals, Supervisor, rotate
from gateway.trust import load_overlay
from keys.identity import Role
from tests.support.files import edited
from tests.waits import wait_until

DAY_S = 86_400


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return make_overlay(tmp_path / "site", Plan(), 21_000, NOW)


def stepped(made: Made, now: float) -> list[str]:
    said: list[str] = []
    renewals = Renewals(made.directory / "owner", made.overlay_path, said.append)
    renewals.renew_due(role_folders(made.directory), now)
    renewals.renew_due(role_folders(made.directory), now + 1)
    renewals.renew_due(role_folders(made.directory), now + LOOK_EVERY_S)
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
        overlay = load_overlay(made.overlay_path, int(now * 1000))
        assert min(m.certificate.not_after_ms for m in overlay.members.values()) > (now + 29 * DAY_S) * 1000
        for member in made.members:
            assert leaf_end(made, member.name) > now + 29 * DAY_S
    assert load_overlay(made.overlay_path, int(now * 1000)).policy.version > 8


def test_without_consent_the_overlay_is_left_alone_and_members_are_not(made: Made) -> None:
    description = made.directory / "overlay.yaml"
    with edited(description) as content:
        del content["renew_before_days"]
    sign_overlay(description, made.directory / "owner", made.overlay_path, NOW)
    before = made.overlay_path.read_bytes()
    said = stepped(made, NOW + 800 * DAY_S)
    assert made.overlay_path.read_bytes() == before
    assert sorted(line.split(" renewed")[0] for line in said) == [
        f"the TLS certificate of {name}" for name in ("g1", "g2", "r1", "r2", "r3")
    ]


def test_what_cannot_be_renewed_is_said_once_and_does_not_stop_the_rest(made: Made) -> None:
    (made.directory / "r1/domain/root.key").chmod(0o644)
    record = made.directory / "owner/overlays/overlay.json"
    record.write_text("{}")
    said: list[str] = []
    renewals = Renewals(made.directory / "owner", made.overlay_path, said.append)
    for hours in range(3):
        renewals.renew_due(role_folders(made.directory), NOW + 800 * DAY_S + hours * LOOK_EVERY_S)
    assert len([line for line in said if "not renewed" in line]) == 2
    assert any("overlays/overlay.json: is damaged" in line for line in said)
    assert any("r1" in line and "chmod 600" in line for line in said)
    assert leaf_end(made, "r2") > NOW + 1000 * DAY_S


NOW = time.time()


def test_the_newest_overlay_reaches_all_copies_and_one_of_another_owner_none(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    other = make_overlay(tmp_path / "other", Plan(), 22000, NOW)
    folders = [folder.overlay_path for folder in role_folders(made.directory)]
    join(made.directory / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    joined = made.directory / "r4" / "overlay.json"
    attach(made.overlay_path, made.directory / "owner", "region1", made.directory / "r4/identity/card.json",
           "127.0.0.1:29001", NOW)  # fmt: skip
    folders[0].write_bytes(other.overlay_path.read_bytes())  # put there by mistake, or by somebody who may write there
    CopiedFiles().exchange(made.overlay_path, [*folders, joined], int(NOW * 1000))
    now_ms = int(NOW * 1000)
    assert load_overlay(folders[0], now_ms).owner == load_overlay(other.overlay_path, now_ms).owner
    for path in [*folders[1:], joined, made.overlay_path]:
        assert load_overlay(path, now_ms).policy.version == 2


def test_what_a_member_adopted_comes_back_to_the_owner(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    before = made.overlay_path.read_bytes()
    join(tmp_path / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    attach(
        made.overlay_path,
        made.directory / "owner",
        "region1",
        tmp_path / "r4/identity/card.json",
        "127.0.0.1:29001",
        NOW,
    )
    folder = made.directory / "r1" / "overlay.json"
    folder.write_bytes(made.overlay_path.read_bytes())
    made.overlay_path.write_bytes(before)
    CopiedFiles().exchange(made.overlay_path, [folder], int(NOW * 1000))
    assert made.overlay_path.read_bytes() == folder.read_bytes()


def test_who_is_not_attached_yet_gets_nothing_that_it_could_not_start_with(tmp_path: Path) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    join(made.directory / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    joined, copies = made.directory / "r4" / "overlay.json", CopiedFiles()
    copies.exchange(made.overlay_path, [joined], int(NOW * 1000))
    assert not joined.exists()
    card = made.directory / "r4/identity/card.json"
    attach(made.overlay_path, made.directory / "owner", "region1", card, "127.0.0.1:29001", NOW)
    copies.exchange(made.overlay_path, [joined], int(NOW * 1000))
    assert joined.read_bytes() == made.overlay_path.read_bytes()


def test_what_the_owner_signs_while_copies_are_looked_at_is_not_overwritten_and_goes_to_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_overlay(tmp_path / "new", Plan(), 21000, NOW)
    before = made.overlay_path.read_bytes()
    folders = [folder.overlay_path for folder in role_folders(made.directory)]
    join(tmp_path / "r4", Role.REPLICA, "127.0.0.1:29001", NOW)
    card = tmp_path / "r4/identity/card.json"
    attach(made.overlay_path, made.directory / "owner", "region1", card, "127.0.0.1:29001", NOW)
    signed = made.overlay_path.read_bytes()
    made.overlay_path.write_bytes(before)
    folders[0].write_bytes(before)
    folders[1].write_bytes(before)
    copies = CopiedFiles()
    look = supervising.newest

    def slow_look(paths: Sequence[Path], now_ms: int) -> tuple[Path, Overlay] | None:
        found = look(paths, now_ms)
        monkeypatch.setattr(supervising, "newest", look)
        made.overlay_path.write_bytes(signed)
        return found

    monkeypatch.setattr(supervising, "newest", slow_look)
    now_ms = int(NOW * 1000)
    for _ in range(2):
        copies.exchange(made.overlay_path, folders, now_ms)
    assert {load_overlay(path, now_ms).policy.version for path in (made.overlay_path, *folders)} == {2}


@pytest.fixture
def member(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose process does what its configuration, a Python program here, says."""
    monkeypatch.setattr(supervising, "COMMAND", (sys.executable,))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "overlay.json").touch()
    return tmp_path / "m" / "broker.yaml"


@pytest.fixture
def supervisor(member: Path) -> Iterator[tuple[Supervisor, list[str]]]:
    said: list[str] = []
    made = Supervisor(member.parent.parent, said.append)
    yield made, said
    made.stop()


def ended(supervisor: Supervisor) -> bool:
    process = supervisor.children["m"].process
    return process is None or process.poll() is not None


SLEEP = "import time; time.sleep(600)"


def test_a_crash_is_followed_by_a_start_with_growing_pauses(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text(SLEEP)
    up.open()
    now = 0.0
    up.check_members(now)
    for pause_s in (1, 2, 4):
        pid = up.children["m"].pid
        assert pid is not None
        assert (member.parent / "pid").read_text().strip() == str(pid)
        os.kill(pid, signal.SIGKILL)
        assert wait_until(lambda: ended(up))
        up.check_members(now)
        assert up.children["m"].pid is None
        assert f"by signal 9, is started again in {pause_s} s" in said[-1]
        up.check_members(now + pause_s - 0.1)
        assert up.children["m"].pid is None
        now += pause_s
        up.check_members(now)
        assert up.children["m"].pid not in (None, pid)


def test_what_was_stopped_stays_stopped_until_its_folder_changes(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text("pass")
    up.open()
    up.check_members(0.0)
    assert wait_until(lambda: ended(up))
    up.check_members(1.0)
    up.check_members(1000.0)
    assert up.children["m"].pid is None
    assert "was stopped" in said[-1]
    member.write_text(SLEEP)
    os.utime(member, (1, 1))
    up.check_members(1001.0)
    assert up.children["m"].pid is not None


def test_what_an_operator_has_to_cure_is_said_and_not_tried_for_ever(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text("import sys; print('veilmq: the port is in use; stop what uses it'); sys.exit(2)")
    up.open()
    up.check_members(0.0)
    assert wait_until(lambda: ended(up))
    up.check_members(1.0)
    up.check_members(1000.0)
    assert said == ["m: the port is in use; stop what uses it"]
    assert up.children["m"].pid is None


def test_what_was_cured_while_it_started_is_tried_again(member: Path, supervisor: tuple[Supervisor, list[str]]) -> None:
    up, said = supervisor
    member.write_text("import sys; print('veilmq: m is no member'); sys.exit(2)")
    up.open()
    up.check_members(0.0)
    overlay = member.parent / "overlay.json"
    overlay.write_text("the next version")
    os.utime(overlay, (1, 1))
    assert wait_until(lambda: ended(up))
    up.check_members(1.0)
    assert said == ["m: m is no member"]
    assert up.children["m"].pid is not None, "it read the version of before"


def test_a_folder_that_appears_is_started_and_one_without_overlay_waits(
    member: Path, supervisor: tuple[Supervisor, list[str]]
) -> None:
    up, said = supervisor
    member.write_text(SLEEP)
    up.open()
    up.check_members(0.0)
    joined = member.parent.parent / "r4"
    (joined / "identity").mkdir(parents=True)
    (joined / "broker.yaml").write_text(SLEEP)
    up.check_members(1.0)
    up.check_members(2.0)
    assert len(said) == 1
    assert said[0].startswith("r4 waits for ")
    (joined / "overlay.json").touch()
    up.check_members(3.0)
    assert up.children["r4"].pid is not None


def test_nothing_is_left(member: Path, supervisor: tuple[Supervisor, list[str]]) -> None:
    up, _ = supervisor
    member.write_text(SLEEP)
    up.open()
    up.check_members(0.0)
    process = up.children["m"].process
    assert process is not None
    up.stop()
    assert process.poll() == -signal.SIGTERM
    assert not (member.parent / "pid").exists()


def test_a_directory_without_members_and_a_name_that_is_none(member: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="no such directory"):
        Supervisor(tmp_path / "absent", print).open()
    with pytest.raises(SetupError, match="holds no member"):
        Supervisor(tmp_path, print).open()
    member.write_text("pass")
    with pytest.raises(SetupError, match="x: no such member here; there are m"):
        Supervisor(tmp_path, print, frozenset({"x"})).open()


def test_a_large_log_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "m.log"
    rotate(path)
    path.write_bytes(bytes(supervising.LOG_BYTES_MAX + 1))
    rotate(path)
    assert not path.exists()
    assert (tmp_path / "m.log.1").stat().st_size > supervising.LOG_BYTES_MAX


def test_a_level_is_passed_on_to_every_member(member: Path) -> None:
    member.write_text("import sys; open('said', 'w').write(' '.join(sys.argv[1:])); sys.exit(0)")
    supervisor = Supervisor(member.parent.parent, lambda line: None, log_level="debug")
    supervisor.open()
    try:
        supervisor.check_members(0.0)
        assert wait_until(lambda: (member.parent / "said").exists() and (member.parent / "said").read_text() != "")
    finally:
        supervisor.stop()
    assert (member.parent / "said").read_text() == "--log-level debug"
