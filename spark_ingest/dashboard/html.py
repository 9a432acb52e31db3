"""The dashboard's cards as HTML: tables, meters, curves and cells, from figures to text. Pure.

Every word that came from elsewhere, such as names of entities and members, is escaped here and only here. State is
told by words, never by colour alone; a curve has a text beside it. Colours and layout are `dashboard.css`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from spark_ingest.dashboard.board import QUIET, STREAMS, BoardReader, HeardEntity, MemberCard, Query, ShownFigures

WIDTH, HEIGHT = 300, 48
TITLES = {
    "throughput": "Throughput",
    "delay": "Delay, device to spool",
    "spool": "Spool",
    "quarantine": "Quarantine",
    "queries": "Running queries",
    "consumers": "Lag by consumer",
    "entities": "Availability",
    "members": "Replicas and other members, and blame",
    "endpoints": "Metrics endpoints",
}
"""Cards of the page, in their order."""


def cards(shown: ShownFigures, now: float) -> dict[str, str]:
    """The inner HTML of each card, by section."""
    return {
        "throughput": _throughput(shown),
        "delay": _delay(shown, now),
        "spool": _spool(shown),
        "quarantine": _quarantine(shown),
        "queries": _queries(shown.queries, now),
        "consumers": _consumers(shown.readers, now),
        "entities": _entities(shown.cells, shown.states, now),
        "members": _members(shown.members),
        "endpoints": _endpoints(shown.endpoints),
    }


# ------------------------------------------------------------------------------------------------------------ figures


def amount(value: float | None, digits: int = 0) -> str:
    """1,234 or a dash."""
    return "&ndash;" if value is None else f"{value:,.{digits}f}"


def seconds(value: float | None) -> str:
    """A duration in the unit that people read it in."""
    if value is None:
        return "&ndash;"
    for limit, factor, unit, digits in ((1, 1000, "ms", 0), (120, 1, "s", 1), (7200, 1 / 60, "min", 0)):
        if value < limit:
            return f"{value * factor:,.{digits}f} {unit}"
    return f"{value / 3600:,.0f} h" if value < 172_800 else f"{value / 86_400:,.0f} days"


def size(value: float | None) -> str:
    """Bytes in binary units."""
    if value is None:
        return "&ndash;"
    unit = "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, bigger
    return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"


def curve(points: Sequence[float], label: str) -> str:
    """A small curve from zero to its peak. `label` describes the curve for readers who cannot see it."""
    peak = max(points, default=0.0)
    box = f'<svg class="curve" viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" aria-label='
    if len(points) < 2 or peak <= 0:
        return f'{box}"{escape(label)}: nothing yet"></svg>'
    step = WIDTH / (len(points) - 1)
    line = " ".join(f"{x * step:.1f},{HEIGHT - 2 - (HEIGHT - 4) * y / peak:.1f}" for x, y in enumerate(points))
    told = escape(f"{label}: now {points[-1]:,.0f}, at most {peak:,.0f}")
    return f'{box}"{told}"><polygon points="0,{HEIGHT} {line} {WIDTH},{HEIGHT}"/><polyline points="{line}"/></svg>'


def table(caption: str, heads: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> str:
    """Cells are HTML already; columns after the first are figures or words to the right."""
    body = "".join(
        f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in rest)}</tr>' for first, *rest in rows
    )
    if not body:
        return f'<p class="empty">{empty}</p>'
    head = "".join(f'<th scope="col">{escape(each)}</th>' for each in heads)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(caption)}"><table>'
        f'<caption class="hidden">{escape(caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def badge(text: str, kind: str) -> str:
    """A word in a coloured frame."""
    return f'<span class="badge {kind}">{escape(text)}</span>'


# -------------------------------------------------------------------------------------------------------------- cards


def _throughput(shown: ShownFigures) -> str:
    total = [sum(each) for each in zip(*shown.rates.values(), strict=True)]
    now = total[-1] if total else None
    rows = [
        (name, amount(shown.rates[name][-1] if shown.rates[name] else None, 1), amount(shown.seen[name]))
        for name in STREAMS
    ]
    note = '<p class="note">Shares of streams are of the newest rows.</p>' if shown.sampled else ""
    return (
        f'<p class="figure">{amount(now)}<small> rows/s</small></p>{curve(total, "Rows a second, five minutes")}'
        f"{table('Rows by stream', ('Stream', 'rows/s', 'rows seen'), rows, '')}{note}"
    )


def _delay(shown: ShownFigures, now: float) -> str:
    if shown.newest_at is None:
        return '<p class="empty">No telemetry yet.</p>'
    ago = seconds(max(0.0, now - shown.newest_at))
    return (
        f'<p class="figure">{seconds(shown.p50_s)}<small> p50</small></p>'
        f'<p class="figure second">{seconds(shown.p99_s)}<small> p99</small></p>'
        f'<p class="note">Of the newest minute of rows; the last came {ago} ago.</p>'
    )


def _spool(shown: ShownFigures) -> str:
    held, cap = shown.spool_bytes, shown.cap_bytes
    if not cap:
        return f'<p class="figure">{size(held)}</p><p class="note">Its cap is known with a receiver\'s endpoint.</p>'
    share = min(1.0, held / cap)
    kind = "bad" if share >= 0.9 else "fine"
    return (
        f'<p class="figure">{size(held)}<small> of {size(cap)}</small></p>'
        f'<div class="meter {kind}" role="meter" aria-label="Spool, share of its cap" aria-valuemin="0" '
        f'aria-valuemax="100" aria-valuenow="{share * 100:.0f}"><div style="width:{share * 100:.2f}%"></div></div>'
        f'<p class="note">{share:.1%} full; at its cap nothing is acknowledged.</p>'
    )


def _quarantine(shown: ShownFigures) -> str:
    rows = [(escape(reason), amount(count)) for reason, count in shown.reasons]
    return (
        f'<p class="figure">{amount(shown.seen["quarantine"])}<small> rows</small></p>'
        f"{table('Reasons', ('Reason', 'rows'), rows, 'Every row could be opened.')}"
    )


def _queries(found: Sequence[Query], now: float) -> str:
    rows = [
        (
            escape(each.name),
            badge("running", "fine") if each.running else badge("ended", "bad"),
            amount(each.rows_per_second, 1),
            seconds(each.batch_s),
            amount(each.lag_sealed_batches),
            seconds(each.lag_s),
            amount(each.state_rows),
            seconds(None if each.reported_at is None else max(0.0, now - each.reported_at)),
        )
        for each in found
    ]
    heads = ("Query", "", "rows/s", "batch", "sealed batches behind", "time behind", "state rows", "reported, ago")
    return table("Running queries", heads, rows, "No endpoint tells of queries: spark_ingest.metrics.listen(spark).")


def _consumers(readers: Sequence[BoardReader], now: float) -> str:
    rows = [
        (
            escape(each.name),
            badge("running", "fine") if each.running else badge("away", "idle"),
            amount(each.sealed_batches) if each.sealed_batches is not None else badge("before what was trimmed", "bad"),
            size(each.bytes),
            seconds(each.seconds),
            seconds(max(0.0, now - each.committed)),
        )
        for each in readers
    ]
    heads = ("Consumer", "", "sealed batches behind", "bytes", "time behind", "read last, ago")
    return table("Lag by consumer", heads, rows, "No query has read this spool.")


def _members(found: Sequence[MemberCard]) -> str:
    def judged(each: MemberCard) -> str:
        if each.named:
            return badge("named a liar", "bad")
        return badge("suspected", "warn") if each.suspected or each.wrong else badge("nothing", "fine")

    rows = [
        (
            escape(each.name),
            judged(each),
            amount(each.wrong),
            amount(each.suspected),
            amount(each.pieces),
            f"{each.up} of {each.of}" if each.of else "&ndash;",
        )
        for each in found
    ]
    heads = ("Member", "blame", "wrong pieces", "suspicions", "pieces", "links up")
    return table("Blame by member", heads, rows, "No endpoint tells of members.")


def _entities(cells: Sequence[HeardEntity], states: Sequence[tuple[str, int]], now: float) -> str:
    if not cells:
        return '<p class="empty">No statement about an entity yet.</p>'
    told = " ".join(badge(f"{count:,} {state}", _kind(state)) for state, count in states)
    drawn = "".join(_cell(each, now) for each in cells)
    more = sum(count for _, count in states) - len(cells)
    rest = f'<p class="note">and {more:,} more.</p>' if more else ""
    return f'<p class="states">{told}</p><ul class="cells">{drawn}</ul>{rest}'


def _cell(heard: HeardEntity, now: float) -> str:
    for_s = "" if heard.since is None else f", for {seconds(max(0.0, now - heard.since))}"
    name, state = escape(heard.entity), escape(heard.state)
    place = f"at {escape(heard.gateway)}" if heard.gateway else ""
    kind = _kind(heard.state)
    if heard.is_unheard(now) and kind == "fine":
        kind = "warn"
    told = "" if heard.heard_at is None else f"<small>{seconds(max(0.0, now - heard.heard_at))} ago</small>"
    return f'<li class="cell {kind}" title="{name} {place}{for_s}"><b>{name}</b><span>{state}</span>{told}</li>'


def _kind(state: str) -> str:
    low = state.lower()
    if low in QUIET:
        return "fine"
    return "bad" if low in ("offline", "failed", "disconnected") else "warn"


def _endpoints(found: Sequence[tuple[str, str]]) -> str:
    rows = [(escape(url), badge(error or "answers", "bad" if error else "fine")) for url, error in found]
    return table("Metrics endpoints", ("Endpoint", ""), rows, "None was given: --metrics URL.")
