"""Whether another tree of regions would cost less, judged by those who would be its neighbours (paper D, D1 to D5).

Pure arithmetic on measured costs and common interests: what a link spares (`costs`), what brokers have in common
(`interests`), and which link of a cycle goes (`consensus`). Must not import anything of the overlay: the simulator and
an organiser call the same functions. Not here: measuring, statements, changing a tree.
"""

from bridge.organising.consensus import believed, cost_vector, link_to_remove, middle
from bridge.organising.costs import delivery_cost, delivery_tree, indirect_cost, is_worth_it, mean_common
from bridge.organising.interests import InterestFilter, RecentIds
from bridge.organising.swaps import KnownCosts, Swap, best_swap, ring_vectors, swap_of, way

__all__ = [
    "InterestFilter",
    "KnownCosts",
    "RecentIds",
    "Swap",
    "believed",
    "best_swap",
    "cost_vector",
    "delivery_cost",
    "delivery_tree",
    "indirect_cost",
    "is_worth_it",
    "link_to_remove",
    "mean_common",
    "middle",
    "ring_vectors",
    "swap_of",
    "way",
]
