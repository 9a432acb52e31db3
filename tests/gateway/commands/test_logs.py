"""`veilmq log trace`: one message through gateway, replicas and reader as processes; mistakes are one line."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.overlay_processes import ENVIRONMENT, OverlayProcesses
from tests.support.processes import ending
from tests.waits import wait_until

MEMBERS = ("north1", "north2", "north3", "site", "control")


overlay = ending(lambda made: made.make({"north": 3}, [], {"site": "north", "control": "north"}))


def test_a_message_is_followed_through_every_member_that_may_know_of_it(overlay: OverlayProcesses) -> None:
    overlay.start(*MEMBERS)
    reader, got = overlay.client("control", "desk"), list[str]()
    reader.on_message = lambda client, userdata, message: got.append(message.topic)
    reader.subscribe("plant/#", 1)
    pump = overlay.client("site", "pump")

    def reads() -> bool:
        pump.publish("plant/probe", b"x", 1)
        return wait_until(lambda: "plant/probe" in got, 1)

    assert wait_until(reads, 60)
    configs = [word for name in MEMBERS for word in ("-c", f"{name}.yaml")]
    command = [sys.executable, "-m", "gateway.cli", "log", "trace", *configs, "--topic", "plant/line/+", "--json"]
    with subprocess.Popen(
        command, cwd=overlay.directory, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as tracing:
        assert tracing.stdout is not None
        assert tracing.stderr is not None
        said = tracing.stderr.readline()
        assert said == f"veilmq: following at {', '.join(MEMBERS)}; Ctrl-C ends it\n", said
        pump.publish("plant/other", b"not asked for", 1)
        pump.publish("plant/line/7", b"hush", 1)
        lines: list[dict[str, Any]] = []

        def read() -> None:
            assert tracing.stdout is not None
            for line in tracing.stdout:
                lines.append(json.loads(line))

        reading = threading.Thread(target=read, daemon=True)
        reading.start()

        def seen(member: str, step: str) -> list[dict[str, Any]]:
            return [line for line in lines if (line["member"], line["step"]) == (member, step)]

        wanted = [("site", "received"), ("site", "numbered"), ("site", "acknowledged"), ("control", "opened"),
                  ("control", "sent"), *((f"north{n}", "came from member") for n in (1, 2, 3)),
                  *((f"north{n}", "sent to member") for n in (1, 2, 3))]  # fmt: skip
        complete = wait_until(lambda: all(seen(*each) for each in wanted), 30)
        tracing.terminate()
        reading.join(10)
    assert complete, [each for each in wanted if not seen(*each)]
    message = seen("site", "numbered")[0]["message"]
    assert seen("control", "opened")[0]["message"] == seen("control", "sent")[0]["message"] == message
    assert seen("control", "sent")[0]["client"] == "desk"
    replicas = [line for line in lines if line["member"].startswith("north")]
    on_its_way = [line for line in seen("site", "on its way") if line["message"] == message]
    assert {line["message"] for line in replicas} == {on_its_way[0].get("batch", message)}
    assert not any("topic" in line or line.get("client") not in (None, "site") for line in replicas)
    assert "hush" not in str(lines)
    assert "plant/other" not in str(lines)
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)
    for client in (reader, pump):
        client.disconnect()
        client.loop_stop()


@pytest.mark.parametrize(("arguments", "said"), [
    (("-c", "b.yaml"), "which messages? give --client ID, --topic FILTER or --address NET"),
    (("--topic", "a"), "at which member? -c FILE for one or several, --overlay FILE for all of an overlay"),
    (("-c", "b.yaml", "--topic", "a/#/b"), "give a filter such as plant/#"),
    (("-c", "b.yaml", "--address", "here"), "no address and no network"),
    (("-c", "none.yaml", "--topic", "a"), "none.yaml: No such file or directory; give another file with -c"),
    (("-c", "b.yaml", "--topic", "a"), "nobody answers (No such file or directory); start the member"),
    (("-c", "bare.yaml", "--topic", "a"), "has no data directory, where a running member is asked; add data"),
    (("--overlay", "none.json", "--topic", "a"), "none.json: no such file; give the signed overlay.json"),
    (("--overlay", "empty.json", "--topic", "a"), "no member runs whose folder lies beside it; start one"),
])  # fmt: skip
def test_mistakes_are_one_line(
    veilmq: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("data").mkdir()
    Path("b.yaml").write_text("data: data")
    Path("bare.yaml").write_text("{}")
    Path("empty.json").write_text("{}")
    status, out, err = veilmq("log", "trace", *arguments)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
