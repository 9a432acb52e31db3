"""The one driver: every effect reaches its owner's hands, every event its machine, deadlines its timer."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable
from typing import Any, get_args

import pytest

from bridge.contract.history import HistoryRequest, ReadAgainDone, ReadAgainLive, Recall, Record, RecordEra
from bridge.contract.machine import (
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
    LinkUp,
    NotAdopted,
    Offered,
    Outlived,
    PageCame,
    Pause,
    Prove,
    Publication,
    ReadPage,
    ReceiptCame,
    Refuse,
    Reread,
    Rotated,
    Send,
    Tick,
    Wanted,
    Watch,
    Wire,
)
from bridge.contract.withholding import Take, Withhold
from bridge.document import Contradiction, Scope
from gateway.base.figures import Figures
from gateway.overlay import driver as driver_module
from gateway.overlay.driver import Driver, NoHands
from gateway.trust import TrustError
from keys.epochs import KeyName
from keys.issuing import KeepArchive, KeepMaterial
from tests.bridge.document.test_evidence import evidence, two_of_one_number
from tests.sim.world import make_world
from tests.waits import until

WORLD = make_world({1: 3}, [], {"site": 1, "evil": 1}, [Scope("plant/#")])
OVERLAY = WORLD.overlay
EVIDENCE = evidence(WORLD, *two_of_one_number(WORLD))
MESSAGE = Publication("t", b"")
EFFECTS: dict[str, tuple[Effect, ...]] = {
    "send_wire": (Send("r1a", Wire("t", b"")),),
    "deliver_publications": (Deliver("site", 1, MESSAGE),),
    "deliver_to_group": (DeliverShared("g", "t", MESSAGE),),
    "forget_sequences": (Forget((1,)),),
    "leave_on_disk": (LeaveOnDisk((1,)),),
    "read_page": (ReadPage(7),),
    "refuse_wire": (Refuse("time"),),
    "delay": (Delay(2.5),),
    "keep_rows": (Keep(((b"k", b"v"),)),),
    "keys_changed": (KeysChanged(),),
    "keep_material": (KeepMaterial(b""),),
    "keep_archive": (KeepArchive(1, None),),
    "withhold": (Withhold(1),),
    "acknowledge_withheld": (Take((1, 2)),),
    "of_history": (
        Record((), ()),
        RecordEra(1, b"", b""),
        Recall("site", HistoryRequest(1)),
        Reread((1,), (Deliver("site", 1, MESSAGE),)),
        ReadAgainLive(1),
        ReadAgainDone(1, True),
        PageCame("r2a", b""),
    ),
    "of_receipts": (AskKept(1), KeepSealed(1, b""), ReceiptCame("lab", 1, 1, 1, b"", ())),
    "adopted": (Adopt(OVERLAY, b"", Adoption.LIVE), Adopt(OVERLAY, b"", Adoption.REMOVED)),
}
OTHERS = (Count, Blame, Prove, Watch, NotAdopted, Wanted, Doubted, Outlived, Pause)


class Node:
    """A machine that answers with what the test put in."""

    overlay, peers, removed = OVERLAY, frozenset({"r1a"}), False
    versions: dict[str, int] = {}  # noqa: RUF012

    def __init__(self) -> None:
        self.next_deadline: float | None = None
        self.effects: list[Effect] = []
        self.told: list[Event] = []

    def handle(self, event: Event, now: float) -> list[Effect]:
        self.told.append(event)
        effects, self.effects = self.effects, []
        return effects


class Hands:
    """Notes what it is asked to do."""

    def __init__(self) -> None:
        self.did: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def note(*arguments: object) -> list[str]:
            self.did.append(name)
            return []

        return note


class Live:
    """The overlay file."""

    def __init__(self) -> None:
        self.replaced: bytes | None = None
        self.kept: list[object] = []
        self.rotated: Any = None
        self.proved: list[Contradiction] = []

    def changed_content(self) -> bytes | None:
        document, self.replaced = self.replaced, None
        return document

    def complete(self) -> None:
        self.kept.append("complete")

    def keep_overlay(self, overlay: object) -> None:
        self.kept.append(overlay)

    def keep_evidence(self, effect: Prove) -> None:
        self.proved.append(effect.evidence)

    def adopt_overlay(self, overlay: object) -> Any:
        self.kept.append("adopted")
        return self.rotated


class Dials(Hands):
    pass


def made() -> tuple[Driver, Node, Hands, Live, Dials]:
    node, hands, live, dials = Node(), Hands(), Live(), Dials()
    figures = Figures("site", "gateway")
    return Driver(node, live, dials, figures, hands, lambda: 25.0), node, hands, live, dials  # type: ignore[arg-type]


def test_every_effect_of_the_contract_is_tried_here() -> None:
    tried = {type(effect) for effects in EFFECTS.values() for effect in effects} | set(OTHERS)
    assert tried == set(get_args(Effect))


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_reaches_the_hands(name: str) -> None:
    async def check() -> None:
        driver, node, hands, _, _ = made()
        node.effects = list(EFFECTS[name])
        driver.handle(Tick())
        await asyncio.sleep(0)
        assert [did for did in hands.did if did != "peers_to_dial"] == [name] * len(EFFECTS[name])

    asyncio.run(check())


def test_a_pause_ends_behind_everything_that_is_ready() -> None:
    async def check() -> None:
        driver, node, *_ = made()
        node.effects = [Pause()]
        driver.handle(Tick())
        loop = asyncio.get_running_loop()
        loop.call_soon(driver.handle, LinkUp("r1a"))
        while GoOn() not in node.told:
            await asyncio.sleep(0)
        assert node.told == [Tick(), LinkUp("r1a"), GoOn()]

    asyncio.run(check())


def test_counts_and_blame_are_figures_and_watches_are_links(caplog: pytest.LogCaptureFixture) -> None:
    driver, node, hands, live, dials = made()
    node.effects = [Count("forwarded", 3), Blame("r1a", True, "it lied"), Watch("r1a", "t"), NotAdopted("too old")]
    node.effects += [Outlived(1), Prove(EVIDENCE, EVIDENCE.check_proof())]
    driver.handle(Tick())
    assert driver.figures.counts["forwarded"] == 3
    assert "named r1a: it lied" in caplog.text
    assert "the new overlay file is not adopted: too old" in caplog.text
    assert (hands.did, dials.did) == ([], ["watch"])
    assert live.proved == [EVIDENCE]


@pytest.mark.parametrize("kind", [Wanted, Doubted])
def test_what_a_reader_says_to_its_own_node_never_comes_out(kind: Any) -> None:
    driver, node, *_ = made()
    node.effects = [kind(KeyName("plant/#", 0, 0))]
    with pytest.raises(AssertionError):
        driver.handle(Tick())


def test_a_party_without_hands_for_an_effect_says_that_it_is_a_mistake() -> None:
    with pytest.raises(AssertionError, match="an effect that this party's machine does not have"):
        NoHands().deliver_publications([Deliver("site", 1, MESSAGE)])


def test_a_version_that_needs_a_restart_is_kept_and_only_what_it_takes_away_follows(
    caplog: pytest.LogCaptureFixture,
) -> None:
    driver, node, hands, live, dials = made()
    node.effects = [Adopt(OVERLAY, b"", Adoption.RESTART)]
    driver.handle(Tick())
    assert live.kept == [OVERLAY]
    assert hands.did == ["adopted", "peers_to_dial"]
    assert dials.did == ["adopt_peers"]
    assert "restart to adopt it" in caplog.text


def test_a_rotated_key_is_told_to_the_node_after_the_event_and_links_are_made_anew() -> None:
    async def check() -> None:
        driver, node, _, live, dials = made()
        live.rotated = "identity"
        node.effects = [Adopt(OVERLAY, b"", Adoption.LIVE)]
        driver.handle(Tick())
        assert node.told == [Tick()]
        await asyncio.sleep(0)
        assert node.told == [Tick(), Rotated("identity")]  # type: ignore[arg-type]
        assert dials.did == ["adopt_peers", "redial"]

    asyncio.run(check())


def test_a_replaced_file_is_offered_and_a_deadline_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "LOOK_EVERY_S", 0.001)

    async def check() -> None:
        driver, node, _, live, _ = made()
        live.replaced = b"document"
        node.next_deadline = 25.0
        driver.start()
        await until(lambda: Offered(b"document") in node.told and node.told.count(Tick()) > 1)
        assert "complete" in live.kept
        await driver.stop()

    asyncio.run(check())


def test_a_defect_of_ours_in_a_look_at_the_file_is_told_and_the_next_one_comes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(driver_module, "LOOK_EVERY_S", 0.001)

    async def check() -> None:
        driver, node, _, live, _ = made()
        monkeypatch.setattr(live, "complete", lambda: 1 // 0)
        live.replaced = b"document"
        driver.start()
        await until(lambda: "overlay file failed" in caplog.text)
        live.replaced = b"the next"
        await until(lambda: Offered(b"the next") in node.told)
        await driver.stop()

    asyncio.run(check())


def test_a_key_that_signs_no_more_ends_the_process_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that went on would drop what its machine was about to do; a start takes it from the outbox."""
    driver, node, *_ = made()

    def lost(event: Event, now: float) -> list[Effect]:
        raise TrustError("no such token; plug it in")

    monkeypatch.setattr(node, "handle", lost)
    raised: list[int] = []
    monkeypatch.setattr(signal, "raise_signal", raised.append)
    assert not driver.handle(Tick())
    assert not driver.handle(Tick())
    assert raised == [signal.SIGTERM]
    assert caplog.text.count("no such token; plug it in; the process ends") == 1
    assert driver.figures.counts["machine_failed"] == 0


