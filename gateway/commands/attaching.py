"""`veilmq overlay attach|detach`: members join and leave while all others run."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from gateway.owner import Changed
    from gateway.trust import Card
    from keys.grants import Right

DESCRIPTION = "overlay.yaml"
LOOK_EVERY_S = 0.5
OverlayFile = Annotated[Path, typer.Argument(metavar="OVERLAY.json", help="The signed overlay; it is replaced.")]
Owner = Annotated[Path, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")]
Grace = Annotated[
    int,
    typer.Option(min=1, max=3600, metavar="SECONDS", help="How long a replica's region keeps the view before open."),
]
Wait = Annotated[
    int,
    typer.Option(min=0, metavar="SECONDS", help="How long to wait until the region's last change is over; 0: not."),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be signed, or refused; write nothing.")]
Described = Annotated[
    Path | None,
    typer.Option(metavar="OVERLAY.yaml", help="Gets the line as well; overlay.yaml beside OVERLAY.json, if not given."),
]


def register(overlay_app: typer.Typer) -> None:
    """Adds the commands to `veilmq overlay`."""
    overlay_app.command("attach")(attach)
    overlay_app.command("detach")(detach)


def attach(
    overlay: OverlayFile,
    owner: Owner,
    region: Annotated[str, typer.Option(metavar="NAME", help="Region that it joins, or is attached to.")],
    card: Annotated[Path, typer.Option(metavar="FILE", help="Its card.json.")],
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="A replica's: where it listens for the overlay.")
    ] = None,
    publish: Annotated[
        list[str] | None, typer.Option(metavar="FILTER", help="A gateway's or job's right; may be repeated.")
    ] = None,
    read: Annotated[list[str] | None, typer.Option(metavar="FILTER", help="The same.")] = None,
    description: Described = None,
    grace: Grace = 60,
    wait: Wait = 90,
    dry_run: DryRun = False,
) -> None:
    """Let a replica, a gateway or an ingest job join while everything runs."""
    from gateway.trust import Card, TrustError
    from keys.identity import Role

    newcomer = Card.load(card)
    described = description or overlay.parent / DESCRIPTION
    if newcomer.role is not Role.REPLICA:
        if address is not None:
            raise TrustError(f"{newcomer.name} is a {newcomer.role}, which nobody in the overlay dials; no --address")
        _attach_gateway(overlay, owner, region, card, newcomer, publish or [], read or [], described, dry_run)
        return
    if address is None:
        raise TrustError(f"{newcomer.name} is a replica: say by --address HOST:PORT where it listens for the overlay")
    if publish or read:
        raise TrustError(f"{newcomer.name} is a replica, which publishes and reads nothing; no --publish, no --read")
    from gateway.owner.attaching import attach as sign
    from gateway.owner.listing import as_line, list_replica

    changed = _once_over(
        lambda now: sign(overlay, owner, region, card, address, now, grace_s=grace, dry_run=dry_run), wait
    )
    _print_changed(changed, overlay, dry_run)
    if dry_run:
        return
    if list_replica(described, region, card, address):
        print(f"{described} lists it in region {region}")
    else:
        print(f"add to region {region} in the description: {as_line({'card': str(card), 'address': address})}")
    print(f"then start {changed.replica} with {overlay}")


def _attach_gateway(
    overlay: Path, owner: Path, region: str, path: Path, card: Card, publish: list[str], read: list[str],
    described: Path, dry_run: bool,
) -> None:  # fmt: skip
    from gateway.owner.gateways import attach_gateway
    from gateway.owner.listing import as_line, list_member
    from keys.grants import Right

    wanted: list[tuple[str, Right]] = [(each, Right.PUBLISH) for each in publish]
    wanted += [(each, Right.READ) for each in read]
    signed = attach_gateway(overlay, owner, region, card, wanted, time.time(), dry_run=dry_run)
    print(f"version {signed.policy.version} {_signed(dry_run)} in {overlay}: {card.name}, a {card.role}, is a member")
    if not wanted:
        print(f"it may publish and read nothing yet: veilmq trust grant {overlay} --member {card.name} --publish ...")
    if dry_run:
        return
    if list_member(described, region, path, publish, read):
        print(f"{described} lists it")
    else:
        entry = {"card": str(path), "region": region, "publish": publish, "read": read}
        print(f"add to members in the description: {as_line(entry)}")
    print(f"give {overlay} to it and to any one member")


def detach(
    overlay: OverlayFile,
    owner: Owner,
    member: Annotated[str, typer.Option(metavar="NAME", help="Replica, gateway or ingest job that leaves.")],
    grace: Grace = 60,
    wait: Wait = 90,
    at_once: Annotated[bool, typer.Option("--now", help="A replica: no grace, it carries nothing more.")] = False,
    dry_run: DryRun = False,
) -> None:
    """Let a replica, a gateway or an ingest job leave while everything runs."""
    from gateway.owner.attaching import detach as sign
    from gateway.owner.gateways import JOINING, detach_gateway
    from gateway.trust import load_overlay

    found = load_overlay(overlay, 0).members.get(member)
    if found is not None and found.certificate.role in JOINING:
        signed, bumped = detach_gateway(overlay, owner, member, time.time(), dry_run=dry_run)
        print(f"version {signed.policy.version} {_signed(dry_run)} in {overlay}: {member} is no member; give it to one")
        if bumped:
            print(f"new keys for {', '.join(bumped)}: those that {member} holds seal nothing from then on")
        print(f"remove {member} from members in the description")
        return
    grace_s = 0 if at_once else grace
    changed = _once_over(lambda now: sign(overlay, owner, member, now, grace_s=grace_s, dry_run=dry_run), wait)
    _print_changed(changed, overlay, dry_run)
    print(f"remove {member} from region {changed.view.name} in the description")
    print(f"{member} may be stopped {f'{grace_s} s after that' if grace_s else 'then'}; its log says when it is out")


def _once_over(change: Callable[[float], Changed], wait_s: float) -> Changed:
    """Signs as soon as the region's last change is over. Raises NotYetError if that takes longer than `wait_s`."""
    from gateway.owner.attaching import NotYetError

    until, said = time.monotonic() + wait_s, False
    while True:
        try:
            return change(time.time())
        except NotYetError as error:
            if time.monotonic() >= until:
                raise
            if not said:
                print(f"waiting: {error}", flush=True)
                said = True
            time.sleep(LOOK_EVERY_S)


def _print_changed(changed: Changed, overlay: Path, dry_run: bool) -> None:
    view, former = changed.view, changed.former
    print(
        f"version {changed.overlay.policy.version} {_signed(dry_run)} in {overlay}: view {view.number} of region "
        f"{view.name}, {len(view.members)} replicas, threshold {view.threshold}; give it to any member"
    )
    print(f"it comes into force once {former.threshold} of {', '.join(former.members)} have endorsed it")


def _signed(dry_run: bool) -> str:
    return "would be" if dry_run else "is"
