"""Table 3 of the paper on availability traces: the cost of a trace from an entity to a tracker, by hops and transport.

Added up from single operations (`Costs`), in the order of the paper: the entity signs, its broker verifies, makes the
trace and signs it, each broker on the way reads, verifies and passes on, the tracker verifies. Rows *secured* seal
and open beside that. Rows of UDP count a datagram instead of a segment of TCP: VeilMQ itself sends nothing over UDP.
Paper items B4, B7 and B8.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from papers.experiments.experiments import Figure, Progress, Series
from papers.experiments.loads import Costs

AUTHORISED, SECURED = "authorised", "authorised and secured"
TCP, UDP = "TCP", "UDP"
HOPS = (2, 3, 4, 5, 6)
PAPER_MS = {
    (TCP, AUTHORISED): (72.68, 79.45, 86.4, 93.99, 100.81),
    (TCP, SECURED): (90.29, 98.12, 105.06, 110.89, 116.21),
    (UDP, AUTHORISED): (70.24, 76.47, 84.02, 89.78, 96.79),
    (UDP, SECURED): (88.86, 95.19, 101.76, 107.99, 114.33),
}


def trace_us(costs: Costs, hops: int, transport: str, protection: str) -> float:
    """Returns the microseconds of a trace over so many hops between brokers."""
    carried = costs.tcp_us if transport == TCP else costs.udp_us
    passed_on = carried + costs.parse_us + costs.verify_us + costs.write_us
    made = 2 * costs.sign_us + costs.verify_us
    sealed = costs.seal_us + costs.open_us if protection == SECURED else 0.0
    return made + hops * passed_on + sealed


def figure_routing(seed: int, progress: Progress, *, costs: Costs | None = None) -> Figure:
    """Computes the rows of the table that are about hops. Nothing is drawn; every figure has a `seed`."""
    del seed
    costs = costs or Costs()
    rows, series = [], []
    for (transport, protection), paper in PAPER_MS.items():
        ours = tuple(trace_us(costs, hops, transport, protection) / 1e3 for hops in HOPS)
        lines = zip(HOPS, ours, paper, strict=True)
        rows += [(transport, protection, float(hops), ms, theirs) for hops, ms, theirs in lines]
        series.append(Series(f"{transport}, {protection}", tuple(map(float, HOPS)), ours))
    progress(1.0)
    return Figure(
        experiment="availability",
        number="table-3",
        title="What routing a trace costs over hops",
        x_label="hops",
        y_label="time from entity to tracker, ms",
        series=tuple(series),
        columns=("transport", "protection", "hops", "ours ms", "paper ms"),
        rows=tuple(rows),
        notes=(
            "Paper: RSA of 1,024 bits and Java, 25 ms for a signature of a trace; brokers on machines of their own, "
            "1 to 2 ms for a link. Ours: Ed25519, all on this machine, so a link costs system calls only.",
            "Nothing of VeilMQ is sent over UDP; its rows say what a datagram would change. Links of VeilMQ have TLS "
            "beside TCP, which is in neither row.",
            f"Costs in µs: TCP {costs.tcp_us:.1f}, UDP {costs.udp_us:.1f}, sign {costs.sign_us:.0f}, verify "
            f"{costs.verify_us:.0f}, seal {costs.seal_us:.1f}, open {costs.open_us:.1f}.",
            "Pings, tokens and key distribution of real processes: `make bench-availability`.",
        ),
    )


FIGURES: Mapping[str, Callable[..., Figure]] = MappingProxyType({"table-3": figure_routing})
"""Figures by the paper's numbers. Each takes `(seed, progress)` and, by keyword, the `costs`."""
