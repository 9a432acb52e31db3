"""Judgement of a member's standing: a list of present faults with their cures. Pure: no clock, no I/O.

    well       everything as it should be
    degraded   works, and needs an operator before long
    broken     publications of clients do not arrive, or are about to be refused

Each finding has a key under which it begins and ends once in the log, and a line with cause and cure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from gateway.base import HistoryState
from gateway.overlay import OverlayStanding, RegionPresence, RegionStanding

WELL, DEGRADED, BROKEN = "well", "degraded", "broken"
LEVELS = (WELL, DEGRADED, BROKEN)
DAY_S = 86_400.0
ENDS_WARN_S = 60 * DAY_S
CLOCK_WARN_S = 5.0
CLOCK_BROKEN_S = 60.0
"""The clock skew in seconds that an overlay tolerates unless its owner sets another."""
DISK_WARN_BYTES = 1 << 30
DISK_BROKEN_BYTES = 64 << 20
OUTBOX_OLD_S = 60.0
OUTBOX_FULL = 0.9
KEYS_LATE_SHARE = 0.5
"""Share of the time for fetching the next epoch's keys that may pass before a late key is reported."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault of a member.

    `level`: degraded or broken. `key`: constant for a cause. `text`: cause and cure in a line. `about`: the affected
    members or objects. A change of `about` is reported anew without an end of the finding. `elsewhere`: the fault is
    another region's, and clients are served here as they should be.
    """

    level: str
    key: str
    text: str
    about: str = ""
    elsewhere: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """The standing of a whole process at one moment.

    `ends`: expiry times (UNIX, seconds) by the name of the expiring object. `disk_free`: bytes by directory.
    `histories`: of a broker without overlay. `defects`: internal errors of the broker since the start. `more`: findings
    of parts that judge themselves.
    """

    now: float
    overlay: OverlayStanding | None = None
    ends: Mapping[str, float] = field(default_factory=dict)
    disk_free: Mapping[str, int] = field(default_factory=dict)
    clients: int = 0
    connections: int = 0
    connections_max: int = 0
    defects: int = 0
    histories: tuple[HistoryState, ...] = ()
    more: tuple[Finding, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthReport:
    """The content of the answer to `/status`."""

    level: str
    findings: tuple[Finding, ...]
    view: View

    def to_json(self) -> dict[str, Any]:
        overlay = self.view.overlay
        return {
            "level": self.level,
            "findings": [asdict(finding) for finding in self.findings],
            "clients": self.view.clients,
            "connections": self.view.connections,
            "ends": {what: round(end) for what, end in all_ends(self.view).items()},
            "disk_free_bytes": dict(self.view.disk_free),
            "overlay": asdict(overlay) if overlay else None,
            "histories": [asdict(one) for one in self.view.histories],
            **self.view.details,
        }


def all_ends(view: View) -> dict[str, float]:
    """Returns expiry times (UNIX, seconds) by name: certificates of files and of the overlay."""
    return {**view.ends, **(view.overlay.ends if view.overlay else {})}


def judge(view: View) -> HealthReport:
    """Returns a report of all faults, the worst first."""
    findings = [*view.more, *_ends(view), *_disk(view), *_connections(view), *_defects(view)]
    findings += _histories(view.histories)
    if view.overlay is not None:
        findings += _overlay(view.overlay)
    findings.sort(key=lambda finding: (-LEVELS.index(finding.level), finding.key))
    level = max((finding.level for finding in findings), key=LEVELS.index, default=WELL)
    return HealthReport(level, tuple(findings), view)


def _ends(view: View) -> Iterator[Finding]:
    for what, end in all_ends(view).items():
        left_s = end - view.now
        key = f"end:{what}"
        if left_s <= 0:
            yield Finding(BROKEN, key, f"the {what} ended {_days(-left_s)} ago; {_cure(what)}")
        elif left_s < ENDS_WARN_S:
            yield Finding(DEGRADED, key, f"the {what} ends in {_days(left_s)}; {_cure(what)}")


def _cure(what: str) -> str:
    if "in the overlay" in what:
        return "ask the overlay's owner to sign anew: `veilmq overlay renew`"
    if "of identity" in what:
        return "renew it with `veilmq trust renew`"
    return "put a new one in its place"


def _days(seconds: float) -> str:
    return f"{seconds / DAY_S:.0f} days" if seconds >= 2 * DAY_S else f"{seconds / 3600:.1f} hours"


def _disk(view: View) -> Iterator[Finding]:
    for directory, free in view.disk_free.items():
        if free < DISK_WARN_BYTES:
            level = BROKEN if free < DISK_BROKEN_BYTES else DEGRADED
            yield Finding(level, f"disk:{directory}", f"{directory}: {free >> 20} MiB are free on its disk; make room")


def _connections(view: View) -> Iterator[Finding]:
    if view.connections_max and view.connections >= 0.9 * view.connections_max:
        yield Finding(
            DEGRADED,
            "connections",
            f"{view.connections} of {view.connections_max} connections are taken; raise limits.connections",
        )


def _defects(view: View) -> Iterator[Finding]:
    """Yields a finding if there were internal errors; the finding lasts until the process restarts."""
    count = view.defects + (view.overlay.failures if view.overlay is not None else 0)
    if count:
        said = f"{count} internal errors since the start, each of which refused something"
        yield Finding(DEGRADED, "defects", f"{said}; report the tracebacks in the log, and restart when it suits")


# ---------------------------------------------------------------------------------------------- overlay


_REFUSALS = {
    "time": "compare its clock and ours",
    "generation": "this identity may run twice",
    "view": "compare clocks and versions of the overlay",
    "right": "compare versions of the overlay; ask its owner for the right",
    "budget": "we send more than the policy allows",
}


_REFUSED = {
    "time": "set both clocks by NTP",
    "generation": "its identity may run twice",
    "view": "compare clocks and versions of the overlay",
    "right": "compare versions of the overlay",
}
"""Cures of refusals of others' publications. A budget that is spent is the publisher's own affair."""


def _histories(histories: Sequence[HistoryState]) -> Iterator[Finding]:
    for why in {each.refused for each in histories if each.refused}:
        said = f"the disk takes nothing of the history ({why}), which lacks what passes now; make room, or see the log"
        yield Finding(DEGRADED, "history", said)


def _overlay(one: OverlayStanding) -> Iterator[Finding]:
    if one.removed:
        yield Finding(BROKEN, "removed", f"the overlay lists {one.name} no longer; ask its owner, or stop this process")
        return
    if one.outlived:
        said = f"{one.name} was started again elsewhere, with the same identity, and seals nothing here"
        yield Finding(BROKEN, "outlived", f"{said}; stop one of the two, then start the other one again")
    for region in one.regions:
        yield from _region(region)
    yield from _presence(one)
    yield from _rights(one)
    if one.key_servers is not None:
        yield from _key_servers(one.key_servers, bool(one.keys_missing))
    yield from _outbox(one)
    yield from _keys(one)
    yield from _histories(one.histories)
    for peer, reason in sorted(one.refusals.items()):
        said = f"{peer} refuses what we publish: {reason}; {_REFUSALS.get(reason, 'see its log')}"
        yield Finding(DEGRADED, f"refused:{peer}", said)
    for peer, reason in sorted(one.refused.items()):
        if reason in _REFUSED:
            said = f"{one.name} refuses what {peer} publishes: {reason}; {_REFUSED[reason]}, or ask who runs {peer}"
            yield Finding(DEGRADED, f"refuses:{peer}", said)
    for peer, ahead_s in sorted(one.clocks.items()):
        if abs(ahead_s) >= CLOCK_WARN_S:
            way = "ahead of" if ahead_s > 0 else "behind"
            level = BROKEN if abs(ahead_s) >= CLOCK_BROKEN_S else DEGRADED
            said = f"the clock of {peer} was {abs(ahead_s):.0f} s {way} ours when it connected; set both by NTP"
            yield Finding(level, f"clock:{peer}", said)
    older = sorted(peer for peer, version in one.versions.items() if version < one.version)
    if older:
        said = f"{', '.join(older)} still has an older version of the overlay than {one.version}; wait, or see its log"
        yield Finding(DEGRADED, "versions", said)
    newer = {peer: version for peer, version in one.versions.items() if version > one.version}
    if newer:
        said = f"{', '.join(sorted(newer))} has version {max(newer.values())} of the overlay, we have {one.version}"
        yield Finding(DEGRADED, "version", f"{said}; restart, if the log says that it takes one")
    for member, why in sorted(one.named.items()):
        yield Finding(DEGRADED, f"named:{member}", f"{member} lied: {why}; detach it with `veilmq overlay detach`")


def _region(region: RegionStanding) -> Iterator[Finding]:
    if not region.away:
        return
    up, needed = len(region.up), region.needed
    level = BROKEN if up < needed else DEGRADED
    lost = "quorum is lost: " if up < needed else ""
    reasons = "; ".join(f"{name} is away{f' ({why})' if why else ''}" for name, why in sorted(region.away.items()))
    said = f"region {region.name}: {lost}{up} of {len(region.members)} replicas connected, {needed} needed: {reasons}"
    yield Finding(level, f"region:{region.name}:{level}", said, ",".join(sorted(region.away)))


def _presence(one: OverlayStanding) -> Iterator[Finding]:
    """Yields faults of regions that this member does not dial, and of the ways between regions, as replicas tell."""
    if one.regions and all(len(region.up) < region.needed for region in one.regions):
        return  # no word can arrive here
    dialled = {region.name: len(region.up) >= region.needed for region in one.regions}
    living = {
        region.name: dialled.get(region.name, len(region.members) - len(region.silent) >= region.needed)
        for region in one.presence
    }
    needed = {region.name: region.needed for region in one.presence}
    for region in one.presence:
        if region.silent and region.name not in dialled:
            yield _silent(region, living[region.name])
        for other, reached in sorted(region.reaches.items()):
            if living[region.name] and living.get(other) and reached < needed[other]:
                said = f"region {region.name} reaches {reached} replicas of region {other}, {needed[other]} needed"
                cure = "nothing passes from one to the other; see the replicas' logs and the network between them"
                key = f"way:{region.name}:{other}"
                yield Finding(BROKEN, key, f"{said}: {cure}", str(reached), elsewhere=True)


def _silent(region: RegionPresence, is_living: bool) -> Finding:
    level = DEGRADED if is_living else BROKEN
    lost = "" if is_living else "quorum is lost, and what is published reaches no client there: "
    heard = len(region.members) - len(region.silent)
    since = ", ".join(
        f"{name} ({f'{region.heard[name]:.0f} s ago' if name in region.heard else 'not since we started'})"
        for name in region.silent
    )
    said = f"region {region.name}: {lost}{heard} of {len(region.members)} replicas heard, {region.needed} needed"
    return Finding(
        level,
        f"region:{region.name}:{level}",
        f"{said}; last heard: {since}; ask who runs them",
        ",".join(region.silent),
        elsewhere=True,
    )


def _rights(one: OverlayStanding) -> Iterator[Finding]:
    refused = {"publish": "publications are refused (0x87)", "read": "subscriptions are refused (0x87)"}
    for scope in one.rights:
        for right, then in refused.items():
            lost = right in scope.lost
            if not lost and right not in scope.refused:
                continue
            what = f"{'lost' if lost else 'has'} {'the' if lost else 'no'} right to {right} {scope.scope}"
            grant = f"veilmq trust grant overlay.json --owner owner --member {one.name} --{right} '{scope.scope}'"
            cure = f"`{grant}` at its owner"
            text = (
                f"{one.name} {what}: {then}; to have it back: {cure}" if lost else f"{one.name} {what}: {then}; {cure}"
            )
            yield Finding(BROKEN if lost else DEGRADED, f"right:{right}:{scope.scope}", text)


def _key_servers(servers: RegionStanding, is_urgent: bool) -> Iterator[Finding]:
    if not servers.away:
        return
    up, needed = len(servers.up), servers.needed
    level = BROKEN if up < needed and is_urgent else DEGRADED
    enough = "enough for keys" if up >= needed else f"{needed} needed for keys of the next epoch"
    said = f"key servers: {up} of {len(servers.members)} connected, {enough}; start {', '.join(sorted(servers.away))}"
    yield Finding(level, f"keyservers:{level}", said, ",".join(sorted(servers.away)))


def _outbox(one: OverlayStanding) -> Iterator[Finding]:
    if one.outbox_bytes_max and one.outbox_bytes >= OUTBOX_FULL * one.outbox_bytes_max:
        share = 100 * one.outbox_bytes // one.outbox_bytes_max
        said = (
            f"the outbox is {share} % full; publications are refused at 100: raise overlay.outbox_bytes, or see links"
        )
        yield Finding(BROKEN, "outbox:full", said)
    elif one.oldest_s >= OUTBOX_OLD_S:
        said = (
            f"{one.outbox_depth} publications wait in the outbox; too few replicas have the oldest, for"
            f" {one.oldest_s:.0f} s: see the links"
        )
        yield Finding(DEGRADED, "outbox:old", said)


def _keys(one: OverlayStanding) -> Iterator[Finding]:
    if one.keys_missing:
        said = f"no key of epoch {one.epoch} for {', '.join(one.keys_missing)}: nothing is sealed or opened there"
        yield Finding(BROKEN, "keys:now", f"{said}; see the key servers and the rights")
    elif one.keys_late and one.late_s >= KEYS_LATE_SHARE * (one.late_s + one.epoch_left_s):
        said = f"no key of the next epoch yet for {', '.join(one.keys_late)}; see the key servers"
        yield Finding(DEGRADED, "keys:next", said)
