"""The replica that can be made to lie: an ordinary replica whose node is wrapped with the simulator's adversary.

Honest until SIGUSR1; then it alters every share and all content that it forwards, until SIGUSR2. Only this module
makes such a replica; `veilmq broker` has none. While it lies it also writes down some received messages: no replica
ever sees more. Run by `processes.py`:

    python -m papers.liar -c r1b.yaml --seed N --saw FILE
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from bridge.base import OperatorError
from bridge.contract import Effect, Event, OverlayNode, Received
from gateway.base import load
from gateway.party import serve
from keys.envelope import PROPERTY_HEADER
from papers.sim.adversary import Adversary, Behaviour

SEEN_MAX = 256
"""Messages written down: enough to find one with a known sender, little on disk."""


class Liar(Adversary):
    """An adversary between node and links. `lying`: True while it lies."""

    def __init__(self, node: OverlayNode, seed: int, saw: Path) -> None:
        super().__init__(
            node,
            {Behaviour.SHARES, Behaviour.CONTENT},
            random.Random(seed),  # noqa: S311 - a lie to repeat, no secret
            lying=lambda now: self.lying,
        )
        self.lying = False
        self._saw = saw.open("a", encoding="utf-8")
        self._noted = 0

    def handle(self, event: Event, now: float) -> Sequence[Effect]:
        if self.lying and self._noted < SEEN_MAX and isinstance(event, Received):
            self._note_wire(event)
        return super().handle(event, now)

    def _note_wire(self, event: Received) -> None:
        wire = event.wire
        if not wire.payload or not any(name == PROPERTY_HEADER for name, _ in wire.properties):
            return
        self._noted += 1
        line = {"topic": wire.topic, "content": wire.payload.hex(), "properties": wire.properties}
        self._saw.write(json.dumps(line) + "\n")
        self._saw.flush()


def main() -> int:
    """Runs the lying replica's process."""
    parser = argparse.ArgumentParser(description="A replica that lies between SIGUSR1 and SIGUSR2.")
    parser.add_argument("-c", "--config", type=Path, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--saw", type=Path, required=True)
    told = parser.parse_args()
    liars: list[Liar] = []

    def wrap(node: OverlayNode) -> OverlayNode:
        liars.append(Liar(node, told.seed, told.saw))
        return liars[0]

    def lie(wanted: bool) -> None:
        for liar in liars:
            liar.lying = wanted

    signal.signal(signal.SIGUSR1, lambda *_: lie(True))
    signal.signal(signal.SIGUSR2, lambda *_: lie(False))
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    logging.getLogger("veilmq").setLevel(logging.INFO)
    try:
        serve(load(told.config), wrap)
    except OperatorError as error:
        print(f"veilmq: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
