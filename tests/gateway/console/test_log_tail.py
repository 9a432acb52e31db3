"""The log on the page has what the log on disk has: who, from where, about which member."""

from __future__ import annotations

import logging

from gateway.base.log_events import LogEvent
from gateway.console.shown import LogTail


def test_lines_keep_client_user_address_and_member() -> None:
    tail, log = LogTail(), logging.getLogger("veilmq.test_log_tail")
    log.setLevel(logging.INFO)
    log.addHandler(tail)
    try:
        LogEvent.CLIENT_MAY_NOT.say(log, "publish", client="c1", user="ann", topic="a/b", address="192.0.2.7")
        LogEvent.LINK_UP.say(log, member="r1")
    finally:
        log.removeHandler(tail)
    refused, up = tail.lines
    assert {name: refused[name] for name in ("id", "client", "user", "topic", "address")} == {
        "id": "client_may_not", "client": "c1", "user": "ann", "topic": "a/b", "address": "192.0.2.7",
    }  # fmt: skip
    assert (up["event"], up["member"], up["level"]) == ("link is up", "r1", "info")
