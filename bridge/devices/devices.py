"""Unchanged devices: what a gateway hears of them, and what it then says of each, in kinds of traces (B4, B5).

A device is a client that says nothing of VeilMQ, or something behind a bridge that never connects itself
(`rules`), or what a convention names. Connections, messages, wills and words go in as events; out comes what
to tell. A flapping device costs one change a `CALM_S`.

Not here: whose word counts (`speaking`), what follows from the evidence (`standing`), who is told (`device_tracing`).
"""

from __future__ import annotations

import heapq
from fnmatch import fnmatchcase

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.devices.conventions import (
    ALERTS,
    HOMIE,
    OURS,
    SPARKPLUG,
    Cleared,
    Conventions,
    ConventionWord,
    Named,
    Rooted,
    Said,
    Statement,
)
from bridge.devices.events import DeviceEffect, DeviceEvent, Knows, Published, Remembered, Removed, Tell
from bridge.devices.host import Host
from bridge.devices.rules import DeviceRules, device_name
from bridge.devices.speaking import NAMES_PER_S, SETTLE_S, Device, Speaking
from bridge.devices.standing import FAIL_PERIODS, DeviceHealth, DeviceLink, DeviceVerdict, judge, state_of
from bridge.traces import EntityConnected, EntityGone, EntitySeen, TraceKind
from keys.errors import NotAuthorised

CALM_S = 1.0  # shortest time between two changes that are told of one device
BURST_S = 1.0  # messages that come closer than that are one, for the rhythm that is learned
WELL_EVERY_S = 10.0  # how often it is said of a device that speaks that it is well
FORGET_S = 7 * 86_400.0  # a device that is gone for so long is forgotten
LOOKS_AT_ONCE, LOOKS_PER_S = 100, 1_000.0  # devices of one connection that are judged when something befalls it
WORDS_MAX = 32  # sources whose words about one device count; the oldest go
OTHERS = (HOMIE, SPARKPLUG)  # conventions whose source is one, not a topic
_NEVER = float("inf")


_KIND = {
    DeviceHealth.ALIVE: TraceKind.ALLS_WELL, DeviceHealth.SUSPECTED: TraceKind.FAILURE_SUSPICION,
    DeviceHealth.FAILED: TraceKind.FAILED, DeviceHealth.GONE: TraceKind.DISCONNECT,
}  # fmt: skip


