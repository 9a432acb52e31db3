"""`veilmq status`: present faults of a running member or a whole overlay, and their cures, asked at metrics ports."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.printing import Json, print_json, print_table, utc_text

ASK_S = 10.0
EXIT = {"well": 0, "degraded": 1, "broken": 2}
ANSWER_BYTES_MAX = 16 << 20  # of the broker that is asked


def register(app: typer.Typer) -> None:
    """Adds the command to `veilmq`."""
    app.command()(status)


def status(
    config: Annotated[
        Path | None, typer.Option("-c", "--config", metavar="FILE", help="Configuration of the running member.")
    ] = None,
    overlay: Annotated[
        Path | None, typer.Option(metavar="FILE", help="overlay.json: ask all members whose folders lie beside it.")
    ] = None,
    ask: Annotated[
        list[str] | None,
        typer.Option(metavar="HOST:PORT", help="With --overlay: metrics port of a member elsewhere; repeatable."),
    ] = None,
    as_json: Json = False,
) -> int:
    """Show present faults and their cures. Exit status 0: well, 1: degraded, 2: broken or not running."""
    from gateway.base import ConfigError, load

    if (config is None) == (overlay is None) or (ask and overlay is None):
        raise ConfigError("whose status? -c FILE for one member, --overlay FILE (and --ask) for all of an overlay")
    if overlay is not None:
        return _of_overlay(overlay, ask or (), as_json)
    assert config is not None
    settings = load(config)
    if settings.metrics is None:
        raise ConfigError(f"{config}: has no metrics section, where a running member is asked; add metrics: {{}}")
    answer = asked(settings.metrics.bind)
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    return EXIT[answer["level"]]


def _of_overlay(file: Path, ask: Sequence[str], as_json: bool) -> int:
    from gateway.commands.overlay_status import ask_all, binds_beside, judge
    from gateway.trust import load_overlay

    overlay = load_overlay(file, int(time.time() * 1000))
    beside = {name: bind for name, bind in binds_beside(file).items() if name in overlay.members}
    named = {bind: name for name, bind in beside.items()}
    binds = list(dict.fromkeys([*named, *ask]))
    verdict = judge(overlay, dict(zip(binds, ask_all(binds, asked), strict=True)), named)
    if as_json:
        print_json(verdict.to_json())
        return EXIT[verdict.level]
    print_table(
        "",
        ["member", "role", "region", "standing", "version"],
        [
            [name, one["role"], one["region"], one["standing"], str(one["version"] or "")]
            for name, one in verdict.members.items()
        ],
    )
    for finding in verdict.findings:
        said_by = f" (says {', '.join(finding['said_by'])})" if len(finding["said_by"]) > 1 else ""
        print(f"{finding['level']}: {finding['text']}{said_by}")
    count = sum(one["version"] is not None for one in verdict.members.values())
    print(f"{overlay.policy.overlay}: {verdict.level}; {count} of {len(overlay.members)} members answered")
    return EXIT[verdict.level]


def fetched(bind: str, what: str, within_s: float) -> Any:
    """Returns what a member's port of metrics answers to a question, as JSON. Raises OSError, ValueError."""
    import json
    import urllib.request

    with urllib.request.urlopen(f"http://{bind}/{what}", timeout=within_s) as response:
        return json.loads(response.read(ANSWER_BYTES_MAX))


def asked(bind: str, within_s: float = ASK_S) -> dict[str, Any]:
    """Returns the answer to `/status`; without an answer, a report of a broken member."""
    try:
        answer = fetched(bind, "status", within_s)
    except OSError as error:
        why = getattr(error, "reason", None) or error
        return _broken(f"nothing answers at {bind} ({why}); start it with `veilmq broker`, or see its log")
    except ValueError:
        answer = None
    if isinstance(answer, dict) and answer.get("level") in EXIT and isinstance(answer.get("findings"), list):
        return answer
    return _broken(f"what answers at {bind} is no member of ours; stop it, or name another port in metrics.bind")


def _broken(text: str) -> dict[str, Any]:
    return {"level": "broken", "findings": [{"level": "broken", "key": "away", "text": text}]}


def _print(answer: dict[str, Any]) -> None:
    for finding in answer["findings"]:
        print(f"{finding['level']}: {finding['text']}")
    overlay = answer.get("overlay")
    if overlay:
        _print_overlay(overlay)
    _print_histories(answer.get("histories", ()))
    for name, bridge in answer.get("bridges", {}).items():
        print(f"bridge {name}: {'connected' if bridge['up'] else 'away'}, {bridge['waiting']} messages wait for it")
    if not answer["findings"]:
        print("well")


def _print_histories(histories: Sequence[dict[str, Any]]) -> None:
    for one in histories:
        reach = (
            f"since {utc_text(one['first_ms'])} UTC, {one['bytes'] / 1e6:.1f} MB" if one["first_ms"] else "nothing yet"
        )
        print(f"history of {one['scope']}: {reach}")


def _print_overlay(overlay: dict[str, Any]) -> None:
    rows = [
        [region["name"], f"{len(region['up'])} of {len(region['members'])}", str(region["needed"]),
         ", ".join(sorted(region["away"]))]
        for region in overlay["regions"]
    ]  # fmt: skip
    dialled = {region["name"] for region in overlay["regions"]}
    rows += [
        [region["name"], f"{len(region['members']) - len(region['silent'])} of {len(region['members'])} heard",
         str(region["needed"]), ", ".join(region["silent"])]
        for region in overlay.get("presence", ()) if region["name"] not in dialled
    ]  # fmt: skip
    if rows:
        print_table("", ["region", "replicas connected", "needed", "away"], rows)
    for scope in overlay.get("rights", ()):
        may = " and ".join(right for right in ("publish", "read") if scope[right])
        print(f"{overlay['name']} may {may or 'neither publish nor read'} {scope['scope']}")
    print(
        f"{overlay['name']}, {overlay['role']}: version {overlay['version']} of the overlay, epoch {overlay['epoch']}"
    )
    if overlay.get("classical"):
        print(f"keys are sealed with X25519 alone, which is not quantum-safe, to {', '.join(overlay['classical'])}")
    members: dict[int, list[str]] = {}
    for name, version in sorted(overlay["versions"].items()):
        members.setdefault(version, []).append(name)
    for version, names in sorted(members.items()):
        print(f"version {version} is in force at {', '.join(names)}")
    _print_histories(overlay.get("histories", ()))
    for one in overlay.get("readers", ()):
        waits = f"{one['unreceived_s']:.0f} s without a receipt" if one["unreceived_s"] else "has all"
        print(f"{one['reader']} reads {one['scope']}: {waits}, last receipt {utc_text(one['time_ms'])} UTC")
    if overlay["outbox_depth"]:
        oldest_s = overlay["oldest_s"]
        waits = f"the oldest waits for {oldest_s:.0f} s" if oldest_s else "kept for replicas that are away"
        print(f"outbox: {overlay['outbox_depth']} publications, {waits}")
