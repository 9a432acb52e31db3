"""`veilmq check`: finds faults of a configuration before a start, and answers what happens to a topic.

Inspects files, certificates, rights and ports; starts nothing and sends nothing, unless hosted brokers are to be
probed (`probing`). A finding is a line with cause and cure, and an error makes a broker refuse to start. `fates`
answers, topic by topic, where a local publication would go.
"""

from __future__ import annotations

import errno
import os
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from cryptography import x509

from bridge.base import OperatorError, TopicError, check_name, most_specific
from bridge.document import Overlay, Scope, ScopeSecret, constrained
from gateway.base import ConfigError, Limits, Listener, Settings, StartError
from gateway.base.descriptors import SPARE_FILES, allowed_files
from gateway.base.limits import is_loopback
from gateway.checking.check_plugins import check_plugins
from gateway.checking.check_predicates import check_predicates
from gateway.checking.check_traces import check_traces, check_watched
from gateway.checking.check_trust import CheckFinding, check_keys, check_rights, identity_of
from gateway.checking.probing import probe
from gateway.client import LinkTls
from gateway.data import StoreError
from gateway.listening import amqtt_listener, server_context
from gateway.overlay import NOBODY, PLAIN, logins, of_region
from gateway.party import NO_DATA, check_listed, not_granted, outgoing_scopes
from gateway.sessions import waiting_for_bridges
from gateway.trust import LocalIdentity, date_of, load_overlay, load_secrets
from keys.envelope import Mode
from keys.identity import Role

