"""Timeline of a demonstration: injected faults, drawn from a seed and placed in the publishing time.

After a quarter of the time a single replica begins to lie and stops at the half; then a replica of another region is
killed and comes back. A region of three replicas promises delivery with a faulty replica. In a single region the two
faults could add up for a message on its way: the liar altered its share, and the share the other replica had yet to
forward died with it. A key server is away for most of the time, which should have no effect. Only the starter of the
demonstration learns the choice. This module starts and kills nothing.
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
    """An action of the demonstration on a replica or a key server."""

    LIE = "begins to lie"
    RECOVER = "is honest again"
    KILL = "is killed (SIGKILL)"
    RESTART = "is started again"


@dataclass(frozen=True, slots=True)
class Step:
    """An action at `at_s` seconds after publishing began. `replica`: the name of a replica or key server."""

    at_s: float
    action: Action
    replica: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """The steps in order of time, and the members that they affect."""

    seed: int
    seconds: float
    liar: str
    killed: str
    key_server: str
    steps: tuple[Step, ...]

    @classmethod
    def draw(cls, seed: int, seconds: float, regions: Sequence[Sequence[str]], key_servers: Sequence[str]) -> Timeline:
        """Chooses liar and victim from two of the `regions` (their replicas), and a key server that is killed too.

        Equal seeds choose equally.
        """
        choice = random.Random(seed)  # noqa: S311  repeatable, no secret
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

    def due_steps(self, since_s: float, until_s: float) -> tuple[Step, ...]:
        """Returns the steps with since_s < at_s <= until_s."""
        return tuple(step for step in self.steps if since_s < step.at_s <= until_s)
