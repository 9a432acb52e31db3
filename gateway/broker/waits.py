"""Every place where a publication of QoS 1 or 2 of a client may wait before it is acknowledged, and what ends the
wait.

A new place is a row here, and a test ending its wait, marked with `ends` of `tests/gateway/ending.py`. The reference
page is made of this table. Not here: queues behind the acknowledgement, as the outbox and queues of receivers
(`docs/reference/bounds.md`).
"""

from __future__ import annotations

from enum import Enum

_ANSWERED = "PUBACK or PUBREC"
_AGAIN = "disconnected; repeats, until it is taken"
_REPEATED = "is taken in its turn; if the client is back before, forgotten, since the client repeats it"
_KEEPS = "keeps its place; at QoS 2 PUBREC goes to the next connection, at QoS 1 the repetition is a second copy"


class Wait(Enum):
    """Place of a wait. `ends`: the end of the wait. `below_v5`, `v5`: the answer a client of these versions sees.
    `lost`: the fate of the publication when its connection breaks or is taken over meanwhile.
    """

    UNREAD = (
        "not read: `receive_maximum` answers are open, one that waits has enough behind it (1,024 packets or 1 MiB; "
        "behind a plugin: one read), or its client takes none of our bytes",
        "an answer of those before it; of a client that does not read, `stalled_s`",
        "is read on",
        "is read on; beyond `receive_maximum` DISCONNECT 0x93",
        "was never read; the client repeats it",
    )
    PACE = ("`publish_rate`", "its time comes", _ANSWERED, _ANSWERED, _REPEATED)
    PLUGIN = (
        "a plugin is asked whether the client may publish",
        "the plugin answers; at the latest after 30 s",
        f"{_ANSWERED}; after 30 s disconnected, and repeats",
        f"{_ANSWERED}, with 0x87 if it may not; after 30 s the connection is closed, and it repeats",
        _KEEPS,
    )
    BEHIND = (
        "read behind one that waits",
        "that one is decided",
        "as its own turn says",
        "as its own turn says",
        _REPEATED,
    )
    RECEIVER = (
        "a connected receiver has a long queue (`when_full: hold`)",
        "the receiver acknowledges or leaves, or is given up after `hold_s`",
        _ANSWERED,
        _ANSWERED,
        _KEEPS,
    )
    SESSIONS = (
        "on its way to `sessions.sqlite3`",
        "the commit; a disk that refuses it or the group before it",
        f"{_ANSWERED}; refused: {_AGAIN}",
        f"{_ANSWERED}; refused: code 0x97",
        "is decided; a repetition at QoS 2 gets its PUBREC",
    )
    SESSIONS_FULL = (
        "the disk refuses `sessions.sqlite3`",
        "the disk takes again, which is tried each 1 s",
        _AGAIN,
        "code 0x97 at once",
        "is refused",
    )
    OUTBOX = (
        "on its way to `outbox.sqlite3`",
        "the commit; a disk that refuses it or the group before it",
        f"{_ANSWERED}; refused: {_AGAIN}",
        f"{_ANSWERED}; refused: code 0x97",
        "is decided; a repetition at QoS 2 gets its PUBREC",
    )
    OUTBOX_FULL = (
        "the outbox is full: the uplink, a quorum or a key is away for so long (`outbox_full: refuse`)",
        "replicas have what is in it",
        _AGAIN,
        "code 0x97 at once",
        "is refused",
    )
    TURN = (
        "it is taken, and one before it is not (MQTT-4.6.0-2)",
        "that one is decided",
        _ANSWERED,
        _ANSWERED,
        "is decided; a repetition at QoS 2 gets its PUBREC",
    )
    GATE = (
        "its answer is written behind a change of the client's own session that is on its way to `sessions.sqlite3`",
        "the commit; at the second one that the disk refuses, nothing waits any more",
        _ANSWERED,
        _ANSWERED,
        "a repetition at QoS 2 gets its PUBREC",
    )
    RELEASE = (
        "PUBREC is sent: the client's PUBREL is awaited, over restarts",
        "PUBREL; the end of the session",
        "PUBCOMP",
        "PUBCOMP",
        "the client repeats PUBREL",
    )
    SHUTDOWN = (
        "the broker stops: nothing more is read, what is undecided is waited for",
        "it is decided; at the latest after `shutdown_s`",
        f"{_ANSWERED}, then disconnected; what is not answered it repeats",
        f"{_ANSWERED}, then DISCONNECT 0x8B; what is not answered it repeats",
        "is forgotten with the process; the client repeats it",
    )

    def __init__(self, where: str, ends: str, below_v5: str, v5: str, lost: str) -> None:
        self.where, self.ends, self.below_v5, self.v5, self.lost = where, ends, below_v5, v5, lost