def test_an_exception_of_the_machine_is_said_and_counted_and_the_next_event_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver, node, hands, *_ = made()
    with monkeypatch.context() as patched:
        patched.setattr(node, "handle", lambda event, now: 1 // 0)
        assert not driver.handle(Tick())
    assert driver.figures.counts["machine_failed"] == 1
    assert [each.id for each in caplog.records] == ["machine_failed"]  # type: ignore[attr-defined]
    assert "Tick" in caplog.text
    node.effects = [Deliver("site", 1, MESSAGE)]
    assert driver.handle(Tick())
    assert hands.did == ["deliver_publications"]


class Waiting(Node):
    """A machine that waits for nothing but its own deadlines; asked before one, it does nothing."""

    def __init__(self, wait_s: float, clock: Callable[[], float]) -> None:
        super().__init__()
        self.wait_s, self.served, self.next_deadline = wait_s, 0, clock()

    def handle(self, event: Event, now: float) -> list[Effect]:
        if self.next_deadline is not None and now >= self.next_deadline:
            self.served += 1
            self.next_deadline = now + self.wait_s
        return []


@pytest.mark.parametrize("loops", ["asyncio", "uvloop"])
def test_a_machine_that_waits_for_its_deadlines_alone_gets_every_tick(loops: str) -> None:
    """uvloop's timers come up to half a millisecond early, and `when()` says then that they are still to come."""

    async def check() -> None:
        nodes = [Waiting(0.010 + number / 10_000, time.time) for number in range(100)]
        drivers = [
            Driver(node, Live(), Dials(), Figures("site", "gateway"), Hands())  # type: ignore[arg-type]
            for node in nodes
        ]
        for driver in drivers:
            driver.start()
        await until(lambda: all(node.served >= 20 for node in nodes), 20.0)
        for driver in drivers:
            await driver.stop()

    factory: Any = asyncio.new_event_loop
    if loops == "uvloop":
        factory = pytest.importorskip("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(check())
