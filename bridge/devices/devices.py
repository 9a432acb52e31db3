"""Unchanged devices: the words a gateway hears, and the traces the gateway then tells of each device (B4, B5).

A device is a client that says nothing of VeilMQ, a thing behind a bridge without a connection (`rules`), or a thing
that a convention names. Connections, messages, wills and words are the events; traces are the effects. A flapping
device costs a single change a `CALM_S`.

Not here: whose word counts (`speaking`), what follows from the evidence (`life_evidence`), who is told
(`device_tracing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from itertools import islice

from bridge.base import Wall
from bridge.contract import Count, Tick
from bridge.devices.conventions import (
    HOME_ASSISTANT,
    HOMIE,
    SPARKPLUG,
    Cleared,
    ConventionWord,
    Rooted,
    Said,
    Statement,
    base_of,
)
from bridge.devices.device_verdicts import FEW, Judging, TurnWords
from bridge.devices.discovery import OURS, Named
from bridge.devices.entities import judge_entities
from bridge.devices.events import (
    Consult,
    DeviceEffect,
    DeviceEvent,
    Knows,
    Published,
    Remembered,
    Retained,
    RetainedBefore,
)
from bridge.devices.host import Host
from bridge.devices.life_evidence import DeviceLink
from bridge.devices.rules import DeviceRules, device_name
from bridge.devices.speaking import SETTLE_S, Device
from bridge.traces import EntityConnected, EntityGone, EntitySeen
from keys.errors import NotAuthorised

BURST_S = 1.0  # messages that come closer than that are one, for the rhythm that is learned
WORDS_MAX = 32  # sources whose words about one device count; the oldest go
KEPT_MAX = 50_000  # retained publications of one filter that are read at a start
KEPT_ORIGIN = b"kept"  # of devices that only retained publications name: they are the first to go
LEAVE_S = 2.0  # a device that says that it is not there, and whose connection ends within, left
_NEVER, _LONG_AGO = float("inf"), float("-inf")


class Devices(Judging):
    """All devices of a gateway; `handle(event, now)` and `next_deadline` as in `machine`."""

    def __init__(self, rules: DeviceRules, wall: Wall | None = None) -> None:
        super().__init__(rules, wall or Wall())
        self._host = Host(rules.sparkplug_host, self._wall)

    @property
    def sparkplug_host(self) -> str:
        """Our name as a host application; empty for none."""
        return self._rules.sparkplug_host

    @property
    def next_deadline(self) -> float | None:
        dues = (super().next_deadline, self._host.next_deadline)
        return min((due for due in dues if due is not None), default=None)

    def evidence_of(self, kept: Retained) -> Iterator[tuple[str, bytes]]:
        """Gives what is evidence among the retained publications, documents before the words that they name: the next
        one is asked for when the one before was handled."""
        for topic_filter in self._conventions.kept_filters():
            yield from islice(kept(topic_filter), KEPT_MAX)
        for topic in islice(self._conventions.watched_topics(), KEPT_MAX):
            yield from kept(topic)

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
                    self._take_connection(event, now)
                case EntityGone():
                    self._gone(event, now)
                case Knows():
                    self._knows(event.client)
                case Remembered():
                    if self._speaking.device(event.device) is None:
                        device = self._admitted(*self._speaking.admit(event.device, None, "before", now))
                        device.evidence.rejoin_s = self._rules.rejoin_s(event.device)
                case RetainedBefore():
                    hear = self._consulted if event.device else self._kept
                    hear(event, now)
        except NotAuthorised:
            effects.append(Count("devices_refused", 1, type(event).__name__))
        if isinstance(event, Tick):  # which promises that whatever could be read was: nobody is judged before
            self._run_due(now)
            effects += self._host.overdue(now)
        return effects

    # ----------------------------------------------------------------------------------------- connections

    def _take_connection(self, event: EntityConnected, now: float) -> None:
        link = self._speaking.take_connection(event.client_id, event.origin, event.keep_alive_s, now)
        # A drawn client id comes once: as a device it would be missed after each lost connection.
        if event.is_named and any(fnmatchcase(event.client_id, pattern) for pattern in self._rules.clients):
            own = self._claim(link.level, link, "connection", now)
            evidence = own.evidence
            evidence.own, evidence.heard_at = True, now
            if own.told is None:
                own.settles_at = now + SETTLE_S
            evidence.habit.note_resumed(now)
            # A new connection of its own outweighs what was said before it.
            evidence.words = {s: said for s, said in evidence.words.items() if said not in (Said.LOST, Said.GONE)}
            own.said.words = {source: word for source, word in own.said.words.items() if word}
            self._judge(own, now)
        self._look_at_link(link, now)

    def _seen(self, client: str, now: float) -> None:
        link = self._speaking.link_of(client)
        if link is not None:
            link.seen_at = now
            own = self._speaking.own(link)
            if own is not None:
                self._well(own, now)

    def _gone(self, event: EntityGone, now: float) -> None:
        link = self._speaking.link_of(event.client_id)
        if link is None:
            return
        link.up, link.left_at, link.clean = False, now, event.clean
        link.reason = event.reason or ("disconnected" if event.clean else "connection lost")
        own = self._speaking.own(link)
        if own is not None and own.told is None and own.by == "connection" and now < own.settles_at:
            self._remove(own)  # a program that said something and left, under a name of its own perhaps
        for name in islice(self._speaking.spoken_for(link), 2):  # a device, and what its connection is called
            device = self._speaking.device(name)
            if device is not None and now <= device.leaves_by:
                device.evidence.words[device.said_by] = Said.GONE
                device.settles_at = device.leaves_by = now
        self._look_at_link(link, now)
        self._speaking.tidy(link)

    def _knows(self, client: str) -> None:
        link = self._speaking.link_of(client)
        if link is not None and not link.knows:
            link.knows = True
            own = self._speaking.own(link)
            if own is not None:
                self._remove(own)

    # --------------------------------------------------------------------------------------- what is published

    def _published(self, event: Published, now: float) -> None:
        link = self._speaking.link_of(event.client)
        if link is None or link.knows or event.topic.startswith("$"):
            return
        if event.will:
            link.willed = True
        else:
            own = self._speaking.own(link)
            if own is not None:
                self._note_heard(own, now)
            if self._rules.heartbeats:
                self._heartbeat(event.topic, link, now)
        self._read_words(event, link, now)
        if event.will:
            if link.stays:
                link.willed = False
            self._look_at_link(link, now)

    def _read_words(self, event: Published, link: DeviceLink, now: float) -> None:
        conventions, topic = self._conventions, event.topic
        if len(conventions.watching(topic)) <= FEW:
            statements = conventions.read_publication(topic, event.payload)
        else:
            words = conventions.words_at(topic, event.payload), link, event.will
            self._turns.begin_work(link.origin, ("words", topic), lambda: conventions.watching(topic), words, now)
            statements = conventions.read_tree(topic, event.payload)
        for statement in statements:
            if self._believed(statement, link, event.will, now):
                self._effects += self._host.certified(statement, topic, event.payload)

    def _believed(self, statement: Statement, link: DeviceLink, will: bool, now: float) -> bool:
        try:
            self._stated(statement, link, will, now)
        except NotAuthorised:
            self._effects.append(Count("devices_refused", 1, type(statement).__name__))
            return False
        return True

    def _heard_in_turn(self, device: str, words: TurnWords, now: float) -> None:
        at, link, will = words
        if self._speaking.link_of(link.client) is link and not link.knows:
            for word in at.about(device):
                self._believed(word, link, will, now)

    def _consulted(self, event: RetainedBefore, now: float) -> None:
        """Hears the retained word on a topic a document names since: a bridge says its own before the documents. Only
        that a device is there: whoever retained a word of loss may be anybody.
        """
        device = self._speaking.device(device_name([event.device]))
        if device is None or device.evidence.link is None:
            return
        for word in self._conventions.words_at(event.topic, event.payload).about(event.device):
            if word.said is Said.READY and word.source not in device.said.words:
                device.said.words = {word.source: True, **device.said.words}  # older than all that was heard
        self._assess(device, device.evidence.link, False, now)

    def _kept(self, event: RetainedBefore, now: float) -> None:
        """Takes a retained publication as evidence from before the start: where words are said, and the last ones.
        Nobody is alive by it, since its age is not known; a new name is told of when somebody speaks for it."""
        for statement in self._conventions.read_publication(event.topic, event.payload):
            name = _name_of(statement)
            if isinstance(statement, Cleared) or getattr(statement, "convention", "") == SPARKPLUG:
                continue
            device = self._speaking.device(name)
            if device is None:
                device = self._admitted(*self._speaking.admit(name, None, "word", now, KEPT_ORIGIN))
                device.settles_at = _NEVER
            if device.evidence.link is not None:
                continue
            match statement:
                case Named():
                    owner = b"before " + name.encode() if device.by == "before" else KEPT_ORIGIN
                    self._named(statement, device, owner)
                case Rooted():
                    self._hang(device, _root_of(statement))
                case ConventionWord() if statement.said in (Said.SPEAKS, Said.REPORTS, Said.CALM):
                    continue
                case ConventionWord() if statement.convention == HOME_ASSISTANT:
                    device.said.word(statement.source, statement.said is Said.READY)
                    self._assess(device, None, True, now)
                case ConventionWord():
                    self._put_word(device, statement.source, statement.said)
            self._judge(device, now)

    def _heartbeat(self, topic: str, link: DeviceLink, now: float) -> None:
        levels = topic.split("/")
        for rule in self._rules.heartbeats:
            name = rule.device(levels)
            if name is not None and not name.startswith(OURS):  # what we show would come back as ever new devices
                known = self._speaking.device(name)
                roams = rule.is_of_many and known is not None and not known.evidence.own
                if known is not None and roams and not self._speaking.may_speak(known, link, now):
                    self._speaking.hears(known, link)
                    device = known
                else:
                    device = self._claim(name, link, "heartbeat", now)
                device.evidence.every_s = rule.every_s
                device.settles_at = min(device.settles_at, now)
                self._note_heard(device, now)
                return

    def _note_heard(self, device: Device, now: float) -> None:
        device.evidence.heard_at = now
        if now - device.counted_at >= BURST_S:
            device.evidence.habit.note_heard(now)
            device.counted_at = now
            self._speaking.renew_device(device)
        self._well(device, now)

    def _stated(self, statement: Statement, link: DeviceLink, will: bool, now: float) -> None:
        """Raises NotAuthorised."""
        name = _name_of(statement)
        match statement:
            case Cleared():
                self._cleared(name, statement, link, now)
            case Rooted():
                self._rooted(name, statement, link, now)
            case Named():
                self._described(name, statement, link, will, now)
            case ConventionWord():
                self._worded(name, statement, link, will, now)

    def _cleared(self, name: str, statement: Cleared, link: DeviceLink, now: float) -> None:
        known = self._speaking.device(name)
        if known is not None and known.evidence.link is not link:
            raise NotAuthorised(f"{name} is spoken for by another connection")
        if known is not None and statement.document:
            self._undocumented(known, statement, now)
        elif known is not None and not known.evidence.own:
            self._remove(known)
            self._look_at_children(known, link, now)

    def _rooted(self, name: str, statement: Rooted, link: DeviceLink, now: float) -> None:
        """Takes the place of a Homie 5 device in its tree. A device exists once it says a state."""
        if self._speaking.device(name) is None and not statement.root:
            return
        device = self._claim(name, link, "word", now)
        if device.told is None and not device.evidence.words and device.by == "word":
            device.settles_at = _NEVER
        self._hang(device, _root_of(statement))
        self._judge(device, now)

    def _described(self, name: str, statement: Named, link: DeviceLink, will: bool, now: float) -> None:
        device = self._claim(name, link, "word", now)
        if device.told is None and not device.evidence.words and device.by == "word":
            device.settles_at = _NEVER  # that it has a name says nothing of its life
        self._moved(statement, link, now)
        self._named(statement, device, link.origin)
        if device.told is not None:
            self._assess(device, link, will, now)
        silent = [each.topic for each in statement.topics if each.is_word and each.source not in device.said.words]
        if silent:
            self._effects.append(Consult(statement.device, tuple(dict.fromkeys(silent))))

    def _worded(self, name: str, statement: ConventionWord, link: DeviceLink, will: bool, now: float) -> None:
        parent = name.rpartition(":")[0] if _is_behind_a_node(statement) else ""
        node = self._speaking.device(parent) if parent else None
        if node is not None and node.evidence.link is not link:
            node.session.heard_elsewhere(statement.numbers)
            raise NotAuthorised(f"{name} hangs on a node of another connection")
        said = statement.said
        if said in (Said.CALM, Said.REPORTS) and not self._may_be_heard(name, said, link, now):
            return
        if statement.convention == SPARKPLUG and said is Said.SPEAKS and self._speaking.device(name) is None:
            self._effects += self._host.unborn(statement.device, now)
            return
        known = self._speaking.device(name)
        before = None if known is None or known.evidence.link is not link else known.evidence.words.get(HOMIE)
        device = self._claim(name, link, "word", now)
        if parent:
            self._hang(device, parent)
        if statement.convention == SPARKPLUG:
            is_of_now, effects = self._host.take_word(statement, (node or device).session, node is None, now)
            self._effects += effects
            if not is_of_now:
                return
            if not parent and said is Said.READY:
                self._look_at_children(device, link, now)  # which are to be born again
            elif parent:
                self._of_node(device, node, statement, now)
        if statement.convention == HOME_ASSISTANT and said is not Said.REPORTS:
            self._of_entities(device, statement, link, will, now)
        elif said in (Said.SPEAKS, Said.REPORTS):
            self._spoke(device, said, now)
        elif said is Said.CALM:
            device.evidence.words.pop(statement.source, None)
            self._judge(device, now)
        else:
            if said is Said.LOST and not will and statement.convention == SPARKPLUG and node is None and not parent:
                said = Said.GONE  # it is there to say so: it leaves
            self._word(device, statement.source, said, now)
            if statement.convention == SPARKPLUG and said in (Said.LOST, Said.GONE):
                # What hangs on it dies with it, and is born again one by one.
                self._deaths += 1
                device.death = self._deaths, statement.source, said
                self._look_at_children(device, link, now)
            elif statement.source == HOMIE and (before is None or Said.LOST in (before, said)):
                self._look_at_children(device, link, now)

    def _of_node(self, device: Device, node: Device | None, statement: ConventionWord, now: float) -> None:
        """Takes a birth into the session of its node; data of a device that was not born in it, or that died since, ask
        for a rebirth.
        """
        births = node.session.births if node is not None else 0
        is_dead = device.evidence.words.get(SPARKPLUG) in (Said.LOST, Said.GONE)
        if statement.said is Said.READY:
            device.session.births, device.evidence.stale_at = births, None
        elif statement.said is Said.SPEAKS and (is_dead or device.session.births != births):
            self._effects += self._host.unborn(statement.device, now)

    def _spoke(self, device: Device, said: Said, now: float) -> None:
        if said is Said.SPEAKS or device.evidence.words or device.by == "before":  # else it has a name only
            device.settles_at = min(device.settles_at, now)
        if said is Said.SPEAKS:
            self._note_heard(device, now)
        else:
            device.evidence.heard_at = now
            self._well(device, now)

    def _of_entities(self, device: Device, word: ConventionWord, link: DeviceLink, will: bool, now: float) -> None:
        """A word on a topic that discovery messages name, or a state that expires."""
        if word.said is Said.SPEAKS:
            device.said.heard[word.source] = now
        else:
            device.said.word(word.source, word.said is Said.READY)
            link.stays = will and word.said is Said.READY
            if word.said is Said.READY:
                device.evidence.heard_at = now
        self._assess(device, link, will, now)
        if word.said is Said.SPEAKS and device.settles_at != _NEVER:
            self._note_heard(device, now)

    def _may_be_heard(self, name: str, said: Said, link: DeviceLink, now: float) -> bool:
        """Returns True if a publication that is no word of life or death counts: a cleared topic, a value.

        Such a publication introduces no new device, and a value from another connection is no attempt to speak for
        the device.
        """
        known = self._speaking.device(name)
        return known is not None and (said is Said.CALM or self._speaking.may_speak(known, link, now))

    def _named(self, named: Named, device: Device, owner: bytes) -> None:
        if named.expire_s is not None:
            device.evidence.rejoin_s = max(device.evidence.rejoin_s, named.expire_s)
        device.named = named.device
        self._conventions.watch(named, owner)
        device.said.prune(self._conventions.entities(named.device))

    def _moved(self, named: Named, link: DeviceLink, now: float) -> None:
        """Takes a document from the device that it described before, if this connection may speak for that device."""
        before = self._conventions.described_by(named.document)
        if before in (None, named.device):
            return
        former = self._speaking.device(device_name([before]))
        if former is not None and self._speaking.may_speak(former, link, now):
            self._undocumented(former, Cleared(HOME_ASSISTANT, before, base_of(named.document)), now)

    def _undocumented(self, device: Device, cleared: Cleared, now: float) -> None:
        """Entities of a document are removed; a device that nothing else names goes with its last one."""
        self._conventions.unwatch(cleared.device, cleared.document)
        left = self._conventions.entities(cleared.device)
        if not left and not device.evidence.own and device.by in ("word", "before"):
            self._remove(device)
            return
        device.said.prune(left)
        self._assess(device, device.evidence.link, False, now)

    def _assess(self, device: Device, link: DeviceLink | None, will: bool, now: float) -> None:
        """Puts what the entities of a device come to in place of what they came to before."""
        evidence, verdict = device.evidence, judge_entities(self._conventions.entities(device.named), device.said)
        if not verdict.claims:
            evidence.words.pop(device.said_by, None)
        elif verdict.there is not None:
            if device.said_by != verdict.source:
                evidence.words.pop(device.said_by, None)
            device.said_by = verdict.source
            is_news = evidence.words.get(verdict.source) in (None, Said.READY)
            if verdict.there and verdict.source:
                self._put_word(device, verdict.source, Said.READY)
            elif not verdict.there and is_news:
                self._put_word(device, verdict.source, Said.LOST)
                if link is not None and not will and self._speaking.is_itself(device, link):
                    device.leaves_by = now + LEAVE_S  # it is there to say so, and leaves if it does
                    device.settles_at = device.leaves_by
            if device.evidence.link is not None and now > device.leaves_by:
                device.settles_at = min(device.settles_at, now)
            if verdict.there:
                device.leaves_by, device.settles_at = _LONG_AGO, min(device.settles_at, now)
        evidence.suspect_at, evidence.fail_at = verdict.suspect_at, verdict.fail_at
        self._judge(device, now)

    def _look_at_children(self, parent: Device, link: DeviceLink, now: float) -> None:
        name = parent.name
        if self._speaking.children(name):
            self._look_at_all(link, ("children", name), lambda: self._speaking.children(name), now)

    def _hang(self, device: Device, parent: str) -> None:
        """Devices of a node, or with a root: what befell that before is none of theirs."""
        if device.parent != parent:
            self._speaking.hang(device, parent)
            device.parent_death = self._deaths

    def _word(self, device: Device, source: str, said: Said, now: float) -> None:
        self._put_word(device, source, said)
        if said is not Said.LOST:
            device.evidence.heard_at = now
        device.settles_at = min(device.settles_at, now)
        self._judge(device, now)

    def _put_word(self, device: Device, source: str, said: Said) -> None:
        words = device.evidence.words
        words.pop(source, None)
        words[source] = said
        if len(words) > WORDS_MAX:
            del words[next(iter(words))]

    # ------------------------------------------------------------------------------------------- the table

    def _claim(self, name: str, link: DeviceLink, by: str, now: float) -> Device:
        """Raises NotAuthorised."""
        known = self._speaking.device(name)
        if known is not None:
            self._inherit(known, now)  # before what is said now
        return self._admitted(*self._speaking.claim(name, link, by, now))

    def _admitted(self, device: Device, evicted: Device | None) -> Device:
        """Raises NotAuthorised for one that found no place."""
        if evicted is not None:
            self._effects.append(Count("devices_evicted"))
            self._dropped(evicted)
        if evicted is device:
            raise NotAuthorised(f"{device.name} finds no place")
        if device.due is None and device.told is None:
            self._schedule_look(device, device.settles_at)
        return device


def _is_behind_a_node(statement: Statement) -> bool:
    return (
        isinstance(statement, ConventionWord) and statement.convention == SPARKPLUG and statement.device.count("/") == 2
    )


def _root_of(statement: Rooted) -> str:
    return device_name(statement.root.split("/")) if statement.root else ""


def _name_of(statement: Statement) -> str:
    """Returns the name of the device a statement is about. Names of Home Assistant's are text of any form."""
    is_plain = isinstance(statement, Named) or getattr(statement, "convention", HOMIE) == HOME_ASSISTANT
    return device_name([statement.device] if is_plain else statement.device.split("/"))
