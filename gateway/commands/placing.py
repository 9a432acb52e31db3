"""`veilmq overlay place`: advises on numbers and places of replicas, from a file or from running members."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.commands.attaching import Described, Grace, Wait, attach, detach
from gateway.commands.printing import Json, as_text, print_json, print_table
from gateway.commands.status import asked

if TYPE_CHECKING:
    from gateway.owner.live_placing import PlaceAdvice, Spare

ASKED_AT_ONCE = 16  # members asked at the same time, each for as long as it takes to answer
ASK_S = 5.0
MINUTES_A_DAY = 1440


def register(overlay_app: typer.Typer) -> None:
    """Adds the command to `veilmq overlay`."""
    overlay_app.command("place")(place)


def place(
    path: Annotated[
        Path, typer.Argument(metavar="FILE", help="Regions, failures and paths; with --live the signed overlay.")
    ],
    live: Annotated[bool, typer.Option("--live", help="Ask running members what they saw fail.")] = False,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=HOST:PORT", help="A replica and its metrics port; once for each to be asked."),
    ] = None,
    spares: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A file NAME.yaml for each replica to spare: card, address.")
    ] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Sign the one step that is proposed; needs --owner.")] = False,
    owner: Annotated[Path | None, typer.Option(metavar="DIR", help="Trust domain that owns the overlay.")] = None,
    description: Described = None,
    grace: Grace = 60,
    wait: Wait = 90,
    as_json: Json = False,
) -> None:
    """Show the number of replicas for each region, or (--live) the replica to attach or detach next."""
    from gateway.trust import TrustError

    if not live:
        if ask or spares or apply:
            raise TrustError("--ask, --spares and --apply ask members that run; add --live")
        _place_described(path, as_json)
        return
    if apply and owner is None:
        raise TrustError("--apply signs, which the owner alone can; add --owner DIR")
    from gateway.owner.live_placing import advise, spares_in
    from gateway.trust import load_overlay

    overlay = load_overlay(path, int(time.time() * 1000))
    names = _addresses(ask or [], overlay.members)
    found = spares_in(spares, overlay) if spares is not None else []
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        answers = dict(zip(names, pool.map(lambda bind: asked(bind, ASK_S), names.values()), strict=True))
    advice = advise(overlay, answers, len(found))
    if as_json:
        print_json(_as_json(advice, found))
    else:
        _print(advice, found)
    if apply and advice.step is not None:
        assert owner is not None
        _sign(path, owner, advice, found, description, grace, wait)


def _addresses(ask: list[str], members: Any) -> dict[str, str]:
    """Returns the metrics addresses by member. Raises TrustError."""
    from gateway.trust import TrustError

    found: dict[str, str] = {}
    for each in ask:
        name, _, bind = each.partition("=")
        if name not in members or not bind.rpartition(":")[2].isdecimal():
            raise TrustError(f"--ask {each}: write NAME=HOST:PORT, a member and its metrics port")
        if name in found:
            raise TrustError(f"--ask {each}: {name} is asked twice; a member has one voice")
        found[name] = bind
    if not found:
        raise TrustError("nobody is asked; add --ask NAME=HOST:PORT for each replica that has a metrics port")
    return found


def _place_described(path: Path, as_json: bool) -> None:
    from gateway.owner.replica_numbers import place_replicas

    content = place_replicas(path).to_json()
    if as_json:
        print_json(content)
        return
    for title in ("regions", "paths"):
        columns = [column.replace("_", " ") for column in content[title][0]]
        print_table(title, columns, [[as_text(value) for value in entry.values()] for entry in content[title]])
    print(f"taken off paths that had too many: {content['stripped']}; left over: {content['unused']}")


def _line(advice: PlaceAdvice, spares: list[Spare]) -> str:
    """Returns the proposal in a line."""
    step = advice.step
    if step is None:
        seen = sum(sum(each.values()) for each in advice.failures.values())
        wants = "no spare is given" if seen and not spares else "nothing would be worth a signature"
        return f"nothing to attach or detach: {seen:g} failures witnessed, {wants}"
    failed = ", ".join(f"{name} {count:g}" for name, count in advice.failures[advice.region].items()) or "none"
    what = (
        f"attach {spares[0].name} to region {advice.region}"
        if step.is_attach
        else f"detach {step.member} from region {advice.region}"
    )
    more = f", {_percent(step.at_end)} after {step.steps - 1} more" if step.steps > 1 else ""
    return (
        f"{what}: a quorum is up {_percent(step.before)} of the time, expected {_percent(step.after)} after it{more}; "
        f"failures there: {failed}"
    )


def _percent(part: float) -> str:
    return f"{100 * part:.4f} %"


def _print(advice: PlaceAdvice, spares: list[Spare]) -> None:
    for name, why in sorted(advice.silent.items()):
        print(f"{name} counts as one that saw nothing: {why}")
    print(_line(advice, spares))


def _as_json(advice: PlaceAdvice, spares: list[Spare]) -> dict[str, Any]:
    step = advice.step
    proposed = None
    if step is not None:
        proposed = {
            "change": "attach" if step.is_attach else "detach",
            "region": advice.region, "member": spares[0].name if step.is_attach else step.member,
            "before": step.before, "after": step.after, "at_end": step.at_end, "steps": step.steps,
            "carried_before": step.overall_before, "carried_at_end": step.overall_at_end,
        }  # fmt: skip
    return {
        "step": proposed, "failures": advice.failures, "rates": advice.rates, "silent": advice.silent,
        "witnesses": advice.witnesses,
    }  # fmt: skip


def _sign(
    path: Path, owner: Path, advice: PlaceAdvice, spares: list[Spare], described: Path | None, grace: int, wait: int
) -> None:
    """Signs a single step. If a spare may not join the region, tries the next spare. Raises TrustError,
    OverlayError.
    """
    from bridge.base import OperatorError
    from gateway.owner.attaching import NotYetError

    step = advice.step
    assert step is not None
    if not step.is_attach:
        detach(path, owner, step.member, grace, wait)
        return
    for spare in spares:
        try:
            attach(path, owner, advice.region, spare.card, spare.address, None, None, described, grace, wait)
        except NotYetError:
            raise
        except OperatorError as error:
            if spare is spares[-1]:
                raise
            print(f"{spare.name} may not: {error}")
        else:
            return
