"""Every line that a broker or receiver logs at level info and above, from the registry in the code."""

from __future__ import annotations

import logging
import re

from gateway.base.log_events import LogEvent

INTRODUCTION = """# Log lines

A broker and a receiver for Spark write one line an event to standard error, as `key=value` or with `log: json` as
JSON. [Operate](../how-to/operate.md) says how a line looks. The table has every event of level info and above. It is
made from the code when this site is built.

`id` is the name of the event, and does not change with the text: let alerts and audits go by it. An … in the text
stands for what differs from line to line; `…` alone is a cause with its cure.

    veilmq broker -c broker.yaml 2>&1 | grep -E ' id=(member_named|link_down) '

"""
_ARGUMENT = re.compile(r"%\d*[dsrxX]")


def log_page() -> str:
    """Markdown."""
    rows = [
        f"| `{event.id}` | {logging.getLevelName(event.level).lower()} | {_shown(event.text)} | {event.meaning} |"
        for event in LogEvent
    ]
    return "\n".join([INTRODUCTION + "| id | level | text | meaning |", "|---|---|---|---|", *rows, ""])


def _shown(text: str) -> str:
    return _ARGUMENT.sub("…", text)
