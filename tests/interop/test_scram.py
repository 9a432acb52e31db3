"""A client of others logs in with SCRAM-SHA-256: MQTT.js, its mechanism by node's own cryptography."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.scram_plugin import set_user
from tests.conftest import ROOT, tool


@pytest.mark.tools
@pytest.mark.parametrize(
    ("user", "password", "seen"),
    [
        ("nurse", "pencil", {"in": True, "code": 0, "mutual": True}),
        ("nurse", "pencli", {"in": False, "code": 0x87}),
        ("nobody", "pencil", {"in": False, "code": 0x87}),
    ],
)
def test_mqtt_js_logs_in_with_scram(
    threaded_broker: Callable[..., Any], tmp_path: Path, user: str, password: str, seen: Any
) -> None:
    node = tool("node")
    assert node is not None
    set_user(tmp_path / "scram.yaml", "nurse", "pencil")
    plugins = {"gateway.scram_plugin.ScramPlugin": {"users_file": str(tmp_path / "scram.yaml")}}
    port = threaded_broker({"plugins": plugins, "allow_anonymous": False}).port()
    script = Path(__file__).with_name("scram.cjs")
    done = subprocess.run(
        [node, str(script), str(port), user, password],
        cwd=ROOT / ".tools",
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == seen
