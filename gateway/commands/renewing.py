"""`veilmq overlay renew`, `veilmq trust renew`: renewal of members' certificates before expiry."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

Days = Annotated[int | None, typer.Option(min=1, max=3650, help="How long they count from now on; as signed before.")]
Before = Annotated[
    int | None, typer.Option(min=1, max=3650, help="Renew when the first has so many days left; as signed, or 60.")
]


def register(overlay_app: typer.Typer, trust_app: typer.Typer) -> None:
    """Adds the commands to `veilmq overlay` and `veilmq trust`."""
    overlay_app.command("renew")(renew)
    trust_app.command("renew")(renew_identity)


def renew(
    overlay: Annotated[Path, typer.Argument(metavar="OVERLAY.json", help="The signed overlay; it is replaced.")],
    owner: Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")],
    days: Days = None,
    before: Before = None,
) -> None:
    """Renew the members' certificates if the first of them expires soon; nothing else changes. Fit for a timer."""
    from gateway.owner.renewing import renew as sign
    from gateway.trust import date_of

    done = sign(overlay, owner, time.time(), days, before)
    if done.overlay is None:
        print(f"nothing to do: the first certificate ends at {date_of(done.first_end_s)}")
        return
    print(f"version {done.overlay.policy.version} in {overlay}: certificates end at {date_of(done.first_end_s)}")
    print("give it to any one member; the rest hear of it from each other")


def renew_identity(
    directory: Annotated[Path, typer.Argument(metavar="IDENTITY_DIR")],
    domain: Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that issued it.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long it counts from now on.")] = 825,
    before: Annotated[int, typer.Option(min=1, max=3650, help="Renew when it has so many days left.")] = 60,
) -> None:
    """Renew the TLS certificate of an identity, listener or client if it expires soon, and a card of an older form. Fit
    for a timer.
    """
    from gateway.trust import TrustDomain, date_of, device_certificates
    from gateway.trust.leaves import renew_card, renew_leaf

    if device_certificates.is_of_device(directory):
        is_new, ends_s = device_certificates.renew(directory, TrustDomain.load(domain), time.time(), days, before)
        print(f"{directory}: {'renewed: it' if is_new else 'nothing to do: the certificate'} ends at {date_of(ends_s)}")
        return
    if renew_card(directory):
        print(
            f"{directory / 'card.json'}: renewed, with a quantum-safe key; give it to the owner of the overlay to sign"
        )
    leaf = renew_leaf(directory, TrustDomain.load(domain), time.time(), days, before)
    done = "renewed: it" if leaf.is_new else "nothing to do: the certificate"
    print(f"{leaf.name}: {done} ends at {date_of(leaf.ends_s)}")
