"""`veilmq overlay organise`: the replicas' measurements, and the change of the tree that would save most.

The owner asks replicas at their metrics ports and signs a version. The organiser, if the owner named one, links with
the replicas of its region under its own identity, signs a swap, and waits until enough replicas endorsed it.
"""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.attaching import OverlayFile
from gateway.commands.printing import Json, print_json
from gateway.commands.status import ASK_S

if TYPE_CHECKING:
    from gateway.overlay.organiser import Organiser

LOOK_EVERY_S = 0.2
ANSWER_BYTES_MAX = 64 << 20  # of one replica's answer: fits the interests of 1,300 replicas in three intervals each
WAIT_INTERVALS = 4  # intervals of summaries to wait before reporting that there is no change


def register(overlay_app: typer.Typer) -> None:
    """Adds the command to `veilmq overlay`."""
    overlay_app.command("organise")(organise)


def organise(
    overlay: OverlayFile,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="Metrics port of a running replica; may be repeated."),
    ] = None,
    owner: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Trust domain that owns the overlay; with --apply.")
    ] = None,
    organiser: Annotated[
        Path | None,
        typer.Option("--as", metavar="DIR", help="Identity of the organiser, which links with the replicas itself."),
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Sign the change.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="With --as: go on until you are stopped.")] = False,
    wait: Annotated[
        int | None,
        typer.Option(min=1, metavar="SECONDS", help="With --as: so long at most; without it four intervals and 60 s."),
    ] = None,
    grace: Annotated[
        int, typer.Option(min=1, max=3600, metavar="SECONDS", help="How long the former tree stays open.")
    ] = 60,
    as_json: Json = False,
) -> int:
    """Show the link between regions to add, the link to remove, and the saving; sign the change with --apply."""
    from gateway.trust import TrustError

    if organiser is not None:
        if owner is not None or ask:
            raise TrustError("--as links with the replicas itself: leave --owner and --ask out")
        return _as_organiser(overlay, organiser, apply, follow, wait, as_json)
    if not ask:
        raise TrustError("whom to ask? name a replica's metrics port by --ask, or the organiser's identity by --as")
    if apply and owner is None:
        raise TrustError("--apply signs the change: say by --owner DIR whose overlay it is")
    return _as_owner(overlay, ask, owner if apply else None, grace, as_json)


def _as_owner(overlay: Path, ask: list[str], owner: Path | None, grace: int, as_json: bool) -> int:
    from bridge.document import Overlay
    from gateway.owner.organising import apply_swap, edges_lines, gathered, proposed
    from gateway.trust import load_overlay

    told = _summaries(ask)
    signed: Overlay | None = None
    if owner is not None:
        found, signed = apply_swap(overlay, owner, told, time.time(), grace)
    else:
        present = load_overlay(overlay, int(time.time() * 1000))
        found = proposed(present, gathered(told, present), time.time())
    if as_json:
        print_json(found.to_json() | {"version": signed.policy.version if signed else None})
        return 0
    print(_in_words(found))
    if found.swap is None:
        return 0
    if signed is None:
        print("sign it with --apply --owner DIR")
        return 0
    print(f"version {signed.policy.version} signed in {overlay}; give it to any one member")
    print(f"write into the description, or the next `overlay sign` takes it back:\n{edges_lines(signed)}")
    return 0


def _as_organiser(
    overlay: Path, identity: Path, apply: bool, follow: bool, wait: int | None, as_json: bool
) -> int:  # fmt: skip
    from gateway.overlay.organiser import Organiser
    from gateway.trust import TrustError

    client = Organiser(identity, overlay, apply)
    organising = client.overlay.policy.organising
    if organising is None:
        raise TrustError("the overlay has no `organise`, so that nobody measures; ask its owner")
    if apply and client.node.standing():
        raise TrustError(client.node.standing())
    if not follow:  # errors of links are shown at the end, if they prevented a change
        logging.getLogger("veilmq").addHandler(logging.NullHandler())
    wait_s = wait or WAIT_INTERVALS * organising.interval_s + 60
    try:
        return asyncio.run(_organised(client, apply, None if follow else wait_s, as_json))
    except KeyboardInterrupt:
        return 0


