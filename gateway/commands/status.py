"""`veilmq status`: present faults of a running member and their cures, asked at its metrics port."""

# ruff: noqa: PLC0415  heavy imports happen inside the commands, so that --help and completion answer at once

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.commands.printing import print_json, print_table

ASK_S = 10.0
EXIT = {"well": 0, "degraded": 1, "broken": 2}
ANSWER_BYTES_MAX = 16 << 20


def register(app: typer.Typer) -> None:
    """Adds the command to `veilmq`."""
    app.command()(status)


def status(
    config: Annotated[
        Path, typer.Option("-c", "--config", metavar="FILE", help="Configuration of the running member.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON for a program to read.")] = False,
) -> int:
    """Show present faults and their cures. Exit status 0: well, 1: degraded, 2: broken or not running."""
    from gateway.base import ConfigError, load

    settings = load(config)
    if settings.metrics is None:
        raise ConfigError(f"{config}: has no metrics section, where a running member is asked; add metrics: {{}}")
    answer = asked(settings.metrics.bind)
    if as_json:
        print_json(answer)
    else:
        _print(answer)
    return EXIT[answer["level"]]


def asked(bind: str, within_s: float = ASK_S) -> dict[str, Any]:
    """Returns the answer to `/status`; without an answer, a report of a broken member."""
    import json
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://{bind}/status", timeout=within_s) as response:
            answer = json.loads(response.read(ANSWER_BYTES_MAX))
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
    for name, bridge in answer.get("bridges", {}).items():
        print(f"bridge {name}: {'connected' if bridge['up'] else 'away'}, {bridge['waiting']} messages wait for it")
    if not answer["findings"]:
        print("well")


def _print_overlay(overlay: dict[str, Any]) -> None:
    rows = [
        [region["name"], f"{len(region['up'])} of {len(region['members'])}", str(region["needed"]),
         ", ".join(sorted(region["away"]))]
        for region in overlay["regions"]
    ]  # fmt: skip
    if rows:
        print_table("", ["region", "replicas connected", "needed", "away"], rows)
    print(
        f"{overlay['name']}, {overlay['role']}: version {overlay['version']} of the overlay, epoch {overlay['epoch']}"
    )
    members: dict[int, list[str]] = {}
    for name, version in sorted(overlay["versions"].items()):
        members.setdefault(version, []).append(name)
    for version, names in sorted(members.items()):
        print(f"version {version} is in force at {', '.join(names)}")
    if overlay["outbox_depth"]:
        oldest_s = overlay["oldest_s"]
        waits = f"the oldest waits for {oldest_s:.0f} s" if oldest_s else "kept for replicas that are away"
        print(f"outbox: {overlay['outbox_depth']} publications, {waits}")
