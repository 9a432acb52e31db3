"""When what happens to whom: the injected faults, drawn from a seed and placed in the publishing time.

A quarter in, one replica begins to lie and stops at the half; then one of another region is killed and comes
back. A region of three replicas promises delivery with one that is faulty. In one and the same region the two
could add up for a message that is still on its way: the liar altered its share, and the share that the other one
had yet to hand over died with it. One key server is away for most of the time, which nobody should notice.
Nobody but the one who runs the demonstration gets to know the choice. This module starts and kills nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

LIE_FROM = 0.25
LIE_UNTIL = 0.50
KILL_AT = 0.60
RESTART_AT = 0.75
KEY_SERVER_KILL_AT = 0.05
KEY_SERVER_RESTART_AT = 0.85


class Action(Enum):
    """One thing that the demonstration does to a replica or a key server."""

    LIE = "begins to lie"
    RECOVER = "is honest again"
    KILL = "is killed (SIGKILL)"
    RESTART = "is started again"


@dataclass(frozen=True, slots=True)
class Step:
    """`at_s` seconds after publishing began. `replica`: or key server."""

    at_s: float
    action: Action
    replica: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Steps in order of time."""

    seed: int
    seconds: float
    liar: str
    killed: str
    key_server: str
    steps: tuple[Step, ...]

    @classmethod
    def draw(cls, seed: int, seconds: float, regions: Sequence[Sequence[str]], key_servers: Sequence[str]) -> Timeline:
        """Choose liar and victim from two of the `regions` (their replicas), and a key server that is killed too.

        Equal seeds choose equally.
        """
        choice = random.Random(seed)  # noqa: S311  to be repeated, no secret
        liar, killed = map(choice.choice, choice.sample(regions, 2))
        key_server = choice.choice(key_servers)
        steps = (
            Step(KEY_SERVER_KILL_AT * seconds, Action.KILL, key_server),
            Step(LIE_FROM * seconds, Action.LIE, liar),
            Step(LIE_UNTIL * seconds, Action.RECOVER, liar),
            Step(KILL_AT * seconds, Action.KILL, killed),
            Step(RESTART_AT * seconds, Action.RESTART, killed),
            Step(KEY_SERVER_RESTART_AT * seconds, Action.RESTART, key_server),
        )
        return cls(seed, seconds, liar, killed, key_server, steps)

    def due(self, since_s: float, until_s: float) -> tuple[Step, ...]:
        """Steps with since_s < at_s <= until_s."""
        return tuple(step for step in self.steps if since_s < step.at_s <= until_s)
