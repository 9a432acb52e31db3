"""What `veilmq check` says about a `?` that is no predicate's."""

from __future__ import annotations

from pathlib import Path

from gateway.base.config import parse
from gateway.checking.check_predicates import check_predicates

ACL = """
user nurse
topic read ward/+/call?room=3
topic write why?/#
pattern own/%u?
topic plain/#
"""


def told(predicates: bool, acl_file: Path, scopes: tuple[str, ...] = ()) -> list[str]:
    rules = "gateway.auth.acl_file."
    settings = parse(
        {
            "listeners": {"default": {"type": "tcp", "bind": "127.0.0.1:0"}},
            "subscriptions": {"predicates": predicates},
            "plugins": {
                f"{rules}AclFilePlugin": {"acl_file": str(acl_file)},
                f"{rules}AclPlugin": {
                    "publish_acl": {"nurse": ["who?"]},
                    "subscribe_acl": {"nurse": ["ward/a?b=1", "ward/#"]},
                },
            },
        }
    )
    return [finding.text for finding in check_predicates(settings, scopes)]


def test_filters_that_fit_no_subscription_are_named(tmp_path: Path) -> None:
    rules = tmp_path / "acl"
    rules.write_text(ACL)
    found = told(True, rules, ("plant/?/#", "open/#"))
    assert [text.split(": ")[1] for text in found] == ["plant/?/#", "ward/+/call?room=3", "own/%u?", "ward/a?b=1"]
    assert all("name the filter without it" in text for text in found)
    assert told(False, rules, ("plant/?/#",)) == [], "then a '?' is a character like any other"
    assert len(told(True, tmp_path / "absent")) == 1
