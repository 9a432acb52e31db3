"""`veilmq verify` and `veilmq overlay compare`: evidence is checked, and made of two overlay files, with no secret."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.printing import Json, print_json, utc_text

if TYPE_CHECKING:
    from bridge.document import ProvenLie
    from bridge.receipts import ProvenDelivery


def register(app: typer.Typer, overlay_app: typer.Typer) -> None:
    """Adds the commands to `veilmq` and `veilmq overlay`."""
    app.command("verify")(verify)
    overlay_app.command("compare")(compare)


def verify(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="Evidence, or a proof of delivery.")],
    overlay: Annotated[
        Path | None,
        typer.Option(metavar="OVERLAY.json", help="Your own copy of the signed overlay."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check offline what a file proves. Ends with status 2 if it proves nothing."""
    from bridge.receipts import ProvenDelivery
    from gateway.terminal.written import terminal_text
    from gateway.trust import load_overlay
    from gateway.trust.evidence_file import check_evidence, standing

    proven = check_evidence(path)
    places = None if overlay is None else standing(proven, load_overlay(overlay, int(time.time() * 1000)))
    if as_json:
        print_json(_as_json(proven) | {"standing": None if places is None else "; ".join(places)})
        return
    print(f"proved: {terminal_text(proven.says)}")  # a topic is its publisher's word, and forges no line here
    if isinstance(proven, ProvenDelivery):
        times = proven.record.time_ms, proven.acknowledged_ms
        print("published {}, acknowledged {}, each by the clock of who says so".format(*map(_time, times)))
        print(f"owner {proven.owner.hex()} certified both keys")
    else:
        print(f"key {proven.key.hex()}, certified by owner {proven.owner.hex()}")
    for place in places or ():
        print(place)
    if places is None:
        print("compare the owner's key with the one that you know, or add --overlay OVERLAY.json")


def _time(time_ms: int) -> str:
    """Returns a time that somebody signed, who may have signed one that no calendar has."""
    try:
        return utc_text(time_ms)
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def _as_json(proven: ProvenLie | ProvenDelivery) -> dict[str, Any]:
    from bridge.receipts import ProvenDelivery

    found: dict[str, Any] = {"owner": proven.owner.hex(), "says": proven.says}
    if not isinstance(proven, ProvenDelivery):
        return {"lie": proven.lie.value, "author": proven.author, "key": proven.key.hex()} | found
    record = proven.record
    return {
        "publisher": proven.publisher,
        "publisher_key": proven.publisher_key.hex(),
        "reader": proven.reader,
        "reader_key": proven.reader_key.hex(),
        "number": record.number,
        "topic": record.topic,
        "payload_sha256": record.payload_hash.hex(),
        "published_ms": record.time_ms,
        "acknowledged_ms": proven.acknowledged_ms,
    } | found


def compare(
    mine: Annotated[Path, typer.Argument(metavar="MINE.json", help="The signed overlay that you were given.")],
    theirs: Annotated[Path, typer.Argument(metavar="THEIRS.json", help="The one that another member was given.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the evidence, if the owner signed two.")
    ] = None,
) -> None:
    """Tell whether the owner gave two members different documents of one version. Ends with status 1 if so."""
    from gateway.trust import load_overlay
    from gateway.trust.evidence_file import compared, write_evidence

    made = compared(load_overlay(mine, int(time.time() * 1000)), theirs)
    if made is None:
        print("nothing contradicts: the two files are of different versions, or say the same")
        return
    print(f"proved: {made.check_proof().says}")
    if out is not None:
        write_evidence(out, made)
        print(f"evidence in {out}; anybody can check it with veilmq verify {out}")
    raise typer.Exit(1)
