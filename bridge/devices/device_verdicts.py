"""Judging devices: what follows from the evidence of each is told, at once or in turn; when to look at it again.

A flapping device costs a single change a `CALM_S`. What befalls thousands at once is told of a hundred, and of the
others in turns. Not here: what is heard of them (`devices`), what the evidence says (`life_evidence`).

Work on many devices that a single event begins: a few devices a turn, so that no packet waits for all devices.
"""

from __future__ import annotations

import heapq
from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from bridge.base import Wall
from bridge.contract import Budget
from bridge.devices.conventions import HOMIE, ROOT, Conventions, Said, WordsAt
from bridge.devices.events import DeviceEffect, Removed, Tell
from bridge.devices.life_evidence import DeviceHealth, DeviceLink, DeviceVerdict, judge, state_of
from bridge.devices.rules import DeviceRules
from bridge.devices.sparkplug import BORN_AGAIN_S
from bridge.devices.speaking import NAMES_PER_S, ORIGINS_MAX, Device, Speaking
from bridge.traces import TraceKind

Data = TypeVar("Data")


@dataclass(slots=True)
class _Work(Generic[Data]):
    names: Iterator[str]
    data: Data
    again: Callable[[], Iterable[str]] | None = None


class WorkInTurns(Generic[Data]):
    """All works of a gateway. `per_s`: names of an origin's works that are due in a second."""

    def __init__(self, per_s: float) -> None:
        self._pause_s = 1.0 / per_s
        self._heap: list[tuple[float, bytes]] = []  # one entry for each origin with work
        self._works: dict[bytes, dict[Hashable, _Work[Data]]] = {}

    def begin_work(
        self, origin: bytes, key: Hashable, names: Callable[[], Iterable[str]], data: Data, now: float
    ) -> None:
        """Begins a work, or has one of this key begin again with new `data`. `names()`: of the devices it is about."""
        works = self._works.get(origin)
        if works is None:
            works = self._works[origin] = {}
            heapq.heappush(self._heap, (now + self._pause_s, origin))
        work = works.get(key)
        if work is None:
            works[key] = _Work(iter(list(names())), data)
        else:
            work.data, work.again = data, names

    def is_under_way(self, origin: bytes, key: Hashable) -> bool:
        return key in self._works.get(origin, ())

    @property
    def next_deadline(self) -> float | None:
        return self._heap[0][0] if self._heap else None

    def due_names(self, now: float, most: int) -> Iterator[tuple[str, Data]]:
        """Gives up to `most` names whose turn has come, with the data of their work."""
        while most and self._heap and self._heap[0][0] <= now:
            at, origin = heapq.heappop(self._heap)
            works = self._works[origin]
            key = next(iter(works))
            work = works.pop(key)
            name = next(work.names, None)
            if name is None and work.again is not None:
                work.names, work.again = iter(list(work.again())), None
                name = next(work.names, None)
            if name is not None:
                works[key] = work  # behind the origin's other works
                at += self._pause_s
            if works:
                heapq.heappush(self._heap, (at, origin))
            else:
                del self._works[origin]
            if name is not None:
                most -= 1
                yield name, work.data


CALM_S = 1.0  # shortest time between two changes that are told of one device
WELL_EVERY_S = 10.0  # how often it is said of a device that speaks that it is well
FORGET_S = 7 * 86_400.0  # a device that is gone for so long is forgotten
# Devices that are judged at once when something befalls what they hang on; of one origin the others in a second; of
# all origins in one look at what is due.
LOOKS_AT_ONCE, LOOKS_PER_S, LOOKS_AT_TICK = 20, 1_000.0, 10
FEW = 4  # devices that one packet may concern at once whenever it comes; more are done in turns, or are in the budget
EVENTS_BURST, EVENTS_PER_S = 10.0, 1.0  # events of one origin of which so much is looked at at once
_NEVER = float("inf")
TurnWords: TypeAlias = tuple[WordsAt, DeviceLink, bool]
"""What a publication says to many devices: words, whose they are, and whether it was a will."""

