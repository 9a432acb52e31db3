"""Plain data structures under every other room: topics and filters, fair turns, the time on the wall.

They know nothing of the overlay, of keys or of MQTT beyond the form of a topic. Imports no other room.
"""

from __future__ import annotations

from bridge.base.belongings import Belongings
from bridge.base.errors import OperatorError, file_fault
from bridge.base.intervals import Intervals
from bridge.base.name_weights import NameWeights
from bridge.base.sorted_names import SortedNames
from bridge.base.text_lines import breaks_line, text_lines
from bridge.base.topics import (
    MAX_LEVELS,
    MEMO_CHARS,
    MEMO_TOPICS,
    SHARE_PREFIX,
    NameTree,
    TopicError,
    TopicIndex,
    check_filter,
    check_name,
    covers,
    has_wildcard,
    matches,
    most_specific,
    overlaps,
    specificity,
    split_share,
)
from bridge.base.transitions import Row, Transitions
from bridge.base.turns import Turns
from bridge.base.wall import Wall

__all__ = [
    "MAX_LEVELS",
    "MEMO_CHARS",
    "MEMO_TOPICS",
    "SHARE_PREFIX",
    "Belongings",
    "Intervals",
    "NameTree",
    "NameWeights",
    "OperatorError",
    "Row",
    "SortedNames",
    "TopicError",
    "TopicIndex",
    "Transitions",
    "Turns",
    "Wall",
    "breaks_line",
    "check_filter",
    "check_name",
    "covers",
    "file_fault",
    "has_wildcard",
    "matches",
    "most_specific",
    "overlaps",
    "specificity",
    "split_share",
    "text_lines",
]
