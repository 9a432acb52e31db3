"""`veilmq overlay renew`: certificates of members before they end."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer


def register(overlay_app: typer.Typer) -> None:
    """Add the command to `veilmq overlay`."""
    overlay_app.command("renew")(renew)


def renew(
    overlay: Annotated[Path, typer.Argument(metavar="OVERLAY.json", help="The signed overlay; it is replaced.")],
    owner: Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long certificates count from now on.")] = 365,
    before: Annotated[int, typer.Option(min=1, max=3650, help="Renew when the first has so many days left.")] = 60,
) -> None:
    """Sign certificates of members anew if the first of them ends soon; nothing else changes. Fit for a timer."""
    from gateway.owner.renewing import renew as sign
    from gateway.trust import date_of

    done = sign(overlay, owner, time.time(), days, before)
    if done.overlay is None:
        print(f"nothing to do: the first certificate ends at {date_of(done.first_end_s)}")
        return
    print(f"version {done.overlay.policy.version} in {overlay}: certificates end at {date_of(done.first_end_s)}")
    print("give it to any one member; the rest hear of it from each other")
