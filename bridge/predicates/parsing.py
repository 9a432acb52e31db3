"""The parser of two spellings of a predicate into a common form: alternatives of comparisons, bounded in length, depth
and number.

    room=a&payload.temp>25           behind `FILTER?`, also from MQTT 3.1.1; percent-escapes in names and values
    room = 'a' AND payload.temp > 25 the user property `$where` of a SUBSCRIBE; also OR, IN (...), parentheses

`payload.a.b` is a field of a JSON payload, `payload` a whole payload (a number or text); every other name is a user
property. Recursion is bounded (`DEPTH_MAX`), and so is the product of distributing AND over OR.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import unquote_to_bytes

from bridge.predicates.comparing import Comparison, Conjunction, Name, Op, Predicate, PredicateError, Value, value_of

TEXT_BYTES = 1_024
CONJUNCTIONS_MAX = 8
COMPARISONS_MAX = 16
"""The most comparisons in one conjunction."""
DEPTH_MAX = 16
"""The deepest nesting of parentheses."""

_OPERATOR = re.compile(r"!=|>=|<=|=|>|<")
_BAD_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TOKEN = re.compile(
    r"\s*(?:(?P<op>!=|<>|>=|<=|=|>|<)|(?P<mark>[(),])|'(?P<text>(?:[^']|'')*)'"
    r"|(?P<number>[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)(?![\w.%])"
    r"|(?P<name>[^\W\d](?:[\w.$-]|%[0-9A-Fa-f]{2})*))"
)


def parse_expression(text: str) -> Predicate:
    """Parses `NAME OP VALUE&…`, the text after the `?` of a filter. Raises PredicateError."""
    _check_length(text)
    terms = [_term(term) for term in text.split("&")]
    if len(terms) > COMPARISONS_MAX:
        raise PredicateError(f"more than {COMPARISONS_MAX} comparisons")
    return Predicate((tuple(terms),))


def _term(term: str) -> Comparison:
    found = _OPERATOR.search(term)
    if found is None or not found.start():
        raise PredicateError("a comparison is NAME, one of = != > >= < <=, and VALUE")
    return _comparison(_name(term[: found.start()]), Op(found.group()), value_of(_unescaped(term[found.end() :])))


def parse_where(text: str) -> Predicate:
    """Parses a `$where`. Raises PredicateError."""
    _check_length(text)
    return Predicate(_Where(_tokens(text)).whole())


def _check_length(text: str) -> None:
    if len(text) > TEXT_BYTES or len(text.encode("utf-8", "surrogatepass")) > TEXT_BYTES:
        raise PredicateError(f"longer than {TEXT_BYTES} bytes")


def _unescaped(text: str) -> str:
    if _BAD_ESCAPE.search(text):
        raise PredicateError("'%' without two hexadecimal digits")
    try:
        return unquote_to_bytes(text).decode() if "%" in text else text
    except ValueError:
        raise PredicateError("escapes are not UTF-8") from None


def parse_name(text: str) -> Name:
    """Parses the name of an attribute on its own. Raises PredicateError."""
    _check_length(text)
    return _name(text)


def _name(text: str) -> Name:
    """Parses a name. Escapes are decoded after the dots are split, so that %2E is a dot within a field's name."""
    if text == "payload" or text.startswith("payload."):
        name = tuple(map(_unescaped, text.split(".")))
    else:
        name = (_unescaped(text),)
    if not all(name):
        raise PredicateError("empty name of an attribute")
    return name


def _comparison(name: Name, op: Op, value: Value) -> Comparison:
    if op.is_range and not isinstance(value, float):
        raise PredicateError(f"{op.value} compares with a number only")
    return Comparison(name, op, value)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def _tokens(text: str) -> list[_Token]:
    tokens, at, end = [], 0, len(text.rstrip())
    while at < end:
        found = _TOKEN.match(text, at)
        if found is None or found.lastgroup is None:
            raise PredicateError(f"cannot read from character {at + 1} on")
        kind, word = found.lastgroup, found[found.lastgroup]
        if kind == "name" and word.upper() in ("AND", "OR", "IN"):
            kind, word = "word", word.upper()
        tokens.append(_Token(kind, word))
        at = found.end()
    return tokens


class _Where:
    """A recursive-descent parser over tokens; every method returns alternatives of comparisons."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens, self._at, self._depth = tokens, 0, 0

    def whole(self) -> tuple[Conjunction, ...]:
        found = self._either()
        if self._at < len(self._tokens):
            self._refuse("AND, OR or the end")
        return found

    def _either(self) -> tuple[Conjunction, ...]:
        found = self._both()
        while self._takes("word", "OR"):
            found = _bounded(found + self._both())
        return found

    def _both(self) -> tuple[Conjunction, ...]:
        found = self._one()
        while self._takes("word", "AND"):
            right = self._one()
            if len(found) * len(right) > CONJUNCTIONS_MAX:
                raise PredicateError(f"more than {CONJUNCTIONS_MAX} alternatives")
            found = _bounded(tuple(a + b for a in found for b in right))
        return found

    def _one(self) -> tuple[Conjunction, ...]:
        if self._takes("mark", "("):
            self._depth += 1
            if self._depth > DEPTH_MAX:
                raise PredicateError(f"more than {DEPTH_MAX} parentheses within each other")
            found = self._either()
            self._needs("mark", ")")
            self._depth -= 1
            return found
        name = _name(self._next_token("name", "a name"))
        if self._takes("word", "IN"):
            self._needs("mark", "(")
            values = [self._value()]
            while self._takes("mark", ","):
                values.append(self._value())
            self._needs("mark", ")")
            return _bounded(tuple((Comparison(name, Op.EQ, value),) for value in values))
        op = self._next_token("op", "an operator")
        return ((_comparison(name, Op("!=" if op == "<>" else op), self._value()),),)

    def _value(self) -> Value:
        token = self._tokens[self._at] if self._at < len(self._tokens) else None
        if token is None or token.kind not in ("text", "number"):
            self._refuse("a number or 'text'")
        self._at += 1
        return value_of(token.text.replace("''", "'"))

    def _takes(self, kind: str, text: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == _Token(kind, text):
            self._at += 1
            return True
        return False

    def _needs(self, kind: str, text: str) -> None:
        if not self._takes(kind, text):
            self._refuse(repr(text))

    def _next_token(self, kind: str, what: str) -> str:
        if self._at >= len(self._tokens) or self._tokens[self._at].kind != kind:
            self._refuse(what)
        self._at += 1
        return self._tokens[self._at - 1].text

    def _refuse(self, wanted: str) -> NoReturn:
        found = repr(self._tokens[self._at].text) if self._at < len(self._tokens) else "the end"
        raise PredicateError(f"{wanted} is missing before {found}")


def _bounded(found: tuple[Conjunction, ...]) -> tuple[Conjunction, ...]:
    if len(found) > CONJUNCTIONS_MAX:
        raise PredicateError(f"more than {CONJUNCTIONS_MAX} alternatives")
    if any(len(conjunction) > COMPARISONS_MAX for conjunction in found):
        raise PredicateError(f"more than {COMPARISONS_MAX} comparisons in one alternative")
    return found
