"""An entity that several brokers trace, its *witnesses*: a trace topic, a session and tokens with each witness (B9).

The entity names its witnesses in the tokens that it gives them, from its first word on: number `i` of `n`, since a
time. The entity signs its own word once, and every witness passes the word on. The entity asks a single broker at a
time for a trace topic, the next broker if no answer comes, and uses the topic at all. With a witness the behaviour is
as with `entity.TracedEntity` alone, which does the work for each witness. Not here: the beliefs of trackers
(`witnessing`), the choice of brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.base import Wall
from bridge.contract import Tick
from bridge.traces.kinds import TraceKind, body_of, own_fields
from bridge.tracking.entity import BrokerConnected, Leave, Listen, Stage, Told, TracedEffect, TracedEntity, Wishes
from keys.delegation import WITNESSES_MAX, Advertisement, Seat
from keys.errors import OurFault
from keys.identity import Certificate, Identity
from keys.ownword import OwnWord

_ORDER = (Stage.WITHOUT_TOPIC, Stage.UNREGISTERED, Stage.TRACED)


class WitnessedEntity:
    """An entity with several witnesses. Arguments as for `TracedEntity`. `witnesses`: their number, odd; raises
    OurFault if even.
    """

    def __init__(
        self,
        identity: Identity,
        certificate: Certificate,
        nodes: Mapping[str, bytes],
        authority: bytes,
        random: Callable[[int], bytes],
        wishes: Wishes | None = None,
        advertisement: Advertisement | None = None,
        witnesses: int = 1,
        wall: Wall | None = None,
    ) -> None:
        self._wall = wall or Wall()
        if witnesses % 2 == 0 or not 1 <= witnesses <= WITNESSES_MAX:
            raise OurFault(f"{witnesses} witnesses have no useful majority; take 1, 3, 5 ... up to {WITNESSES_MAX}")
        self._identity = identity
        self._machines = [
            TracedEntity(identity, certificate, nodes, authority, random, wishes, advertisement, self._wall)
            for _ in range(witnesses)
        ]
        self._met: set[int] = set()  # witnesses that were connected once
        self._since_ms = -1
        self._number = 0  # the number of our last own word
        self._state: TraceKind | None = None
        self._relayed: list[str | None] = [None] * witnesses  # topics of each one's relayed questions
        self._asks(0)

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The progress with each witness."""
        return tuple(each.stage for each in self._machines)

    @property
    def stage(self) -> Stage:
        """The progress with a majority of the witnesses."""
        return sorted(self.stages, key=_ORDER.index)[len(self._machines) // 2]

    @property
    def next_deadline(self) -> float | None:
        deadlines = (each.next_deadline for each in self._machines)
        return min((at for at in deadlines if at is not None), default=None)

    def handle(self, event: BrokerConnected | Told, witness: int, now: float) -> list[tuple[int, TracedEffect]]:
        """Takes a message from a witness, or the connection to it. Returns each effect with the witness that it
        concerns.
        """
        if isinstance(event, Told) and event.topic in self._relayed:
            return _of(witness, self._machines[self._relayed.index(event.topic)].relayed(event.payload))
        effects = self._name_witnesses(now)
        if isinstance(event, BrokerConnected):
            effects += [(witness, Listen(at)) for at in self._relayed if at is not None]
            self._met.add(witness)
            if self._asking not in self._met:
                self._asks(witness)
        machine = self._machines[witness]
        before = machine.advertisement
        effects += _of(witness, machine.handle(event, now))
        found = machine.advertisement
        if found is not None and found is not before:  # the other machines take the new topic too
            for other in set(range(len(self._machines))) - {witness}:
                effects += _of(other, self._machines[other].take_topic(found, now))
        return effects + self._listen(witness)

    def _listen(self, witness: int) -> list[tuple[int, TracedEffect]]:
        """Listens at all other witnesses for this witness's relayed questions, and leaves the topic of its former
        session.
        """
        machine, before = self._machines[witness], self._relayed[witness]
        found = machine.relayed_at
        if found is None or found == before:
            return []
        self._relayed[witness] = found
        effects: list[tuple[int, TracedEffect]] = []
        for other in sorted(self._met - {witness}):
            effects += [(other, Leave(before))] if before is not None else []
            effects.append((other, Listen(found)))
        return effects

    def tick(self, now: float) -> list[tuple[int, TracedEffect]]:
        """Runs due work at `next_deadline`."""
        effects = self._name_witnesses(now)
        for witness, machine in enumerate(self._machines):
            if machine.next_deadline is None or machine.next_deadline > now:
                continue
            if witness == self._asking and machine.stage is Stage.WITHOUT_TOPIC:  # no answer: another witness is asked
                following = [*range(witness + 1, len(self._machines)), *range(witness)]
                self._asks(next((each for each in following if each in self._met), witness))
                if self._asking != witness:
                    effects += _of(self._asking, self._machines[self._asking].ask_topic(now))
            effects += _of(witness, machine.handle(Tick(), now))
        return effects

    # ----------------------------------------------------------------------------------- what the program says

    def set_state(self, kind: TraceKind, now: float) -> list[tuple[int, TracedEffect]]:
        """Sets and reports our state, and repeats the report after each registration. Raises ValueError if `kind` is no
        state.
        """
        effects = self._name_witnesses(now)
        fields = self._word(kind, {"state": kind.name}, now)
        effects += self._each(lambda machine: machine.set_state(kind, fields))
        self._state = kind
        return effects

    def report_load(self, fields: Mapping[str, object], now: float) -> list[tuple[int, TracedEffect]]:
        """Reports CPU, memory, work or other figures to trackers. A report is lost where we are not registered. Raises
        OurFault.
        """
        effects = self._name_witnesses(now)
        if len(self._machines) == 1:
            return effects + self._each(lambda machine: machine.report_load(fields))
        word = own_fields(self._signed_word(TraceKind.LOAD_INFORMATION, fields, now))
        return effects + self._each(lambda machine: machine.report_load(word))

    def silent(self, now: float) -> list[tuple[int, TracedEffect]]:
        """Ends our traces. The next `BrokerConnected` begins anew."""
        fields = self._word(TraceKind.REVERTING_TO_SILENT_MODE, {}, now)
        return self._each(lambda machine: machine.silent(fields))

    def renounce(self, now: float) -> list[tuple[int, TracedEffect]]:
        """Gives up a trace topic a stranger learned (B9), and asks for a new one."""
        fields = self._word(TraceKind.REVERTING_TO_SILENT_MODE, {}, now)
        return self._each(lambda machine: machine.renounce(now, fields))

    # --------------------------------------------------------------------------------------------- details

    def _name_witnesses(self, now: float) -> list[tuple[int, TracedEffect]]:
        """Names our witnesses at first, and again when our clock went back: the present must not precede the time of
        naming.
        """
        now_ms, count = self._wall.ms(now), len(self._machines)
        if count == 1 or 0 <= self._since_ms <= now_ms:
            return []
        self._since_ms, self._number = now_ms, 0
        for witness, machine in enumerate(self._machines):
            machine.seat = Seat(witness, count, now_ms)
        return [] if self._state is None else self.set_state(self._state, now)

    def _word(self, kind: TraceKind, fields: Mapping[str, object], now: float) -> bytes:
        """Returns our signed word going beside a session's word; empty with a witness, which is believed anyway."""
        return b"" if len(self._machines) == 1 else body_of(own_fields(self._signed_word(kind, fields, now)))

    def _signed_word(self, kind: TraceKind, fields: Mapping[str, object], now: float) -> OwnWord:
        self._name_witnesses(now)
        self._number += 1
        word = OwnWord(self._since_ms, self._number, self._wall.ms(now), kind, body_of(fields))
        return word.signed(self._identity)

    def _asks(self, witness: int) -> None:
        """Makes a single witness the broker that is asked for a trace topic."""
        self._asking = witness
        for index, machine in enumerate(self._machines):
            machine.asks = index == witness

    def _each(self, act: Callable[[TracedEntity], list[TracedEffect]]) -> list[tuple[int, TracedEffect]]:
        return [pair for witness, machine in enumerate(self._machines) for pair in _of(witness, act(machine))]


def _of(witness: int, effects: list[TracedEffect]) -> list[tuple[int, TracedEffect]]:
    return [(witness, effect) for effect in effects]
