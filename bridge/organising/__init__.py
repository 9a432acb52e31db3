"""The cost of another tree of regions, judged by the regions that would be its neighbours (paper D, D1 to D5).

Pure arithmetic on measured costs and interests: the cost of publications along a tree (`costs`), the publications
concerning each region (`interests`), the swaps that spare cost (`swaps`), and the link of a cycle the paper's brokers
give up (`consensus`). Must not import anything of the overlay: the simulator and an organiser call the same functions.
Not here: measuring, statements, changing a tree.
"""

from bridge.organising.consensus import believed, cost_vector, link_to_remove, ring_vectors
from bridge.organising.costs import (
    KnownCosts,
    delivery_cost,
    delivery_tree,
    indirect_cost,
    is_worth_it,
    mean_common,
    tree_cost,
)
from bridge.organising.interests import FILTER_BITS, InterestFilter, agreed, estimated
from bridge.organising.swaps import Swap, good_swaps, swap_of, swapped_tree, way

__all__ = [
    "FILTER_BITS",
    "InterestFilter",
    "KnownCosts",
    "Swap",
    "agreed",
    "believed",
    "cost_vector",
    "delivery_cost",
    "delivery_tree",
    "estimated",
    "good_swaps",
    "indirect_cost",
    "is_worth_it",
    "link_to_remove",
    "mean_common",
    "ring_vectors",
    "swap_of",
    "swapped_tree",
    "tree_cost",
    "way",
]
