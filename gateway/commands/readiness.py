"""`veilmq up` says when all members are well: each is asked at its metrics port until it says so.

One question a look, so that a member that does not answer holds nobody up for long. Members without `metrics:` are not
waited for. What is wrong later is for `veilmq status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.commands.status import asked

ASK_S = 1.0
LATE_S = 30.0
"""When it takes so long, what holds it up is said."""


class Readiness:
    """`configs`: of the members, by name. `begun`: seconds of the clock that `step` is given."""

    def __init__(self, configs: Mapping[str, Path], begun: float) -> None:
        self._begun, self._count, self._late = begun, 0, False
        self._binds: dict[str, str] = {}
        self._wrong: dict[str, str] = {}
        for name, config in configs.items():
            bind = _metrics(config)
            if bind is not None:
                self._binds[name] = bind
        self._count = len(self._binds)

    def step(self, now: float) -> str | None:
        """Ask the next one; a line for the operator, if there is one to be said."""
        if not self._binds:
            return None
        name, bind = next(iter(self._binds.items()))
        del self._binds[name]
        answer = asked(bind, ASK_S)
        if answer.get("level") != "well":
            self._binds[name] = bind
            self._wrong[name] = next((str(one["text"]) for one in answer.get("findings", ())), "is not well")
        if not self._binds:
            return f"well: all {self._count} members, after {now - self._begun:.1f} s"
        if now - self._begun < LATE_S or self._late:
            return None
        self._late = True
        return "not well yet: " + "; ".join(f"{name}: {self._wrong.get(name, 'not asked yet')}" for name in self._binds)


def _metrics(config: Path) -> str | None:
    """Where a member is asked; None where it is not, or its configuration is wrong, which it says itself."""
    from gateway.base import ConfigError, load  # noqa: PLC0415  heavy

    try:
        settings = load(config)
    except ConfigError:
        return None
    return settings.metrics.bind if settings.metrics is not None else None
