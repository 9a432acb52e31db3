"""The words between the demonstration and its children."""

from __future__ import annotations

from pathlib import Path

from gateway.demo.processes import DemoProcesses


def test_children_talk_and_hear(tmp_path: Path) -> None:
    code = (
        "from gateway.demo.child import Commands, emit\ncommands = Commands()\nemit('ready', n=1)\n"
        "print('noise')\nemit('heard', word=commands.next_word(20))\nemit('end', word=commands.next_word(20))"
    )
    with DemoProcesses(tmp_path) as fleet:
        process = fleet.start("witness", "-c", code, talks=True)
        process.may_end = True
        process.send_word("go")
        process.send_word("stop")
        assert process.wait_for_end(20)
        assert process.events() == [
            {"event": "ready", "n": 1},
            {"event": "heard", "word": "go"},
            {"event": "end", "word": "stop"},
        ]
