"""What a new operator does in the first minutes, as `docs/how-to/first-minutes.md` tells it.

The commands of the page itself are run (`tests/first_minutes.py`): from nothing to an overlay that lost a replica, shut
out a reader and took in two replicas. Then a `mosquitto.conf` with logins, rights and kept messages is served to
Mosquitto's own clients unchanged.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import forking
from tests.first_minutes import COMMANDS_MAX, PAGE, commands, walking
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, run_veilmq
from tests.ports import free_ports

NEEDS_MOSQUITTO = pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="no mosquitto here; make tools")


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_page_as_it_stands(tmp_path: Path) -> None:
    page = PAGE.read_text("utf-8")
    assert len(commands(page)) <= COMMANDS_MAX
    with walking(tmp_path) as walk:
        rows = walk.run(page)
        # A third gateway joins, with its card alone, and reads what the second may not any more.
        (port,) = free_ports(1)
        walk.do(f"veilmq join site/g3 --role gateway --address 127.0.0.1:{port} --protect 'plant/#'")
        walk.do(
            "veilmq overlay attach site/overlay.json --owner site/owner --region region1 "
            "--card site/g3/identity/card.json --publish 'plant/#' --read 'plant/#'"
        )
        walk.until((tmp_path / "site/g3/pid").exists, "the gateway that joined was never started")
        walk.until(lambda: walk.listens("g3"), "the gateway that joined does not listen")
        walk.do(f"veilmq sub -p {walk.port('g3')} 'plant/#' &")
        walk.until(lambda: walk.reads(f"at-g3-{time.time()}"), "who joined reads nothing")
    assert [command for command, _ in rows] == [c for c in commands(page) if not c.startswith("pip ")]
    assert not list((tmp_path / "site").glob("*/pid")), "something is left"
    for command, seconds in rows:
        print(f"{seconds:6.1f} s  {command}")


@NEEDS_MOSQUITTO
def test_a_mosquitto_with_logins_rights_and_kept_messages_is_taken_over(tmp_path: Path) -> None:
    port, ws = free_ports(2)
    (tmp_path / "mosquitto.conf").write_text(
        f"listener {port} 127.0.0.1\nlistener {ws} 127.0.0.1\nprotocol websockets\nuser root\n"
        f"allow_anonymous false\npassword_file {tmp_path}/pw\nacl_file {tmp_path}/acl\n"
        f"persistence true\npersistence_location {tmp_path}/\n"
    )
    (tmp_path / "acl").write_text("user ann\ntopic readwrite plant/#\nuser bob\ntopic read plant/public/#\n")
    for user in ("ann", "bob"):
        subprocess.run(["mosquitto_passwd", *(() if user == "bob" else ("-c",)), "-b", tmp_path / "pw", user, "pw1"],
                       check=True, timeout=20)  # fmt: skip

    def client(kind: str, *arguments: str, status: int | None = 0) -> str:
        command = [f"mosquitto_{kind}", "-p", str(port), *arguments]
        for _ in range(100):
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
            if "Connection refused" not in done.stderr:  # nobody listens yet; CONNACK's refusal is spelt otherwise
                assert status is None or done.returncode == status, done.stderr
                return done.stdout
            time.sleep(0.2)
        raise AssertionError(done.stderr)

    ann = ("-u", "ann", "-P", "pw1", "-q", "1")
    theirs = subprocess.Popen(["mosquitto", "-c", tmp_path / "mosquitto.conf"], stderr=subprocess.DEVNULL)
    try:
        client("sub", *ann, "-i", "keeper", "-c", "-t", "plant/+/temp", "-E")
        client("pub", *ann, "-t", "plant/1/temp", "-m", "while away")
        client("pub", *ann, "-t", "plant/public/sign", "-m", "kept", "-r")
    finally:
        theirs.terminate()
        theirs.wait(20)
    imported = run_veilmq("import", str(tmp_path / "mosquitto.conf"), "-o", str(tmp_path / "new"))
    assert imported.returncode == 0, imported.stderr
    assert "1 retained messages, 1 sessions with 1 subscriptions and 1 queued messages" in imported.stdout
    log = tmp_path / "ours.log"
    ours = forking.run([*VEILMQ, "-c", str(tmp_path / "new/broker.yaml")], None, ENVIRONMENT, log, log)
    try:
        assert client("sub", *ann, "-i", "keeper", "-c", "-t", "plant/+/temp", "-C", "1", "-W", "20") == "while away\n"
        assert client("sub", "-u", "bob", "-P", "pw1", "-t", "plant/public/#", "-C", "1", "-W", "20") == "kept\n"
        client("sub", "-u", "bob", "-P", "wrong", "-t", "plant/public/#", "-C", "1", "-W", "5", status=None)
        client("pub", "-u", "bob", "-P", "pw1", "-q", "1", "-r", "-t", "plant/public/sign", "-m", "forged")
        assert client("sub", *ann, "-t", "plant/public/#", "-C", "1", "-W", "20") == "kept\n"
    finally:
        ours.terminate()
        ours.wait(30)
