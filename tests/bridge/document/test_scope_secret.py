"""What an authorised party knows of a scope: clear names become wire names, and the token key does not show."""

from __future__ import annotations

from bridge.document.policy import Scope
from bridge.document.scope_secret import ScopeSecret
from keys.topictokens import tokenise_topic

KEY = b"t" * 32


def test_a_topic_travels_as_tokens_where_the_scope_hides_names() -> None:
    hidden = ScopeSecret(Scope("plant/#"), "plant/#", KEY)
    assert hidden.wire_topic("plant/line/speed") == tokenise_topic("plant/line/speed", KEY)
    assert "line" not in hidden.wire_topic("plant/line/speed")
    assert ScopeSecret(Scope("plant/#"), "plant/#").wire_topic("plant/line/speed") == "plant/line/speed"


def test_the_token_key_does_not_show() -> None:
    assert "ttt" not in repr(ScopeSecret(Scope("plant/#"), "plant/#", KEY))
