"""Readiness of all members for `veilmq up`: asks each at its metrics port until it reports to be well.

Each check asks a single member, so that a silent member delays no other for long. Members without `metrics:` are not
waited for. Later faults are reported by `veilmq status`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from gateway.commands.status import asked

ASK_S = 1.0
LATE_S = 30.0
"""Seconds after which the members that are not well yet are named."""


class Readiness:
    """The wait for all members. `configs`: configuration files by member. `begun`: seconds of the clock of `step`."""

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
        """Asks the next member; returns a line for the operator, or None."""
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
    """Returns a member's metrics address, or None if it is not configured.

    A member reports errors of its configuration itself: they give None, too.
    """
    from gateway.base import ConfigError, load  # noqa: PLC0415  heavy

    try:
        settings = load(config)
    except ConfigError:
        return None
    return settings.metrics.bind if settings.metrics is not None else None