EXPIRY_WARNING_DAYS = 30
IN_USE = "port is in use, which is well if this member runs; else stop what listens there, or bind another port"
DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of a publication on `topic`: protected, shared plain, refused or local only."""

    topic: str
    fate: str
    scope: str = ""
    mode: str = ""
    regions: tuple[str, ...] = ()
    tokens: bool = False
    keys: str = ""
    """The way of data keys and the limits of their renewal."""
    why: str = ""


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings of `veilmq check`, and the fates of the given topics."""

    findings: tuple[CheckFinding, ...]
    fates: tuple[Fate, ...]

    @property
    def failed(self) -> bool:
        return any(finding.level == "error" for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        return {"findings": [asdict(f) for f in self.findings], "topics": [asdict(f) for f in self.fates]}


@dataclass(frozen=True, slots=True)
class _Place:
    """This party in the overlay, as far as it could be loaded."""

    local: LocalIdentity
    overlay: Overlay
    outgoing: Sequence[ScopeSecret]
    now: float
    secrets: Sequence[ScopeSecret] = ()

    @property
    def epoch(self) -> int:
        return self.overlay.policy.calendar.epoch_at(self.now)


def check(settings: Settings, topics: Sequence[str], probed: bool = False) -> CheckReport:
    """Returns all findings needing no start; with `probed` also the findings from probing hosted brokers.

    Raises nothing for a fault: a fault is a finding.
    """
    place, findings = _findings(settings, probed)
    return CheckReport(tuple(findings), tuple(_fate(settings, place, topic) for topic in topics))


def refuse(settings: Settings) -> None:
    """Raises StartError for the first error of `check` stopping a broker: the first act of `veilmq broker`.

    Ports and plugins are left out: binding and loading them raises these errors.
    """
    _, findings = _findings(settings, probed=False, is_start=True)
    for finding in findings:
        if finding.level == "error" and finding.stops:
            raise StartError(finding.text)


def _findings(settings: Settings, probed: bool, is_start: bool = False) -> tuple[_Place | None, list[CheckFinding]]:
    findings: list[CheckFinding] = []
    for name, listener in settings.listeners.items():
        findings += _check_listener(name, listener, is_start)
    if settings.metrics is not None and not is_start:
        findings += _check_port("metrics", settings.metrics.bind)
    findings += _check_limits(settings.limits)
    findings += _check_console(settings)
    findings += _check_telemetry(settings)
    if not is_start:
        findings += check_plugins(settings)
    if settings.data is not None:
        findings.append(_check_data(settings.data))
        findings += _check_bridges(settings, settings.data)
    if settings.traces is not None:
        findings += check_traces(settings.traces, settings.data)
    if settings.watched is not None:
        findings += check_watched(settings.watched)
    place = None
    if settings.overlay is not None:
        place, found = _check_overlay(settings, time.time())
        findings += found
        if place is not None and place.local.role is Role.GATEWAY:
            findings += _check_hosted(settings, place, probed)
            findings += _check_reports(settings, place)
    findings += check_predicates(settings, [secret.clear_filter for secret in place.secrets] if place else ())
    return place, findings


# ------------------------------------------------------------------------------------- listeners, files


def _check_listener(name: str, listener: Listener, is_start: bool) -> Iterator[CheckFinding]:
    for what in ("certfile", "keyfile", "cafile"):
        path = getattr(listener, what)
        if path is not None and not path.is_file():
            yield CheckFinding("error", f"listener {name}: {what} {path} is not a file; correct the path")
    if listener.type == "external" or is_start:
        return
    if (path := listener.unix_path) is not None:
        yield from _check_unix(name, path)
        return
    yield from _check_certificate(name, listener)
    yield from _check_port(f"listener {name}", listener.bind)
    if not (listener.ssl or listener.overlay or is_loopback(listener.bind)):
        yield CheckFinding(
            "warning", f"listener {name}: names, passwords and messages go to {listener.bind} in clear, and other "
            "machines reach it; give certfile and keyfile, or bind 127.0.0.1",
        )  # fmt: skip


def _check_certificate(name: str, listener: Listener) -> Iterator[CheckFinding]:
    """Yields the fault for which a start would refuse the TLS files, and a certificate that has ended or ends soon."""
    if not listener.ssl or listener.certfile is None:
        return
    try:
        server_context(name, amqtt_listener(listener), listener.require_client_certificate)
        certificate = x509.load_pem_x509_certificate(listener.certfile.read_bytes())
    except (StartError, OSError, ValueError) as error:
        yield CheckFinding("error", str(error))
        return
    days = (certificate.not_valid_after_utc.timestamp() - time.time()) / 86_400
    if days < 0:
        text = f"listener {name}: certificate {listener.certfile} ended {-days:.0f} days ago; renew it"
        yield CheckFinding("error", text, stops=False)
    elif days < EXPIRY_WARNING_DAYS:
        yield CheckFinding("warning", f"listener {name}: certificate {listener.certfile} ends in {days:.0f} days")


def _check_telemetry(settings: Settings) -> Iterator[CheckFinding]:
    if settings.telemetry is None:
        return
    try:
        from gateway.telemetry.exporting import headers_of  # noqa: PLC0415  few have it, and it needs OpenTelemetry
    except ImportError:
        yield CheckFinding("error", "telemetry: opentelemetry is missing; pip install 'veilmq[otel]'")
        return
    try:
        headers_of(settings.telemetry.headers_file)
    except StartError as error:
        yield CheckFinding("error", str(error))


def _check_console(settings: Settings) -> Iterator[CheckFinding]:
    if settings.console is not None and find_spec("aiohttp") is None:
        yield CheckFinding("error", "console: aiohttp is missing; pip install 'veilmq[console]'")


def _check_port(who: str, bind: str) -> Iterator[CheckFinding]:
    host, _, port = bind.rpartition(":")
    if not port.isdigit():
        yield CheckFinding("error", f"{who}: bind {bind} is not HOST:PORT; write e.g. 127.0.0.1:1883")
        return
    trouble = _port_trouble(host.strip("[]"), int(port))
    if trouble == IN_USE:  # this member itself may use the port, if it runs
        yield CheckFinding("warning", f"{who}: {bind}: {trouble}")
    elif trouble:
        yield CheckFinding("error", f"{who}: {bind}: {trouble}")
    else:
        yield CheckFinding("ok", f"{who}: {bind} is free")


def _check_unix(name: str, path: Path) -> Iterator[CheckFinding]:
    if not path.parent.is_dir():
        yield CheckFinding("error", f"listener {name}: {path.parent} is no directory; make it or bind another path")
    elif path.exists() and not path.is_socket():
        yield CheckFinding("error", f"listener {name}: {path} is no socket; remove it or bind another path")
    else:
        yield CheckFinding("ok", f"listener {name}: unix:{path} can be made")


def _port_trouble(host: str, port: int) -> str:
    """Returns the reason why a server could not listen there; empty if it could."""
    try:
        candidates = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        return f"no such address ({error.strerror}); bind an address of this machine"
    family, kind, protocol, _, address = candidates[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(address)
            probe.listen(1)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return IN_USE
            if error.errno in (errno.EACCES, errno.EPERM):
                return "not permitted; bind a port above 1023"
            return f"{error.strerror}; bind an address of this machine"
    return ""


def _check_limits(limits: Limits) -> Iterator[CheckFinding]:
    """Yields limits that contradict each other or exceed the limits of this process."""
    files = allowed_files()
    if files is not None and limits.connections + SPARE_FILES > files:
        cure = f"LimitNOFILE={limits.connections + SPARE_FILES} in the service, or ulimit -n, or a smaller bound"
        yield CheckFinding(
            "warning", f"limits.connections is {limits.connections}, open files are limited to {files}; {cure}"
        )
    pairs = (
        ("connections_per_address", "connections"),
        ("half_open", "connections"),
        ("connect_bytes", "packet_bytes"),
    )
    for smaller, larger in pairs:
        if smaller in limits.model_fields_set and getattr(limits, smaller) > getattr(limits, larger):
            yield CheckFinding("warning", f"limits.{smaller} is above limits.{larger}, which holds; lower it")
    if limits.queue_bytes < limits.packet_bytes:
        cure = "raise it or lower packet_bytes"
        yield CheckFinding(
            "warning", f"limits.queue_bytes is below limits.packet_bytes: large messages cannot wait; {cure}"
        )
    if limits.retained_bytes < limits.packet_bytes and limits.retained_messages:
        cure = "raise it or lower packet_bytes"
        yield CheckFinding(
            "warning", f"limits.retained_bytes is below limits.packet_bytes: some cannot be retained; {cure}"
        )


def _check_data(data: Path) -> CheckFinding:
    existing = data
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return CheckFinding("error", f"data directory {data}: {existing} is not a directory; name another")
    if not os.access(existing, os.R_OK | os.W_OK | os.X_OK):
        return CheckFinding("error", f"data directory {data}: no permission to write in {existing}; correct its owner")
    try:
        with tempfile.TemporaryDirectory(prefix=".check", dir=existing):
            pass
    except OSError as error:
        return CheckFinding(
            "error", f"data directory {data}: nothing can be made in {existing}: {error.strerror}; name another"
        )
    if data.exists() and data.stat().st_mode & 0o077:
        return CheckFinding("warning", f"data directory {data} is open to others; chmod 700 {data}")
    return CheckFinding("ok", f"data directory {data}")


def _check_bridges(settings: Settings, data: Path) -> Iterator[CheckFinding]:
    try:
        waiting = waiting_for_bridges(data)
    except StoreError as error:
        yield CheckFinding("warning", str(error))
        return
    for name in sorted(waiting.keys() - settings.bridges.keys()):
        yield CheckFinding(
            "warning",
            f"bridge {name} is configured no more and still has a session, in which {waiting[name]} messages wait; "
            f"if it was renamed, name it {name} again, else stop the broker and run: veilmq bridges forget {name}",
        )


# --------------------------------------------------------------------------------------------- overlay


def _check_overlay(settings: Settings, now: float) -> tuple[_Place | None, list[CheckFinding]]:
    section = settings.overlay
    assert section is not None
    findings: list[CheckFinding] = []
    try:
        local = LocalIdentity.load(section.identity)
        findings.append(CheckFinding("ok", f"identity {local.name} ({local.role.value}) of {local.card.domain}"))
        pin = section.identity / "overlay.pin"
        overlay = load_overlay(section.overlay, int(now * 1000), pin, raises_pin=False)
        check_listed(local.name, overlay, section.overlay)
        local = identity_of(local, overlay)
        LinkTls(local.name, local.cert, local.key_path, overlay.members)
        secrets = load_secrets(local, overlay)[0] if local.role in (Role.GATEWAY, Role.INGEST) else []
        outgoing = outgoing_scopes(section, overlay, [s for s in secrets if not s.scope.retiring])
    except OperatorError as error:
        return None, [*findings, CheckFinding("error", str(error))]
    certificate = overlay.certificate(local.name)
    days = int(certificate.not_after_ms - now * 1000) // DAY_MS
    policy = overlay.policy
    findings.append(
        CheckFinding("ok", f"overlay {policy.overlay} version {policy.version}, certificate for {days} days")
    )
    if days < EXPIRY_WARNING_DAYS:
        findings.append(
            CheckFinding("warning", f"certificate of {local.name} ends in {days} days; ask the owner to sign anew")
        )
    findings += _check_clock(local, now)
    if settings.data is None:  # `veilmq broker --data` may give one
        findings.append(CheckFinding("warning", NO_DATA))
    findings += check_keys(settings, local, overlay, now)
    if local.role in (Role.REPLICA, Role.KEY_SERVER):
        findings += [CheckFinding("error", text) for text in not_granted(section, ())]
        return _Place(local, overlay, (), now), findings + _check_listens(settings, local.role)
    is_gateway = local.role is Role.GATEWAY
    findings += [CheckFinding("error", text, stops=not is_gateway) for text in not_granted(section, secrets)]
    findings += check_rights(local.name, overlay, secrets, outgoing, now)
    return _Place(local, overlay, outgoing, now, secrets), findings


def _check_clock(local: LocalIdentity, now: float) -> Iterator[CheckFinding]:
    """Yields a warning if our clock is behind the time at which our own certificate was issued."""
    try:
        issued = x509.load_pem_x509_certificate(local.cert.read_bytes()).not_valid_before_utc.timestamp()
    except (OSError, ValueError):
        return  # found where links need it
    if issued > now:
        said = f"our certificate counts from {date_of(issued)}, and our clock says {date_of(now)}"
        yield CheckFinding("warning", f"{said}; set the clock by NTP, or no member lets us in")


def _check_hosted(settings: Settings, place: _Place, probed: bool) -> Iterator[CheckFinding]:
    overlay, section = place.overlay, settings.overlay
    assert section is not None
    try:
        known = logins(overlay, place.local.name, section.hosted)
        for broker in of_region(overlay, place.local.name):
            login, address = known.get(broker, NOBODY), overlay.members[broker].address
            if address.startswith(PLAIN) and login.password is not None:
                yield CheckFinding(
                    "warning", f"{broker} ({address}): the password goes there in clear; use a TLS listener"
                )
            elif not probed:
                yield CheckFinding("ok", f"{broker} ({address}) is a hosted broker; --probe asks it what it carries")
        if probed:
            readable = [s for s in place.secrets if overlay.may_read(place.local.name, s.scope, place.epoch)]
            yield from probe(overlay, place.local.name, section.hosted, [s.scope.filter for s in readable])
    except ConfigError as error:
        yield CheckFinding("error", str(error))


def _check_listens(settings: Settings, role: Role) -> list[CheckFinding]:
    if any(listener.overlay for listener in settings.listeners.values()):
        return []
    who = "replica" if role is Role.REPLICA else "key server"
    return [
        CheckFinding("error", f"a {who} needs a listener with overlay: true; add one on the address in the overlay")
    ]


def _check_reports(settings: Settings, place: _Place) -> Iterator[CheckFinding]:
    """Yields a finding on trace reports: sealed, or not leaving. The configuration refuses unsealed reports."""
    if settings.traces is None or settings.traces.report is None:
        return
    topic = f"{settings.traces.report.prefix}/{place.local.name}/ENTITY/trace"
    fate = _fate(settings, place, topic)
    if fate.fate == "protected":
        yield CheckFinding("ok", f"traces.report: {topic} leaves sealed")
    else:
        yield CheckFinding(
            "warning", f"traces.report: {topic}: {fate.fate}: {fate.why}; choose a prefix that is protected"
        )


def _fate(settings: Settings, place: _Place | None, topic: str) -> Fate:
    try:
        check_name(topic)
    except TopicError as error:
        return Fate(topic, "refused", why=str(error))
    if constrained.stays_here(topic):
        return Fate(topic, "local only", why="its own name suppresses that it is passed on")
    if topic.startswith("$") and not constrained.is_constrained(topic):
        return Fate(topic, "local only", why="names that begin with $ never leave the broker")
    if settings.overlay is None:
        return Fate(topic, "local only", why="there is no overlay section")
    if place is None:
        return Fate(topic, "unknown", why="the overlay could not be loaded")
    outgoing = {secret.clear_filter: secret for secret in place.outgoing}
    name = most_specific(outgoing, topic)
    if name is None:
        return Fate(topic, "local only", why="neither protect nor share_plain holds it")
    secret = outgoing[name]
    scope, overlay = secret.scope, place.overlay
    regions = tuple(overlay.views[region].name for region in sorted(overlay.regions_of(scope)))
    epoch = overlay.policy.calendar.epoch_at(place.now)
    if not overlay.may_publish(place.local.name, secret.wire_topic(topic), epoch):
        return Fate(topic, "refused", name, why="the overlay's policy does not let us publish there; ask the owner")
    if scope.mode is Mode.PLAIN:
        beyond = "every replica of our region, and elsewhere by those on a plane with readers"
        why = f"signed, but readable by {beyond if scope.by_planes else 'replicas'}"
        return Fate(topic, "shared plain", name, "plain", regions, why=why)
    return Fate(topic, "protected", name, scope.mode.name.lower(), regions, scope.tokens, _keys(scope))


def _keys(scope: Scope) -> str:
    messages, sealed_bytes, seconds = scope.refresh.values
    way = "on a topic of their own" if scope.keys_on_topic else "riding"
    return f"keys {way}, new after {messages} messages, {sealed_bytes} bytes or {seconds} s"
