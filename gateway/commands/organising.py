"""`veilmq overlay organise`: what replicas measured, and the change of the tree that would spare most."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from gateway.commands.attaching import OverlayFile
from gateway.commands.printing import print_json
from gateway.commands.status import asked


def register(overlay_app: typer.Typer) -> None:
    """Add the command to `veilmq overlay`."""
    overlay_app.command("organise")(organise)


def organise(
    overlay: OverlayFile,
    ask: Annotated[
        list[str],
        typer.Option(metavar="HOST:PORT", help="Metrics port of a running replica; may be repeated."),
    ],
    owner: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Trust domain that owns the overlay; with --apply.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Sign the change.")] = False,
    grace: Annotated[
        int, typer.Option(min=1, max=3600, metavar="SECONDS", help="How long the former tree stays open.")
    ] = 60,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> None:
    """Say which link between regions should come, which should go, and what that spares; sign it with --apply."""
    from bridge.document import Overlay
    from gateway.owner.organising import apply_swap, edges_lines, gathered, proposed
    from gateway.trust import TrustError, date_of, load_overlay

    if apply and owner is None:
        raise TrustError("--apply signs the change: say by --owner DIR whose overlay it is")
    told = _summaries(ask)
    signed: Overlay | None = None
    if apply and owner is not None:
        found, signed = apply_swap(overlay, owner, told, time.time(), grace)
    else:
        present = load_overlay(overlay, int(time.time() * 1000))
        found = proposed(present, gathered(told, present), time.time())
    if as_json:
        print_json(found.to_json() | {"version": signed.policy.version if signed else None})
        return
    if found.swap is None:
        print(f"nothing to change: {found.why}" + (f" until {date_of(found.rests_until)}" if found.rests_until else ""))
        return
    swap = found.swap
    print(f"join {found.named(swap.added)}, part {found.named(swap.removed)}")
    print(
        f"{found.why}; what went before is measured still"
        if found.why
        else f"the cycle of {len(swap.ring)} regions costs {swap.before:.0f} us of each second's interest before, "
        f"{swap.after:.0f} after: {100 * swap.gain:.0f} % less"
    )
    if signed is None:
        print("sign it with --apply --owner DIR")
        return
    print(f"version {signed.policy.version} signed in {overlay}; give it to any one member")
    print(f"write into the description, or the next `overlay sign` takes it back:\n{edges_lines(signed)}")


def _summaries(ask: list[str]) -> list[str]:
    """What these replicas have heard. Raises TrustError where nobody answers."""
    from gateway.trust import TrustError

    told: list[str] = []
    for bind in ask:
        answer = asked(bind)
        standing = answer.get("overlay")
        if not isinstance(standing, dict):
            raise TrustError(f"{bind}: no running member of the overlay answers there; name a replica's metrics port")
        summaries = standing.get("summaries")
        told += [each for each in summaries if isinstance(each, str)] if isinstance(summaries, list) else []
    return told