async def _organised(client: Organiser, apply: bool, wait_s: float | None, as_json: bool) -> int:
    """Runs the organiser and shows proposals and changes in force; returns the exit status.

    Ends after the first, or after `wait_s` without one; with None follows without end. Raises TrustError if this
    organiser was removed or cannot sign.
    """
    from gateway.trust import TrustError

    node = client.node
    begun, known = time.monotonic(), {swap.digest for swap in client.overlay.swaps}
    shown: object = None
    client.start()
    try:
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            if node.removed or (apply and node.standing()):
                raise TrustError(node.standing() or f"the overlay lists {client.local.name} no more")
            found = node.signed if apply else node.proposed
            is_late = wait_s is not None and time.monotonic() - begun >= wait_s
            if found is not None and found.swap is not None and found.swap != shown:
                shown = found.swap
                _show(found.to_json(), _in_words(found), as_json)
                if not apply and wait_s is not None:
                    return 0
            for swap in [swap for swap in client.overlay.swaps if swap.digest not in known]:
                known.add(swap.digest)
                _show({"in_force": swap.number}, f"tree {swap.number} is in force", as_json)
                if wait_s is not None:
                    return 0
            if is_late:
                return _gave_up(client, as_json)
    finally:
        await client.close()


def _gave_up(client: Organiser, as_json: bool) -> int:
    """Shows why there is no change; returns the exit status.

    1: too few replicas endorsed a change, or none is linked; 0: no change is needed.
    """
    swap, found = client.node.open_swap, client.node.proposed
    if swap is not None:
        agreed = sorted(client.overlay.swap_endorsers(swap))
        why = f"too few endorsed tree {swap.number}, so far: {', '.join(agreed) or 'nobody'}"
    elif not client.node.summaries and client.errors:
        why = "; ".join(f"{peer}: {error or 'not reached yet'}" for peer, error in sorted(client.errors.items()))
    else:
        _show(found.to_json() if found else {}, _in_words(found) if found else "nobody measures", as_json)
        return 0
    _show({"why": why, "in_force": None}, why, as_json)
    return 1


def _show(content: dict[str, Any], words: str, as_json: bool) -> None:
    if as_json:
        print_json(content)
    else:
        print(words, flush=True)


def _in_words(found: Any) -> str:
    from gateway.trust import date_of

    if found.swap is None:
        return f"nothing to change: {found.why}" + (f" until {date_of(found.rests_until)}" if found.rests_until else "")
    swap = found.swap
    spares = (
        f"an interval's publications cost {swap.before / 1e6:.3f} s on links and replicas before, "
        f"{swap.after / 1e6:.3f} s after: {100 * swap.gain:.1f} % less"
    )
    spares = f"{found.why}; what went before is measured still" if found.why else spares
    return f"join {found.edge_names(swap.added)}, part {found.edge_names(swap.removed)}\n{spares}"


def _summaries(ask: list[str]) -> list[str]:
    """Returns the frames that these replicas have heard. Raises TrustError if a replica does not answer."""
    from gateway.trust import TrustError

    told: list[str] = []
    for bind in ask:
        summaries = asked(bind)
        if summaries is None:
            raise TrustError(f"{bind}: no running member of the overlay answers there; name a replica's metrics port")
        told += summaries
    return told


def asked(bind: str) -> list[str] | None:
    """Returns the answer to `/summaries`, or None if no replica of ours answers."""
    import json
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://{bind}/summaries", timeout=ASK_S) as response:
            answer = json.loads(response.read(ANSWER_BYTES_MAX))
    except (OSError, ValueError):
        return None
    told = answer.get("summaries") if isinstance(answer, dict) else None
    return [each for each in told if isinstance(each, str)] if isinstance(told, list) else None