_KIND = {
    DeviceHealth.ALIVE: TraceKind.ALLS_WELL, DeviceHealth.SUSPECTED: TraceKind.FAILURE_SUSPICION,
    DeviceHealth.FAILED: TraceKind.FAILED, DeviceHealth.GONE: TraceKind.DISCONNECT,
}  # fmt: skip


class Judging:
    """The devices of a gateway, as far as they are judged. `_effects`: of the event that is handled."""

    def __init__(self, rules: DeviceRules, wall: Wall) -> None:
        self._rules, self._wall = rules, wall
        self._conventions = Conventions(read=rules.conventions)
        self._speaking = Speaking()
        self._heap: list[tuple[float, str]] = []
        # What is left of events that concern many devices: to look at them, or what to hear about them.
        self._turns: WorkInTurns[TurnWords | None] = WorkInTurns(LOOKS_PER_S)
        self._at_once: OrderedDict[bytes, Budget] = OrderedDict()  # by origin
        self._deaths = 0  # of what has children, so far
        self._effects: list[DeviceEffect] = []

    def __len__(self) -> int:
        return len(self._speaking)

    def device(self, name: str) -> Device | None:
        """Returns the knowledge of a device."""
        return self._speaking.device(name)

    def anew(self, name: str) -> list[Tell]:
        """Returns the statements about a device for trackers that heard none of them."""
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
        dues = (self._heap[0][0] if self._heap else None, self._turns.next_deadline)
        return min((due for due in dues if due is not None), default=None)

    def _inherit(self, device: Device, now: float) -> None:
        """Learns what befell the node or root of a device, when the device is next looked at or spoken of.

        So a death ending thousands costs nothing at once.
        """
        parent, evidence = self._speaking.device(device.parent), device.evidence
        evidence.words.pop(ROOT, None)
        if parent is None:
            return
        if HOMIE in parent.evidence.words:
            self._follow_root(device, parent, now)
        died = parent.death if parent.death is not None and parent.death[0] > device.parent_death else None
        if died is not None:
            device.parent_death = died[0]
        if parent.evidence.link is not evidence.link:
            return
        if parent.evidence.words.get(HOMIE) is Said.LOST:
            evidence.words[ROOT] = Said.LOST
        if parent.session.births != device.session.births and evidence.stale_at is None:
            evidence.stale_at = parent.session.born_at + BORN_AGAIN_S
        if died is not None:
            evidence.words[died[1]] = died[2]

    def _follow_root(self, child: Device, root: Device, now: float) -> None:
        """Gives a child the connection of its root at Homie 5, which need not say the child's state again.

        Source: The Homie Convention 5.0, "Device hierarchy": a child's own state counts while its root is not lost.
        """
        link = root.evidence.link
        if link is not None and link is not child.evidence.link and self._speaking.may_speak(child, link, now):
            self._speaking.move(child, link)
            child.settles_at = min(child.settles_at, now)

    def _remove(self, device: Device) -> None:
        self._speaking.remove_device(device)
        self._dropped(device)

    def _dropped(self, device: Device) -> None:
        if device.named:
            self._conventions.forget_device(device.named)
        if device.told is not None or device.by == "before":
            self._effects.append(Removed(device.name))

    # -------------------------------------------------------------------------------------------- judging

    def _look_at_link(self, link: DeviceLink, now: float) -> None:
        """Judge those whom a connection speaks for."""
        self._look_at_all(link, ("link", link.client), lambda: self._speaking.spoken_for(link), now)

    def _look_at_all(self, link: DeviceLink, key: Hashable, names: Callable[[], Iterable[str]], now: float) -> None:
        """Judge what a single event concerns: thousands behind a single bridge in turns, for each change is signed and
        told.
        """
        origin = link.origin
        if self._turns.is_under_way(origin, key):  # again, when it has come to its end
            self._turns.begin_work(origin, key, names, None, now)
            return
        found = list(names())
        if len(found) > FEW and not self._may_look_at_once(origin, now):
            self._turns.begin_work(origin, key, lambda: found, None, now)
            return
        for name in found[:LOOKS_AT_ONCE]:
            self._look_at(name, now)
        if rest := found[LOOKS_AT_ONCE:]:
            self._turns.begin_work(origin, key, lambda: rest, None, now)

    def _may_look_at_once(self, origin: bytes, now: float) -> bool:
        """Returns True if an origin making many devices to look at may have some of them looked at now.

        A node dying again and again has all of them looked at in turns.
        """
        budget = self._at_once.pop(origin, None) or Budget(EVENTS_PER_S, EVENTS_BURST, now)
        self._at_once[origin] = budget
        if len(self._at_once) > ORIGINS_MAX:
            self._at_once.popitem(last=False)
        if not budget.has_tokens(now):
            return False
        budget.spend(1.0, now)
        return True

    def _look_at(self, name: str, now: float) -> None:
        device = self._speaking.device(name)
        if device is not None:
            self._judge(device, now)

    def _judge(self, device: Device, now: float) -> None:
        """Judge, tell what changed, and say when to look again."""
        self._inherit(device, now)
        if now < device.settles_at:
            self._schedule_look(device, device.settles_at)
            return
        verdict = judge(device.evidence, now, self._rules.grace_s)
        if verdict is None:
            self._schedule_look(device, device.evidence.back_by)
            return
        is_back = device.evidence.link is not None or verdict.health is not DeviceHealth.FAILED
        state = state_of(device.evidence) if is_back else None
        if verdict.health is not device.told or state not in (None, device.state):
            if now < device.told_at + CALM_S:
                self._schedule_look(device, device.told_at + CALM_S)
                return
            if device.told is None and not self._speaking.introduces(device, now):
                self._schedule_look(device, now + 1 / NAMES_PER_S)
                return
            self._tell_verdict(device, verdict, state, now)
        if verdict.until is not None:
            self._schedule_look(device, verdict.until)
        elif verdict.health in (DeviceHealth.FAILED, DeviceHealth.GONE):
            if now >= device.told_at + FORGET_S:
                self._remove(device)
            else:
                self._schedule_look(device, device.told_at + FORGET_S)

    def _tell_verdict(self, device: Device, verdict: DeviceVerdict, state: TraceKind | None, now: float) -> None:
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
            self._judge(device, now)
        elif now >= device.well_at:
            device.well_at = now + WELL_EVERY_S
            heard = {"heard_ms": self._wall.ms(device.evidence.heard_at)}
            self._effects.append(Tell(device.name, TraceKind.ALLS_WELL, heard))
            mean_s = device.evidence.habit.mean_s
            if mean_s is not None:
                learned = {"interval_s": round(mean_s, 3), "regular": device.evidence.habit.regular}
                self._effects.append(Tell(device.name, TraceKind.NETWORK_METRICS, learned))
            self._judge(device, now)  # what is learned meanwhile says when to look again

    # ----------------------------------------------------------------------------------------------- time

    def _run_due(self, now: float) -> None:
        for name, words in self._turns.due_names(now, LOOKS_AT_TICK):
            if words is None:
                self._look_at(name, now)
            else:
                self._heard_in_turn(name, words, now)
        for _ in range(LOOKS_AT_TICK):  # the others in the next look, which is due at once
            if not self._heap or self._heap[0][0] > now:
                break
            entry = heapq.heappop(self._heap)
            device = self._speaking.device(entry[1])
            if device is not None and device.due == entry[0]:
                device.due = None
                self._judge(device, now)

    def _schedule_look(self, device: Device, due: float) -> None:
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

    @abstractmethod
    def _heard_in_turn(self, device: str, words: TurnWords, now: float) -> None:
        """A word of a publication that many devices hear, about one of them."""


def _standing(device: Device) -> Tell:
    """The trace of what was told last, of a device that is not simply alive."""
    fields: dict[str, object] = {"why": device.why} if device.why else {}
    if device.told is DeviceHealth.GONE:
        fields["clean"] = device.clean
    return Tell(device.name, _KIND[device.told or DeviceHealth.ALIVE], fields)
