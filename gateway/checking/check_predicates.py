"""Predicate findings of `veilmq check`: filters with a `?` in places where no predicate is read.

With `subscriptions: {predicates: true}` a `?` begins an expression in clients' subscriptions, and nowhere else:
rights are those of the filter before the `?`, and scopes are of topics. A rule with a `?` fits no subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bridge.base import text_lines
from gateway.base import Settings
from gateway.checking.check_trust import CheckFinding


def check_predicates(settings: Settings, scopes: Iterable[str] = ()) -> Iterator[CheckFinding]:
    """Yields a finding for each filter with a `?`. `scopes`: clear filters of the overlay's scopes."""
    if not settings.subscriptions.predicates:
        return
    overlay = settings.overlay
    named = [] if overlay is None else [*(each.filter for each in overlay.protect), *overlay.share_plain]
    places = [("overlay", each) for each in named] + [("scope", each) for each in scopes]
    places += [(f"plugin {name}", each) for name, options in settings.plugins.items() for each in _texts(options)]
    for place, topic_filter in dict.fromkeys(places):
        if "?" in topic_filter:
            why = "what clients subscribe to ends before the '?', where their predicate begins"
            yield CheckFinding("warning", f"{place}: {topic_filter}: {why}; name the filter without it")


def _texts(options: Mapping[str, Any]) -> Iterator[str]:
    """Yields every filter a plugin's tables or its file allow for subscriptions."""
    for name in ("acl", "subscribe_acl", "subscribe-acl"):
        table = options.get(name)
        for filters in table.values() if isinstance(table, dict) else ():
            yield from (str(each) for each in filters if isinstance(filters, (list, tuple)))
    path = options.get("acl_file")
    try:
        lines = text_lines(Path(path).read_text(errors="replace")) if isinstance(path, (str, Path)) else []
    except OSError:
        return  # loading the plugin reports this
    for line in lines:
        kind, _, rule = line.strip().partition(" ")
        access, _, rest = rule.strip().partition(" ")
        if kind in ("topic", "pattern") and access != "write":
            yield rest.strip() if access in ("read", "readwrite", "deny") and rest else rule.strip()
