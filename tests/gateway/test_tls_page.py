"""docs/how-to/tls.md, run as it stands: commands, listeners and clients, on this host and free ports."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import forking
from tests.gateway.overlay_processes import ENVIRONMENT, VEILMQ, run_veilmq
from tests.ports import free_ports
from tests.waits import wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "tls.md").read_text("utf-8")
COMMANDS = [line[4:] for line in PAGE.splitlines() if re.match(r"    (veilmq|mosquitto_pub) ", line)]
LISTENERS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
WAIT_S = 30.0


@contextmanager
def broker(directory: Path, content: str, port: int) -> Iterator[None]:
    (directory / "gateway.yaml").write_text(content)
    (directory / "gateway.yaml").chmod(0o600)
    log = directory / "log"
    process = forking.run([*VEILMQ, "-c", "gateway.yaml"], directory, ENVIRONMENT, log, log)
    try:
        assert wait_until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0, WAIT_S)
        yield
    finally:
        process.terminate()
        process.wait(WAIT_S)


def run(command: str, directory: Path, **ports: int) -> str:
    """Runs a command of the page; returns what it prints."""
    here = command.replace("broker.example", "127.0.0.1").replace("8883", str(ports.get("tls", 8883)))
    words = shlex.split(here)
    if words[0] == "veilmq":
        done = run_veilmq(*words[1:], cwd=directory)
    else:
        done = subprocess.run(words, cwd=directory, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="no mosquitto-clients here; make tools")
def test_the_page_as_written(tmp_path: Path) -> None:
    tls, here = free_ports(2)
    run("veilmq trust init owner --domain plant", tmp_path)
    run("veilmq passwd -b passwords pump-7 secret", tmp_path)
    issued = [command for command in COMMANDS if " trust issue " in command]
    sent = [command for command in COMMANDS if command.startswith("mosquitto_pub")]
    ours = [command for command in COMMANDS if " pub " in command]
    (tmp_path / "secret").write_text("secret\n")
    (tmp_path / "secret").chmod(0o600)
    (renewal,) = [command for command in COMMANDS if " trust renew " in command]
    (check,) = [command for command in COMMANDS if " check " in command]
    assert (len(issued), len(sent), len(ours), len(LISTENERS)) == (2, 2, 2, 2)
    for command in issued:
        run(command, tmp_path)
    ports = {"8883": str(tls), "1883": str(here)}
    plain, strict = (re.sub("8883|1883", lambda found: ports[found[0]], each) for each in LISTENERS)
    (tmp_path / "gateway.yaml").write_text(plain)
    run(check, tmp_path)
    with broker(tmp_path, plain, tls):
        run(sent[0], tmp_path, tls=tls)
        run(ours[0], tmp_path, tls=tls)
    rest = plain[plain.index("allow_anonymous") :]
    with broker(tmp_path, strict + rest, tls):
        run(sent[1], tmp_path, tls=tls)
        run(ours[1], tmp_path, tls=tls)
        with pytest.raises(AssertionError):
            run(sent[0], tmp_path, tls=tls)
    assert "nothing to do" in run(renewal, tmp_path)
