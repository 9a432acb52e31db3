"""Content-based subscriptions (C10): predicates over a message's attributes, two spellings, and an index of many.

Pure: no clients, sessions or topics. The broker knows the holder of each predicate and the filter before it. Imports
nothing but the standard library.
"""

from bridge.predicates.attributes import Attributes
from bridge.predicates.comparing import Comparison, Conjunction, Name, Op, Predicate, PredicateError, Value, value_of
from bridge.predicates.covering import implies, widen
from bridge.predicates.matching import PredicateIndex, bits_of, slots_of
from bridge.predicates.parsing import parse_expression, parse_name, parse_where

__all__ = [
    "Attributes",
    "Comparison",
    "Conjunction",
    "Name",
    "Op",
    "Predicate",
    "PredicateError",
    "PredicateIndex",
    "Value",
    "bits_of",
    "implies",
    "parse_expression",
    "parse_name",
    "parse_where",
    "slots_of",
    "value_of",
    "widen",
]
