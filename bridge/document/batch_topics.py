"""Where batches travel: each scope has one wire topic for them, which names the scope by its number and nothing else.

Nobody on the way sees the records' topics. So a member may publish there if it may publish on some topic of the scope,
and readers judge each record alone (`record_rights`). No other publication has a topic that begins like these. Not
here: what is in a batch (`bridge.contract`), who checks it."""

from __future__ import annotations

BATCH_ROOT = "veilmq/batch/"
SCOPE_NUMBER_MAX = (1 << 32) - 1


def batch_topic(number: int) -> str:
    """The wire topic of batches of the scope with this number."""
    return f"{BATCH_ROOT}{number}"


def batch_number(wire_topic: str) -> int | None:
    """The number of the scope whose batches travel there; None for a topic of none. A number has one spelling."""
    if not wire_topic.startswith(BATCH_ROOT):
        return None
    told = wire_topic[len(BATCH_ROOT) :]
    if not (told.isascii() and told.isdigit() and len(told) <= 10) or told.startswith("0"):
        return None
    number = int(told)
    return number if number <= SCOPE_NUMBER_MAX else None


def is_batch_topic(wire_topic: str) -> bool:
    """Whether a wire topic is one of batches, or would be if it were spelt right."""
    return wire_topic.startswith(BATCH_ROOT)
