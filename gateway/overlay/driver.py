"""The one driver of a party's machine: real links, a real clock, the overlay file; every effect is handled.

The broker's overlay (`broker_overlay`) and a reader's client (`region_client`) drive their nodes with this. What an
effect means for either of them is behind `Hands`. No rule of the protocol is here: they are in `bridge`.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias, assert_never

from bridge.contract import (
    Acked,
    Adopt,
    Adoption,
    AskKept,
    Blame,
    Count,
    Delay,
    Deliver,
    DeliverShared,
    Doubted,
    Effect,
    Event,
    Forget,
    GoOn,
    Keep,
    KeepSealed,
    KeysChanged,
    LeaveOnDisk,
    LinkDown,
    LinkUp,
    NotAdopted,
    Offered,
    Outlived,
    OverlayNode,
    PageCame,
    Pause,
    Prove,
    ReadAgainDone,
    ReadAgainLive,
    ReadPage,
    Recall,
    ReceiptCame,
    Record,
    RecordEra,
    Refuse,
    Reread,
    Rotated,
    Send,
    Take,
    Tick,
    Wanted,
    Watch,
    Wire,
    Withhold,
)
from bridge.document import Overlay
from gateway.base import Alarm, Defects, Figures
from gateway.base.log_events import LogEvent
from gateway.base.rhythm import until_next
from gateway.base.turns import behind_reads
from gateway.overlay.dials import Dials
from gateway.trust import LiveOverlay, TrustError
from gateway.trust.live_overlay import LOOK_EVERY_S
from keys.issuing import KeepArchive, KeepMaterial

log = logging.getLogger("veilmq.links")


OfHistory: TypeAlias = Record | RecordEra | Recall | Reread | ReadAgainLive | ReadAgainDone | PageCame
"""The effects of a history: of a replica that keeps one, and of a gateway or job that reads one."""
OfReceipts: TypeAlias = AskKept | KeepSealed | ReceiptCame
"""The effects of receipts: of a gateway that reads, and of one that publishes."""
Upkeep: TypeAlias = Adopt | NotAdopted | Outlived
"""The effects of versions of the overlay and of lives of an identity."""


class Hands(Protocol):
    """The actions of a driver's owner for the machine. All run on the event loop; none blocks for longer than a disk
    does.
    """

    def send_wire(self, peer: str, wire: Wire, ticket: int) -> None: ...
    def deliver_publications(self, effects: Sequence[Deliver]) -> None: ...
    def deliver_to_group(self, effect: DeliverShared) -> None: ...
    def forget_sequences(self, sequences: Sequence[int]) -> None: ...
    def leave_on_disk(self, sequences: Sequence[int]) -> None: ...
    def read_page(self, start: int) -> None: ...
    def keep_rows(self, rows: Sequence[tuple[bytes, bytes | None]]) -> None: ...
    def refuse_wire(self, reason: str) -> None: ...
    def delay(self, delay_s: float) -> None: ...
    def withhold(self, number: int) -> None: ...
    def acknowledge_withheld(self, numbers: Sequence[int]) -> None: ...
    def keys_changed(self) -> None: ...
    def keep_material(self, material: bytes) -> None: ...
    def keep_archive(self, epoch: int, content: bytes | None) -> None: ...
    def of_history(self, effect: OfHistory) -> None: ...
    def of_receipts(self, effect: OfReceipts) -> None: ...

    def adopted(self, overlay: Overlay, removed: bool) -> None:
        """Another overlay, or other views of it, is in force; file and TLS follow already. `removed`: it has no use for
        us."""

    def peers_to_dial(self) -> list[str]: ...


LOOK_WITHIN_S = 0.01  # a deadline that an event brings is noticed so much later at most, where events come often
LOOKS = 4  # that come at once after a rest: a timer for a look would wake the process once more for a lone message


class NoHands:
    """Of a party that neither publishes, nor delivers, nor keeps keys for others: such effects are mistakes of ours."""

    def _never(self, *_: Any, **__: Any) -> None:
        raise AssertionError("an effect that this party's machine does not have")

    deliver_publications = deliver_to_group = forget_sequences = leave_on_disk = read_page = _never
    keep_rows = refuse_wire = delay = withhold = acknowledge_withheld = keep_material = keep_archive = of_receipts = (
        _never
    )

    def of_history(self, effect: OfHistory) -> None:
        self._never(effect)


class Driver:
    """A driver of a node over links, clock and disk. `node`: the machine; `clock`: seconds since the UNIX epoch."""

    def __init__(
        self,
        node: OverlayNode,
        live: LiveOverlay,
        dials: Dials,
        figures: Figures,
        hands: Hands,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.node, self.figures, self.defects = node, figures, Defects()
        self._live, self._dials, self._hands, self._clock = live, dials, hands, clock
        self._alarm = Alarm(clock, lambda: self.handle(Tick()))
        self._alarm_due: asyncio.Handle | None = None  # sets the alarm
        self._looked_at = 0.0  # of so many looks the last, had they come each `LOOK_WITHIN_S`; in the loop's seconds
        self._watching: asyncio.Task[None] | None = None
        self._ends = False

    def start(self) -> None:
        """Watch the overlay file and the clock; links and what they bring are their owner's to begin."""
        self._watching = asyncio.get_running_loop().create_task(self._watch_file(), name="overlay file")
        self.handle(Tick())

    async def stop(self) -> None:
        if self._alarm_due is not None:
            self._alarm_due.cancel()
        self._alarm.stop()
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)

    def handle(self, event: Event) -> bool:
        """Lets `event` happen now, and does what follows from it. False: the machine raised an exception, a defect of
        ours, which is said and counted; whoever brought the event, a client or a member, stays connected."""
        try:
            effects = self.node.handle(event, self._clock())
        except TrustError as error:  # our own key signs no more: only a start can go on
            if not self._ends:
                self._ends = True
                LogEvent.KEY_LOST.say(log, error)
                signal.raise_signal(signal.SIGTERM)
            effects, is_handled = (), False
        except Exception as error:  # noqa: BLE001  counted, and the log has its traceback
            self.defects.note_error(log, LogEvent.MACHINE_FAILED, error, type(event).__name__)
            self.figures.count_effect(Count("machine_failed"))
            effects, is_handled = (), False
        else:
            is_handled = True
        deliveries: list[Deliver] = []
        for effect in effects:
            if type(effect) is Deliver:
                deliveries.append(effect)
                continue
            if deliveries:
                self._hands.deliver_publications(deliveries)
                deliveries = []
            if type(effect) is Send:  # most effects
                self._hands.send_wire(effect.peer, effect.wire, effect.ticket)
            else:
                self._perform_effect(effect)
        if deliveries:
            self._hands.deliver_publications(deliveries)
        if self._alarm_due is None and self._watching is not None:
            # At the end of this turn of the loop or soon: to ask the node costs as much as to forward a repetition.
            loop = asyncio.get_running_loop()
            now = loop.time()
            at = self._looked_at = max(self._looked_at, now - LOOKS * LOOK_WITHIN_S) + LOOK_WITHIN_S
            self._alarm_due = loop.call_soon(self._set_alarm) if at <= now else loop.call_at(at, self._set_alarm)
        return is_handled

    def _go_on(self) -> None:
        self.handle(GoOn())

    def _set_alarm(self) -> None:
        self._alarm_due = None
        self._alarm.set(self.node.next_deadline)

    def _perform_effect(self, effect: Effect) -> None:
        hands = self._hands
        match effect:
            case Count():
                self._count_effect(effect)
            case DeliverShared():
                hands.deliver_to_group(effect)
            case Forget(sequences):
                hands.forget_sequences(sequences)
            case LeaveOnDisk(sequences):
                hands.leave_on_disk(sequences)
            case ReadPage(start):
                # Not from inside the handling of another event, and with turns for others between two pages.
                asyncio.get_running_loop().call_soon(hands.read_page, start)
            case Pause():
                behind_reads(self._go_on)
            case Refuse(reason):
                hands.refuse_wire(reason)
            case Delay(delay_s):
                hands.delay(delay_s)
            case Withhold(number):
                hands.withhold(number)
            case Take(numbers):
                hands.acknowledge_withheld(numbers)
            case Watch():
                self._dials.watch(effect)
            case Blame():
                self._blame(effect)
            case Prove():
                self._live.keep_evidence(effect)
            case Keep(rows):
                hands.keep_rows(rows)
            case KeysChanged():
                hands.keys_changed()
            case KeepMaterial(material):
                hands.keep_material(material)
            case KeepArchive(epoch, content):
                hands.keep_archive(epoch, content)
            case Record() | RecordEra() | Recall() | Reread() | ReadAgainLive() | ReadAgainDone() | PageCame():
                hands.of_history(effect)
            case AskKept() | KeepSealed() | ReceiptCame():
                hands.of_receipts(effect)
            case Wanted() | Doubted():
                raise AssertionError("what a reader says to its own node")
            case Deliver() | Send():
                raise AssertionError("performed by `handle`")
            case _:
                self._perform_upkeep(effect)

    def _perform_upkeep(self, effect: Upkeep) -> None:
        match effect:
            case Adopt():
                self._adopt_overlay(effect)
            case NotAdopted(why):
                LogEvent.OVERLAY_NOT_ADOPTED.say(log, why)
            case Outlived(generation):
                LogEvent.IDENTITY_RUNS_TWICE.say(
                    log, time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(generation / 1000))
                )
            case _:
                assert_never(effect)

    def _count_effect(self, effect: Count) -> None:
        self.figures.count_effect(effect)
        if effect.name == "not_authorised_dropped":
            LogEvent.STORED_GIVEN_UP.say(log, effect.amount)

    def _blame(self, effect: Blame) -> None:
        if self.figures.blame(effect):
            event = LogEvent.MEMBER_NAMED if effect.named else LogEvent.MEMBER_SUSPECTED
            event.say(log, effect.member, effect.why)

    def _adopt_overlay(self, effect: Adopt) -> None:
        """The node works by a newer overlay already, or by other views of it: file, TLS and links follow."""
        if effect.outcome is Adoption.RESTART:
            self._live.keep_overlay(effect.overlay)
            LogEvent.OVERLAY_NEEDS_RESTART.say(log, effect.overlay.policy.version)
            self.figures.forget_all_but(self.node.overlay.members)
            self._hands.adopted(self.node.overlay, False)
            self._dials.adopt_peers(self._hands.peers_to_dial())
            return
        rotated = self._live.adopt_overlay(effect.overlay)
        self.figures.forget_all_but(effect.overlay.members)
        self._hands.adopted(effect.overlay, effect.outcome is Adoption.REMOVED)
        self._dials.adopt_peers(self._hands.peers_to_dial())
        if rotated is not None:  # not from inside the handling of another event
            loop = asyncio.get_running_loop()
            loop.call_soon(self.handle, Rotated(rotated))
            loop.call_soon(self._dials.redial)

    async def _watch_file(self) -> None:
        while True:
            await asyncio.sleep(until_next(LOOK_EVERY_S))
            try:
                document = self._live.changed_content()
                if document is not None:
                    self.handle(Offered(document))
                    self._live.complete()
            except Exception:  # noqa: BLE001  the log has its traceback
                LogEvent.OVERLAY_LOOK_FAILED.say(log, exc_info=True)


class Linked(NoHands):
    """A party whose machine is told of each link as it is: what `Dials` calls goes to the driver."""

    _driver: Driver

    def link_up(self, peer: str) -> None:
        self._driver.handle(LinkUp(peer))

    def link_down(self, peer: str) -> None:
        self._driver.handle(LinkDown(peer))

    def link_watched(self, peer: str, ticket: int) -> None:
        self._driver.handle(Acked(peer, ticket))