class Devices:
    """All devices of one gateway; `handle(event, now)` and `next_deadline` as in `machine`."""

    def __init__(self, rules: DeviceRules, wall: Wall | None = None) -> None:
        self._wall = wall or Wall()
        self._rules = rules
        self._conventions = Conventions(read=rules.conventions)
        self._speaking = Speaking()
        self._heap: list[tuple[float, str]] = []
        self._effects: list[DeviceEffect] = []
        self._host = Host(rules.sparkplug_host, self._wall)

    def __len__(self) -> int:
        return len(self._speaking)

    @property
    def sparkplug_host(self) -> str:
        """Our name as a host application; empty for none."""
        return self._rules.sparkplug_host

    def device(self, name: str) -> Device | None:
        """What is known of one."""
        return self._speaking.device(name)

    def anew(self, name: str) -> list[Tell]:
        """What was told of a device, for those who heard nothing of it."""
        device = self._speaking.device(name)
        if device is None or device.told is None:
            return []
        tells = [Tell(name, TraceKind.JOIN, {"entity": name, "by": device.by})]
        if device.state is not None:
            tells.append(Tell(name, device.state, {"state": device.state.name}))
        return tells if device.told is DeviceHealth.ALIVE else [*tells, _standing(device)]

    @property
    def next_deadline(self) -> float | None:
        while self._heap and not self._current(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def handle(self, event: DeviceEvent, now: float) -> list[DeviceEffect]:
        """Effects in order. What somebody says and may not is counted and dropped."""
        self._effects = effects = list[DeviceEffect]()
        try:
            match event:
                case Published():
                    self._published(event, now)
                case EntitySeen():
                    self._seen(event.client_id, now)
                case EntityConnected():
                    self._connected(event, now)
                case EntityGone():
                    self._gone(event, now)
                case Knows():
                    self._knows(event.client)
                case Remembered():
                    if self._speaking.device(event.device) is None:
                        device = self._admitted(*self._speaking.admit(event.device, None, "before", now))
                        device.evidence.rejoin_s = self._rules.rejoin_s(event.device)
        except NotAuthorised:
            effects.append(Count("devices_refused", 1, type(event).__name__))
        if isinstance(event, Tick):  # which promises that whatever could be read was: nobody is judged before
            self._run_due(now)
        return effects

    # ----------------------------------------------------------------------------------------- connections

    def _connected(self, event: EntityConnected, now: float) -> None:
        link = self._speaking.connected(event.client_id, event.origin, event.keep_alive_s, now)
        self._look_at_all(self._speaking.spoken_for(link), now)
        if any(fnmatchcase(event.client_id, pattern) for pattern in self._rules.clients):
            own = self._claim(link.level, link, "connection", now)
            evidence = own.evidence
            evidence.own, evidence.heard_at = True, now
            if own.told is None:
                own.settles_at = now + SETTLE_S
            evidence.habit.resumed(now)
            # A new connection of its own outweighs what was said before it.
            evidence.words = {s: said for s, said in evidence.words.items() if said not in (Said.LOST, Said.GONE)}
            self._look(own, now)

    def _seen(self, client: str, now: float) -> None:
        link = self._speaking.link(client)
        if link is not None:
            link.seen_at = now
            own = self._speaking.own(link)
            if own is not None:
                self._well(own, now)

    def _gone(self, event: EntityGone, now: float) -> None:
        link = self._speaking.link(event.client_id)
        if link is None:
            return
        link.up, link.left_at, link.clean = False, now, event.clean
        link.reason = event.reason or ("disconnected" if event.clean else "connection lost")
        own = self._speaking.own(link)
        if own is not None and own.told is None and own.by == "connection" and now < own.settles_at:
            self._remove(own)  # a program that said something and left, under a name of its own perhaps
        self._look_at_all(self._speaking.spoken_for(link), now)
        self._speaking.tidy(link)

    def _knows(self, client: str) -> None:
        link = self._speaking.link(client)
        if link is not None and not link.knows:
            link.knows = True
            own = self._speaking.own(link)
            if own is not None:
                self._remove(own)

    # --------------------------------------------------------------------------------------- what is published

    def _published(self, event: Published, now: float) -> None:
        link = self._speaking.link(event.client)
        if link is None or link.knows or event.topic.startswith("$"):
            return
        if event.will:
            link.willed = True
        else:
            own = self._speaking.own(link)
            if own is not None:
                self._heard(own, now)
            if self._rules.heartbeats:
                self._heartbeat(event.topic, link, now)
        for statement in self._conventions.read(event.topic, event.payload):
            try:
                self._stated(statement, link, event.will, now)
                self._effects += self._host.certified(statement, event.topic, event.payload)
            except NotAuthorised:
                self._effects.append(Count("devices_refused", 1, type(statement).__name__))
        if event.will:
            self._look_at_all(self._speaking.spoken_for(link), now)

    def _heartbeat(self, topic: str, link: DeviceLink, now: float) -> None:
        levels = topic.split("/")
        for rule in self._rules.heartbeats:
            name = rule.device(levels)
            if name is not None and not name.startswith(OURS):  # what we show would come back as ever new devices
                device = self._claim(name, link, "heartbeat", now)
                device.evidence.every_s = rule.every_s
                device.settles_at = min(device.settles_at, now)
                self._heard(device, now)
                return

    def _heard(self, device: Device, now: float) -> None:
        device.evidence.heard_at = now
        if now - device.counted_at >= BURST_S:
            device.evidence.habit.heard(now)
            device.counted_at = now
            self._speaking.heard(device)
        self._well(device, now)

    def _stated(self, statement: Statement, link: DeviceLink, will: bool, now: float) -> None:
        """Raises NotAuthorised."""
        name = _name_of(statement)
        if isinstance(statement, Cleared):
            known = self._speaking.device(name)
            if known is not None and known.evidence.link is not link:
                raise NotAuthorised(f"{name} is spoken for by another connection")
            if known is not None and not known.evidence.own:
                self._remove(known)
            return
        if isinstance(statement, Rooted):
            self._claim(name, link, "word", now).root = device_name([statement.root])
            return
        if isinstance(statement, Named):
            device = self._claim(name, link, "word", now)
            device.mode = statement.mode
            if statement.expire_s is not None:  # failed after three periods without a word
                device.evidence.every_s = statement.expire_s / FAIL_PERIODS
            if device.told is None and not device.evidence.words and device.by == "word":
                device.settles_at = _NEVER  # that it has a name says nothing of its life
            device.named = statement.device
            self._conventions.watch(statement, link.origin)
            return
        node = self._speaking.device(name.rpartition(":")[0]) if _is_behind_a_node(statement) else None
        if node is not None and node.evidence.link is not link:
            raise NotAuthorised(f"{name} hangs on a node of another connection")
        said = statement.said
        if said is Said.CALM and self._speaking.device(name) is None:
            return  # a topic is cleared; nobody is there by that
        if statement.convention == SPARKPLUG and said is Said.SPEAKS and self._speaking.device(name) is None:
            self._effects += self._host.unborn(statement.device, now)
            return
        device = self._claim(name, link, "word", now)
        if statement.convention == SPARKPLUG:
            is_of_now, effects = self._host.take(statement, (node or device).session, node is None, now)
            self._effects += effects
            if not is_of_now:
                return
        if said is Said.SPEAKS:
            device.settles_at = min(device.settles_at, now)
            self._heard(device, now)
            return
        if said is Said.CALM:
            device.evidence.words.pop(statement.source, None)
            self._look(device, now)
            return
        if said is Said.LOST and not will and self._speaks_of_itself(statement, device, link):
            said = Said.GONE  # it is there to say so: it leaves
        self._word(device, statement.source, said, now)
        if statement.convention == SPARKPLUG and said in (Said.LOST, Said.GONE):
            # A node's devices die with it, and are born again one by one.
            behind = [each for each in self._speaking.spoken_for(link) if each.name.startswith(f"{name}:")]
            for each in behind:
                each.evidence.words[statement.source] = said
            self._look_at_all(behind, now)
        elif statement.convention == HOMIE and said in (Said.LOST, Said.GONE):
            behind = [each for each in self._speaking.spoken_for(link) if each.root == name]
            for each in behind:
                each.evidence.words[statement.source] = said
            self._look_at_all(behind, now)

    def _speaks_of_itself(self, word: ConventionWord, device: Device, link: DeviceLink) -> bool:
        if word.convention == SPARKPLUG:
            return not _is_behind_a_node(word)
        return self._speaking.is_itself(device, link)

    def _word(self, device: Device, source: str, said: Said, now: float) -> None:
        words = device.evidence.words
        if device.mode == "latest" and _is_topic(source):
            for other in [each for each in words if _is_topic(each)]:
                del words[other]
        words.pop(source, None)
        words[source] = said
        if device.mode == "any" and Said.READY in words.values():
            for lost in [s for s, what in words.items() if what in (Said.LOST, Said.GONE) and _is_topic(s)]:
                del words[lost]  # one topic says that it is there, which is enough
        if len(words) > WORDS_MAX:
            del words[next(iter(words))]
        if said is not Said.LOST:
            device.evidence.heard_at = now
        device.settles_at = min(device.settles_at, now)
        self._look(device, now)

    # ------------------------------------------------------------------------------------------- the table

    def _claim(self, name: str, link: DeviceLink, by: str, now: float) -> Device:
        """Raises NotAuthorised."""
        return self._admitted(*self._speaking.claim(name, link, by, now))

    def _admitted(self, device: Device, evicted: Device | None) -> Device:
        """Raises NotAuthorised for one that found no place."""
        if evicted is not None:
            self._effects.append(Count("devices_evicted"))
            self._dropped(evicted)
        if evicted is device:
            raise NotAuthorised(f"{device.name} finds no place")
        if device.due is None and device.told is None:
            self._schedule(device, device.settles_at)
        return device

    def _remove(self, device: Device) -> None:
        self._speaking.remove(device)
        self._dropped(device)

    def _dropped(self, device: Device) -> None:
        if device.named:
            self._conventions.forget(device.named)
        if device.told is not None or device.by == "before":
            self._effects.append(Removed(device.name))

    # -------------------------------------------------------------------------------------------- judging

    def _look_at_all(self, devices: list[Device], now: float) -> None:
        """Judge what one event concerns: thousands behind one bridge in turn, for each change is signed and told."""
        for place, device in enumerate(devices):
            if place < LOOKS_AT_ONCE:
                self._look(device, now)
            else:
                self._schedule(device, now + (place - LOOKS_AT_ONCE + 1) / LOOKS_PER_S)

    def _look(self, device: Device, now: float) -> None:
        """Judge, tell what changed, and say when to look again."""
        if now < device.settles_at:
            self._schedule(device, device.settles_at)
            return
        verdict = judge(device.evidence, now, self._rules.grace_s)
        if verdict is None:
            self._schedule(device, device.evidence.known_at + device.evidence.rejoin_s)
            return
        state = state_of(device.evidence)
        if verdict.health is not device.told or state not in (None, device.state):
            if now < device.told_at + CALM_S:
                self._schedule(device, device.told_at + CALM_S)
                return
            if device.told is None and not self._speaking.introduces(device, now):
                self._schedule(device, now + 1 / NAMES_PER_S)
                return
            self._tell(device, verdict, state, now)
        if verdict.until is not None:
            self._schedule(device, verdict.until)
        elif verdict.health in (DeviceHealth.FAILED, DeviceHealth.GONE):
            if now >= device.told_at + FORGET_S:
                self._remove(device)
            else:
                self._schedule(device, device.told_at + FORGET_S)

    def _tell(self, device: Device, verdict: DeviceVerdict, state: TraceKind | None, now: float) -> None:
        effects, before, name = self._effects, device.told, device.name
        device.told, device.told_at, device.why, device.clean = verdict.health, now, verdict.why, verdict.clean
        joins = before is None and verdict.health is DeviceHealth.ALIVE
        if joins:
            effects.append(Tell(name, TraceKind.JOIN, {"entity": name, "by": device.by}))
        if state is not None and state is not device.state:
            effects.append(Tell(name, state, {"state": state.name}))
        device.state = state
        if verdict.health is DeviceHealth.ALIVE and before not in (None, DeviceHealth.ALIVE):
            effects.append(Tell(name, TraceKind.ALLS_WELL, {"after": before}, change=True))
        elif verdict.health is not before and not joins:
            effects.append(_standing(device))

    def _well(self, device: Device, now: float) -> None:
        """It gave a sign of life."""
        if device.told is not DeviceHealth.ALIVE:
            self._look(device, now)
        elif now >= device.well_at:
            device.well_at = now + WELL_EVERY_S
            heard = {"heard_ms": self._wall.ms(device.evidence.heard_at)}
            self._effects.append(Tell(device.name, TraceKind.ALLS_WELL, heard))
            mean_s = device.evidence.habit.mean_s
            if mean_s is not None:
                learned = {"interval_s": round(mean_s, 3), "regular": device.evidence.habit.regular}
                self._effects.append(Tell(device.name, TraceKind.NETWORK_METRICS, learned))
            self._look(device, now)  # what is learned meanwhile says when to look again

    # ----------------------------------------------------------------------------------------------- time

    def _run_due(self, now: float) -> None:
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            device = self._speaking.device(entry[1])
            if device is not None and device.due == entry[0]:
                device.due = None
                self._look(device, now)

    def _schedule(self, device: Device, due: float) -> None:
        if due == _NEVER or (device.due is not None and device.due <= due):
            return  # it is looked at earlier anyway, and then sees what is left to do
        device.due = due
        heapq.heappush(self._heap, (due, device.name))
        if len(self._heap) > 4 * len(self._speaking) + 64:  # stale entries do not pile up
            self._heap = [entry for entry in self._heap if self._current(entry)]
            heapq.heapify(self._heap)

    def _current(self, entry: tuple[float, str]) -> bool:
        device = self._speaking.device(entry[1])
        return device is not None and device.due == entry[0]


def _standing(device: Device) -> Tell:
    """The trace of what was told last, of a device that is not simply alive."""
    fields: dict[str, object] = {"why": device.why} if device.why else {}
    if device.told is DeviceHealth.GONE:
        fields["clean"] = device.clean
    return Tell(device.name, _KIND[device.told or DeviceHealth.ALIVE], fields)


def _is_topic(source: str) -> bool:
    """Whether it is one that Home Assistant's discovery messages named."""
    return source not in OTHERS and not source.startswith(ALERTS)


def _is_behind_a_node(statement: Statement) -> bool:
    return (
        isinstance(statement, ConventionWord) and statement.convention == SPARKPLUG and statement.device.count("/") == 2
    )


def _name_of(statement: Statement) -> str:
    is_node = isinstance(statement, ConventionWord) and statement.convention == SPARKPLUG
    return device_name(statement.device.split("/") if is_node else [statement.device])
