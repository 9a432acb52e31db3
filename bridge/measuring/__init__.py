"""Measurements that replicas make and tell each other: links, processing, common interest, failures, rates (paper D;
A11).

Each replica signs a summary of each interval; a region speaks by the median of its replicas. Imports `organising`,
`wire` and below. The summaries decide the next swap. Not here: the arithmetic (`organising`), the signing of a swap.
"""

from bridge.measuring.measurer import PROBE_TOPIC, Measurer
from bridge.measuring.region_costs import RegionCosts
from bridge.measuring.summaries import (
    INTERESTS_KEPT,
    SUMMARY_TOPIC,
    InterestSummary,
    ReplicaSummary,
    check_author,
    decode_said,
)
from bridge.measuring.swap_objection import objection
from bridge.measuring.swap_proposal import IntervalProposal, SwapProposal, proposal, swapped

__all__ = [
    "INTERESTS_KEPT",
    "PROBE_TOPIC",
    "SUMMARY_TOPIC",
    "InterestSummary",
    "IntervalProposal",
    "Measurer",
    "RegionCosts",
    "ReplicaSummary",
    "SwapProposal",
    "check_author",
    "decode_said",
    "objection",
    "proposal",
    "swapped",
]
