"""Every place where a client's publication may wait for its acknowledgement, from the table in the code."""

from __future__ import annotations

from gateway.broker.waits import Wait

INTRODUCTION = """# Publications that wait

A publication of QoS 1 or 2 is acknowledged when it is where it was promised to be. The table has every place at a
broker or gateway where it may wait before that, what ends the wait, and what its client sees then. It is made from the
code when this site is built. There is no place without an end.

* A client repeats only on a new connection (MQTT 5.0 §4.4). So whoever is not answered is answered later, or
  disconnected, in every version. No connection lives on that owes an answer which will not come.
* MQTT 3.1.1 has no words for a refusal. Its connection ends at once, before anything that the client sent behind the
  refused publication is taken. The client repeats all of it, in order. It is refused again, and disconnected again,
  until the cause is over.
* In MQTT 5 PUBACK or PUBREC carries the code. The client may not repeat that publication by itself: its program has to
  publish anew.
* When a connection breaks, or is taken over by the next one of its client, a publication that others have in hand
  keeps its place. All that the broker had read behind it is dropped, and comes again. On the next connection nothing
  is published before that one publication is decided.
* A clean session forgets on both sides what is unfinished. What its client sends again is a new publication.
* Sessions and outbox are two files with a commit each, and receivers of clean sessions wait for none. If the disk
  refuses one of the commits, the publication is refused, and its client repeats it. Receivers of clean sessions get it
  once more if the file of sessions refused, at QoS 2 too. Until the disk takes again no more is taken.
* At QoS 2 a refusal of the overlay is told to no client that keeps its session if receivers here have the publication:
  its program would publish anew, and they would have it twice. The connection ends (0x97), the client repeats, and the
  repetition goes to the overlay alone.
* A gateway that is killed between the two commits of a publication of QoS 2 knows that half of it may be undone. Its
  repetition goes to the overlay again, and not to local receivers. The overlay has it twice if only the word of its
  commit was lost.

"""

CLIENTS = """
## What client libraries add

`tests/interop/test_outages.py` drives publishers of four libraries, in MQTT 3.1.1 and 5, QoS 1 and 2, clean and kept
sessions, through two outages in a row, and reads on the wire what each sends. All get on by themselves: within 10 s of
the end of an outage all that was sent is acknowledged and delivered, in order, and in kept sessions at QoS 2 once. What
the libraries do besides no broker can mend:

| library | what it does | what helps |
|---|---|---|
"""
LIBRARIES = (
    (
        "paho 1.6.1, 2.2.0",
        "sends what is published while it connects before older, unacknowledged publications "
        "(`publish`): receivers get it first",
        "publish only while `is_connected()`",
    ),
    (
        "paho 1.6.1, 2.2.0",
        "begins again with PUBLISH after PUBREL at QoS 2, if two attempts to connect come in a "
        "row (`_messages_reconnect_reset_out`): receivers may get it twice",
        "receivers that know what they have had",
    ),
    (
        "paho 1.6.1, 2.2.0",
        "tries again after 1, 2, 4 … 120 s while nobody listens",
        "`reconnect_delay_set`",
    ),
    (
        "paho 1.6.1",
        "does not tell `on_publish` the code of MQTT 5: what a full outbox refuses looks acknowledged",
        "MQTT 3.1.1, or paho 2",
    ),
    (
        "paho 2.2.0",
        "goes on with PUBREL after a PUBREC that refuses, and tells `on_publish` the code of "
        "PUBCOMP, 0x92 (`_handle_pubrec`)",
        "MQTT 3.1.1, or QoS 1",
    ),
    (
        "aiomqtt 2.3.0",
        "returns from `publish` also where MQTT 5 refuses (`_on_publish`)",
        "MQTT 3.1.1",
    ),
    (
        "aiomqtt 2.3.0",
        "raises `MqttError` when the connection breaks, and repeats all the same: receivers get "
        "it twice if the program publishes it again",
        "receivers that know what they have had",
    ),
    (
        "MQTT.js 5.14.1",
        "repeats one by one; if the connection closes meanwhile, all that was published behind "
        "them fails with `Connection closed`",
        "publish it again some time after the callback",
    ),
    (
        "MQTT.js 5.14.1",
        "gives 0x92 of a PUBCOMP as an error: PUBREL came twice, the publication was taken",
        "do not publish that again",
    ),
)
"""Library with its version, its behaviour, and what a program or receiver can do about that."""


def waits_page() -> str:
    """Returns Markdown."""
    rows = [f"| {one.where} | {one.ends} | {one.below_v5} | {one.v5} | {one.lost} |" for one in Wait]
    head = (
        "| where it waits | what ends it | client below MQTT 5 | client of MQTT 5 | its connection breaks meanwhile |"
    )
    clients = CLIENTS + "\n".join(f"| {' | '.join(row)} |" for row in LIBRARIES)
    return "\n".join([INTRODUCTION + head, "|---|---|---|---|---|", *rows, clients, ""])
