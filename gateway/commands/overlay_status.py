"""The standing of a whole overlay: every member that can be asked, and a single verdict.

Members are asked at their metrics ports: those whose folders lie beside the overlay file, as `veilmq init` makes them,
and those named by address. Of the others their neighbours and the signed words of replicas tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridge.document import Overlay
from gateway.base import ConfigError, Settings, load
from gateway.setup import role_folders
from keys.identity import CARRIERS, Role

ASKED_AT_ONCE = 16
"""Members asked at once: an overlay of many members that are away does not take minutes."""
LEVELS = ("well", "degraded", "broken")
SHARED = ("region:", "way:", "named:", "keyservers:")
"""Keys of findings about the overlay: every member that has one says the same, and it is shown once."""


@dataclass(slots=True)
class OverlayVerdict:
    """The verdict on an overlay. `members`: by name, role, region, standing and version, as a program reads them."""

    level: str = "well"
    findings: list[dict[str, Any]] = field(default_factory=list)
    members: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add_finding(self, level: str, text: str, said_by: Sequence[str] = ()) -> None:
        """Adds a finding; the worst finding is the verdict."""
        self.findings.append({"level": level, "text": text, "said_by": list(said_by)})
        self.level = max(self.level, level, key=LEVELS.index)

    def to_json(self) -> dict[str, Any]:
        return {"level": self.level, "findings": self.findings, "members": self.members}


def binds_beside(overlay_file: Path) -> dict[str, str]:
    """Returns the metrics addresses of members whose folders lie beside the overlay file, or beside the folder of the
    member holding it, by name of the folder.
    """
    return {name: one.metrics.bind for name, one in settings_beside(overlay_file).items() if one.metrics is not None}


def settings_beside(overlay_file: Path) -> dict[str, Settings]:
    """Returns the configurations of members whose folders lie beside the overlay file, or beside the folder of the
    member holding it, by name of the folder.
    """
    here = overlay_file.resolve().parent
    parent = here.parent if (here / "broker.yaml").is_file() else here
    found: dict[str, Settings] = {}
    for folder in role_folders(parent):
        with suppress(ConfigError):  # `veilmq check` says why; the verdict lists the member as not asked
            found[folder.name] = load(folder.config)
    return found


def ask_all(binds: Sequence[str], asked: Callable[[str], dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the answers of all addresses, in order. `asked`: asks one."""
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        return list(pool.map(asked, binds))


def judge(overlay: Overlay, answers: Mapping[str, Mapping[str, Any]], named: Mapping[str, str]) -> OverlayVerdict:
    """Returns the verdict. `answers`: by address; `named`: the expected member by address, where it is known."""
    verdict = OverlayVerdict()
    told = _by_member(answers)
    silent = {named[at]: at for at, answer in answers.items() if at in named and not answer.get("overlay")}
    for name, member in sorted(overlay.members.items()):
        certificate = member.certificate
        answer = told.get(name)
        standing = "not asked" if answer is None else answer["level"]
        if answer is None and name in silent:
            standing = "does not answer"
            serves = certificate.role is Role.GATEWAY
            what = "its clients are not served" if serves else "its part of the work is left to others"
            verdict.add_finding("broken" if serves else "degraded", f"{name} does not answer at {silent[name]}: {what}")
        elif answer is None and certificate.role in CARRIERS:
            standing = _told_by_others(name, told)
        verdict.members[name] = {
            "role": certificate.role.value,
            "region": overlay.views[certificate.region].name if certificate.region in overlay.views else "",
            "standing": standing,
            "version": None if answer is None else answer["overlay"]["version"],
        }
    for at in sorted(answers.keys() - named.keys()):
        if not answers[at].get("overlay"):
            said = next((str(one["text"]) for one in answers[at]["findings"]), "it is in no overlay")
            verdict.add_finding("broken", f"{at}: {said}")
    if not told:
        verdict.add_finding(
            "broken", "no member could be asked; start them, or name metrics ports with --ask HOST:PORT"
        )
    _add_findings(verdict, told)
    newest = max([overlay.policy.version, *(answer["overlay"]["version"] for answer in told.values())])
    if newest != overlay.policy.version:
        verdict.add_finding(
            "degraded", f"members have version {newest} of the overlay, the file is {overlay.policy.version}"
        )
    verdict.findings.sort(key=lambda finding: -LEVELS.index(finding["level"]))
    return verdict


def _by_member(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    return {answer["overlay"]["name"]: answer for answer in answers.values() if answer.get("overlay")}


def _told_by_others(name: str, told: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the standing of a replica that was not asked. A link with the replica, or one signed word of it, shows
    that it lives.
    """
    known = False
    for answer in told.values():
        for region in answer["overlay"]["regions"]:
            known |= name in region["members"]
            if name in region["up"]:
                return "connected"
        for region in answer["overlay"].get("presence", ()):
            known |= name in region["silent"]
            if name in region["heard"] and name not in region["silent"]:
                return "heard"
    return "away" if known else "not asked"


def _add_findings(verdict: OverlayVerdict, told: Mapping[str, Mapping[str, Any]]) -> None:
    """Adds the members' findings: those about the overlay once, with the members saying so."""
    shared: dict[tuple[str, str, str], tuple[str, list[str]]] = {}
    for name, answer in sorted(told.items()):
        for finding in answer["findings"]:
            level, key, text = finding["level"], finding["key"], finding["text"]
            if key.startswith(SHARED):
                shared.setdefault((level, key, finding.get("about", "")), (text, []))[1].append(name)
            else:
                verdict.add_finding(level, text if text.startswith(f"{name} ") else f"{name}: {text}", [name])
    for (level, _, _), (text, names) in shared.items():
        verdict.add_finding(level, text, names)
