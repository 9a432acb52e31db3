"""What `veilmq check` says of predicates: filters with a `?` where none is read.

With `subscriptions: {predicates: true}` a `?` begins an expression in what clients subscribe to, and nowhere else:
rights are those of the filter before it, and scopes are of topics. A rule that has one fits no subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bridge.base import text_lines
from gateway.base import Settings
from gateway.checking.check_trust import CheckFinding


def check_predicates(settings: Settings, scopes: Iterable[str] = ()) -> Iterator[CheckFinding]:
    """`scopes`: clear filters that the overlay has."""
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
    """Every filter that a plugin's tables or its file say may be subscribed to."""
    for name in ("acl", "subscribe_acl", "subscribe-acl"):
        table = options.get(name)
        for filters in table.values() if isinstance(table, dict) else ():
            yield from (str(each) for each in filters if isinstance(filters, (list, tuple)))
    path = options.get("acl_file")
    try:
        lines = text_lines(Path(path).read_text(errors="replace")) if isinstance(path, (str, Path)) else []
    except OSError:
        return  # said by who loads the plugin
    for line in lines:
        kind, _, rule = line.strip().partition(" ")
        access, _, rest = rule.strip().partition(" ")
        if kind in ("topic", "pattern") and access != "write":
            yield rest.strip() if access in ("read", "readwrite", "deny") and rest else rule.strip()
