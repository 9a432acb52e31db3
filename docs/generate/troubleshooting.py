"""Troubleshooting by symptom, from the registry of log events: each warning and error stands under one symptom."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass

from gateway.base.log_events import LogEvent as E

INTRODUCTION = """# Troubleshooting

What you see, the lines of the log that go with it, what they mean, and what to do. The page is made of the registry of
log lines when this site is built: every warning and error stands under one symptom. `veilmq status` asks a running
member what is wrong now, `veilmq check` finds what keeps one from starting; either says cause and cure in one line.
[Log lines](log.md) has all lines, in the order of the code. An … stands for what differs from line to line.

    journalctl -u veilmq@g1 | grep -E 'level=(warning|error)'

"""


@dataclass(frozen=True, slots=True)
class Symptom:
    """A symptom as an operator sees it. `cure`: what to do first; `command`: what to run for it."""

    title: str
    events: tuple[E, ...]
    cure: str
    command: str


SYMPTOMS = (
    Symptom(
        "Clients cannot connect, or lose their connection",
        (
            E.FEWER_CONNECTIONS,
            E.FILES_RUN_OUT,
            E.LIMIT_REACHED,
            E.AUTH_PLUGIN_FAILED,
            E.AUTH_METHOD_FAILED,
            E.PROVIDER_KEYS_NOT_FETCHED,
            E.USERS_NOT_REREAD,
            E.PLUGIN_WARNS,
        ),
        "Read the reason code of CONNACK beside the line `client_refused`. Raise the bound that is "
        "named, or mend the file or plugin.",
        "veilmq check -c broker.yaml",
    ),
    Symptom(
        "A publication or subscription is refused (0x87)",
        (E.NO_RIGHT_TO_PUBLISH, E.SCOPE_NOT_GRANTED, E.TOPIC_PLUGIN_FAILED, E.STORED_GIVEN_UP, E.SUBSCRIPTION_REFUSED),
        "Look which right is missing: the user's (`client_may_not`) or this gateway's. The owner grants the latter.",
        "veilmq check -c broker.yaml plant/line1/temp",
    ),
    Symptom(
        "A publication is refused for another reason (0x80, 0x90, 0x95, 0x97)",
        (
            E.TOO_LARGE_FOR_REPLICAS,
            E.RESPONSE_TOPIC_UNPROTECTED,
            E.STORE_REFUSES,
            E.STORE_TAKES_AGAIN,
            E.OUTBOX_REFUSES,
            E.PUBLICATION_FAILED,
            E.TOPIC_PLUGINS_SLOW,
            E.PLUGIN_PUBLICATION_FAILED,
        ),
        "Free space on the disk of `data`, send less at once, or raise `overlay.outbox_bytes` and "
        "`limits.packet_bytes`.",
        "veilmq status -c broker.yaml",
    ),
    Symptom(
        "Messages are acknowledged and do not arrive",
        (E.UNREACHABLE, E.HEALTH_BROKEN, E.HEALTH_DEGRADED, E.SPLIT_SEED_NOT_KEPT, E.AMQTT_NOT_TAKEN, E.AMQTT_BEHIND),
        "See which replicas of which region are away, here and elsewhere. What waits in the outbox goes "
        "once a quorum is back.",
        "veilmq status --overlay overlay.json",
    ),
    Symptom(
        "A member does not connect to the others, or is shut out",
        (
            E.NOT_LISTED,
            E.DETACHED,
            E.KEY_NOT_OURS,
            E.AUTHORITY_NOT_TRUSTED,
            E.IDENTITY_RUNS_TWICE,
            E.NOTHING_ADVERTISED,
            E.DISCOVERY_FAILED,
        ),
        "Compare the overlay file, the identity and the clock with those of the others.",
        "veilmq overlay show overlay.json",
    ),
    Symptom(
        "A new overlay has no effect",
        (
            E.OVERLAY_NOT_ADOPTED,
            E.OVERLAY_NOT_READ,
            E.OVERLAY_NOT_KEPT,
            E.OVERLAY_NEEDS_RESTART,
            E.OVERLAY_NOT_PASSED_ON,
            E.OVERLAY_LOOK_FAILED,
        ),
        "Put the owner's newest file there whole; restart where the line asks for it.",
        "veilmq overlay show overlay.json",
    ),
    Symptom(
        "A new configuration, certificate or key has no effect",
        (
            E.NOT_RELOADED,
            E.CERTIFICATE_NOT_RENEWED,
            E.CERTIFICATE_LOOK_FAILED,
            E.PREVIOUS_KEY_NOT_ERASED,
            E.TOKENS_NOT_REREAD,
            E.TOKENS_NOT_ENDED,
            E.CONSOLE_NOT_SERVED,
            E.FOLLOWING_NOT_SERVED,
            E.DAY_NOT_KEPT,
        ),
        "What was before still counts. Correct the file that the line names, then `systemctl reload`.",
        "veilmq check -c broker.yaml",
    ),
    Symptom(
        "Nothing is sealed or opened: keys of an epoch are missing",
        (
            E.EPOCH_KEYS_NOT_USED,
            E.EPOCH_KEYS_NOT_KEPT,
            E.KEY_MATERIAL_REFUSED,
            E.KEY_ARCHIVE_NOT_USED,
            E.SPLIT_SEEDS_NOT_ERASED,
        ),
        "See that n − f key servers run, have their material, and that clocks agree.",
        "veilmq status -c broker.yaml",
    ),
    Symptom(
        "A member is blamed",
        (E.MEMBER_NAMED, E.MEMBER_SUSPECTED, E.EVIDENCE_KEPT, E.EVIDENCE_NOT_KEPT),
        "A named member lied: detach it. Of a suspected link one of the two ends did, or its disk or memory is bad.",
        "veilmq overlay detach overlay.json --owner owner --member r2",
    ),
    Symptom(
        "State is gone or old after a restart",
        (
            E.STORE_LOST_CHANGES,
            E.STORE_FAILED,
            E.READER_ROWS_DAMAGED,
            E.STORED_TIMES_MOVED,
            E.HISTORY_REFUSED,
            E.TRACES_NOT_KEPT,
            E.RECEIPTS_NOT_KEPT,
            E.STOPPED_LATE,
        ),
        "See the disk of `data`: full, slow or replaced. Never start a member with an empty `data` "
        "under its old identity.",
        "veilmq backup r1 r1.tar.gz",
    ),
    Symptom(
        "A bridge to another broker does not carry everything",
        (
            E.BRIDGE_CANNOT_CROSS,
            E.BRIDGE_REFUSED,
            E.BRIDGE_UNRELEASED,
            E.BRIDGE_LEFT,
            E.BRIDGE_KEEPS_OUT,
            E.BRIDGE_KEEPS,
        ),
        "The line names the bridge and why; what was refused for good is kept in the named folder.",
        "veilmq bridges forget --help",
    ),
    Symptom(
        "Entities, alerts or events are missing",
        (
            E.TRACE_SENT_AWAY,
            E.TRACE_REFUSED,
            E.ALERTS_DROPPED,
            E.ALERT_NOT_TAKEN,
            E.EVENTS_LOST,
            E.EVENT_REFUSED,
            E.EVENT_RETRIED,
            E.EVENT_LOST,
        ),
        "See that the web address or topic takes what is sent, and that the device's credentials have not ended.",
        "veilmq traces watch pump-7 --credentials desk",
    ),
    Symptom(
        "Logins at the console fail",
        (E.CONSOLE_LOGIN_FAILED, E.CONSOLE_PROVIDER_AWAY),
        "The name and password are those of MQTT; ten wrong ones in a minute make an address wait.",
        "veilmq users list data/security.json",
    ),
    Symptom(
        "Rows do not come into Spark",
        (E.RECEIVER_LINK_DOWN, E.RECEIVER_RETRIES, E.RECEIVER_CLOCK, E.RECEIVER_FULL, E.RECEIVER_DOUBTS),
        "See whether the receiver runs, why it does not receive, and how far its queries are behind.",
        "veilmq ingest status spool",
    ),
    Symptom(
        "A changed schema file changes no rows",
        (E.RECEIVER_SCHEMAS_STAY,),
        "Mend the file as the line says; the receiver looks at it twice a second.",
        "veilmq ingest jobs typed --spool spool --grants scope_keys.json --once",
    ),
    Symptom(
        "A member stops, since its key signs no more",
        (E.KEY_LOST,),
        "Put the token back, see that its PIN is right, and start the member.",
        "veilmq check -c broker.yaml",
    ),
    Symptom(
        "The log has a traceback",
        (E.CONNECTION_FAILED, E.MACHINE_FAILED, E.HEALTH_FAILED, E.CONSOLE_FAILED),
        "A defect of VeilMQ: one connection, event or request was refused, the rest goes on. Report the traceback.",
        "veilmq --version",
    ),
)
_ARGUMENT = re.compile(r"%\d*[dsrxX]")


def troubleshooting_page() -> str:
    """Returns the page as Markdown."""
    parts = [INTRODUCTION]
    for symptom in SYMPTOMS:
        rows = [
            f"| `{event.id}` | {logging.getLevelName(event.level).lower()} | {_ARGUMENT.sub('…', event.text)} | "
            f"{event.meaning} |"
            for event in symptom.events
        ]
        table = ["| in the log | level | text | cause |", "|---|---|---|---|", *rows]
        parts += [f"## {symptom.title}\n\n{symptom.cure}\n\n    {symptom.command}\n", "\n".join([*table, "", ""])]
    return "\n".join(parts)
