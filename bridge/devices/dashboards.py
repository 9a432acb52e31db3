"""What existing dashboards show of unchanged devices: retained documents of Home Assistant and Homie.

    Home Assistant   a discovery message for a binary sensor of class `connectivity`, and the sensor's state, a JSON
                     object, on `homeassistant/binary_sensor/veilmq-…/state`
    Homie 5          `homie/5/veilmq-…/$description` and `$state`; what is amiss is no state there, but `$alert/health`

Everything has `veilmq` at the front of its name, which `conventions` never reads: neither our own documents nor those
of another gateway come back as a word. An empty payload clears. Not here: what is true of a device (`life_evidence`).
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field

from bridge.devices.conventions import HOME_ASSISTANT, HOMIE
from bridge.devices.discovery import OFFLINE, ONLINE, OURS
from bridge.devices.life_evidence import DeviceHealth
from bridge.document import OwnTopics
from bridge.traces import TraceKind

EXPIRE_AFTER_S = 900  # a state that is not said anew for so long is of a gateway that is no more
GATEWAY_STATE = f"{HOME_ASSISTANT}/binary_sensor/{OURS}-gateway/state"
SLUG_MAX = 48  # characters of a device's name in names of topics; a hash tells longer ones apart
ALERT = "$alert/health"
DASHBOARDS = (HOME_ASSISTANT, HOMIE)
BEGINNINGS = {HOME_ASSISTANT: f"{HOME_ASSISTANT}/binary_sensor/{OURS}-", HOMIE: f"{HOMIE}/5/{OURS}-"}  # of all topics


@dataclass(frozen=True, slots=True)
class Show:
    """Publish to local clients, retained; an empty payload clears the topic."""

    topic: str
    payload: bytes


@dataclass(slots=True)
class Dashboards:
    """The documents of a gateway's devices. `kinds`: the conventions to write in."""

    kinds: tuple[str, ...]
    _described: set[str] = field(default_factory=set)
    _alerts: dict[str, str] = field(default_factory=dict)  # what is shown to be amiss; empty: nothing

    def reserve_topics(self, own: OwnTopics) -> None:
        """Nobody else publishes what we show."""
        own.add_shown(*(BEGINNINGS[kind] for kind in self.kinds))

    def show(self, entity: str, health: DeviceHealth, state: TraceKind | None, since_ms: int, why: str) -> list[Show]:
        """Shows the present health of an entity. `since_ms`: UNIX time; `why`: a few words, may be empty."""
        shown = []
        if entity not in self._described:
            self._described.add(entity)
            shown = [Show(topic, _json(document)) for topic, document in self._descriptions(entity).items()]
        if HOME_ASSISTANT in self.kinds:
            there = health in (DeviceHealth.ALIVE, DeviceHealth.SUSPECTED)
            body = {
                "state": ONLINE if there else OFFLINE, "health": health.value, "since": since_ms, "reason": why,
                "entity": entity,
            }  # fmt: skip
            shown.append(Show(_home_assistant(entity, "state"), _json(body)))
        if HOMIE in self.kinds:
            alert = _alert(health, state, why)
            if alert != self._alerts.get(entity):
                self._alerts[entity] = alert
                shown.append(Show(_homie(entity, ALERT), alert.encode()))
            shown.append(Show(_homie(entity, "$state"), _homie_state(health, state).encode()))
        return shown

    def here(self) -> list[Show]:
        """The gateway itself is there: what Home Assistant asks of every device of ours."""
        return [Show(GATEWAY_STATE, ONLINE.encode() if HOME_ASSISTANT in self.kinds else b"")]

    def clear_entity(self, entity: str) -> list[Show]:
        """The entity is no more."""
        self._described.discard(entity)
        self._alerts.pop(entity, None)
        topics = [*self._descriptions(entity)]
        if HOME_ASSISTANT in self.kinds:
            topics.append(_home_assistant(entity, "state"))
        if HOMIE in self.kinds:
            topics += [_homie(entity, ALERT), _homie(entity, "$state")]
        return [Show(topic, b"") for topic in topics]

    def _descriptions(self, entity: str) -> dict[str, object]:
        documents: dict[str, object] = {}
        name = entity_id(entity)
        if HOME_ASSISTANT in self.kinds:
            state_topic = _home_assistant(entity, "state")
            documents[_home_assistant(entity, "config")] = {
                "name": "Connectivity", "unique_id": name, "device_class": "connectivity",
                "default_entity_id": f"binary_sensor.{name.replace('-', '_')}", "origin": {"name": "VeilMQ"},
                "entity_category": "diagnostic", "state_topic": state_topic,
                "value_template": "{{ value_json.state }}", "expire_after": EXPIRE_AFTER_S,
                "availability": [{"topic": GATEWAY_STATE}], "availability_mode": "all",
                "payload_on": ONLINE, "payload_off": OFFLINE,
                "json_attributes_topic": state_topic, "device": {"identifiers": [name], "name": entity},
            }  # fmt: skip
        if HOMIE in self.kinds:
            documents[_homie(entity, "$description")] = {"homie": "5.0", "version": 1, "name": entity, "nodes": {}}
        return documents


def entity_id(entity: str) -> str:
    """An entity's name in letters, digits and dashes, as both conventions allow; different ones stay different."""
    slug = re.sub("[^a-z0-9]+", "-", entity.lower()).strip("-")[:SLUG_MAX]
    return f"{OURS}-{slug}-{hashlib.sha256(entity.encode()).hexdigest()[:8]}"


def _home_assistant(entity: str, what: str) -> str:
    return f"{HOME_ASSISTANT}/binary_sensor/{entity_id(entity)}/{what}"


def _homie(entity: str, what: str) -> str:
    return f"{HOMIE}/5/{entity_id(entity)}/{what}"


def _homie_state(health: DeviceHealth, state: TraceKind | None) -> str:
    """Homie 5, "Device Lifecycle"."""
    if health is DeviceHealth.FAILED:
        return "lost"
    if health is DeviceHealth.GONE:
        return "disconnected"
    return {TraceKind.INITIALIZING: "init", TraceKind.SHUTDOWN: "sleeping"}.get(state or TraceKind.READY, "ready")


def _alert(health: DeviceHealth, state: TraceKind | None, why: str) -> str:
    """Homie 5, "Device Alerts": empty for nothing."""
    if health is DeviceHealth.SUSPECTED:
        return why or "suspected"
    return "recovering" if health is DeviceHealth.ALIVE and state is TraceKind.RECOVERING else ""


def _json(document: object) -> bytes:
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
