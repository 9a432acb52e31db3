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

"""


def waits_page() -> str:
    """Returns Markdown."""
    rows = [f"| {one.where} | {one.ends} | {one.below_v5} | {one.v5} | {one.lost} |" for one in Wait]
    head = (
        "| where it waits | what ends it | client below MQTT 5 | client of MQTT 5 | its connection breaks meanwhile |"
    )
    return "\n".join([INTRODUCTION + head, "|---|---|---|---|---|", *rows, ""])
