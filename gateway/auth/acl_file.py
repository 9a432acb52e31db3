"""Plugins of access rules: an ACL file in Mosquitto's syntax, and amqtt's tables with strict rules.

    plugins:
      gateway.auth.acl_file.AclFilePlugin:
        acl_file: acl                     # as Mosquitto's; read again on SIGHUP
      gateway.auth.acl_file.AclPlugin:
        publish_acl: {nurse: [ward/+/call]}
        subscribe_acl: {nurse: [ward/#], "*": [devices/%u/#]}

Where a configuration names amqtt's `TopicAccessControlListPlugin`, `AclPlugin` takes its place with its options:
amqtt's plugin lets a rule `ward/+` pass a subscription to `ward/#`, and checks no delivery. `acl_rules.py` has the
meaning of rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from amqtt.broker import BrokerContext
from amqtt.contexts import Action
from amqtt.plugins.base import BaseTopicPlugin
from amqtt.session import Session

from gateway.auth.acl_rules import AclError, AclRules, Table, parse_acl
from gateway.base import StartError

OPEN = "an acl without publish_acl: everybody who is connected may publish anything; add publish_acl"
FILE_BYTES_MAX = 64 << 20
"""Stops a wrong path from being read as an ACL file."""


class _RulesPlugin(BaseTopicPlugin):  # type: ignore[misc]
    """A plugin deciding from rules alone, so that verdicts may be remembered until the rules are read again."""

    _rules: AclRules

    def decides(self, session: Session, topic: str, action: Action) -> bool:
        """Returns the verdict, without waiting (`plugins/host.py`)."""
        return self._rules.permits(session.username, session.client_id or "", topic, action)

    def covers(self, session: Session, topic_filter: str) -> bool:
        """Returns True if the client may receive all topics the filter matches (`plugins/host.py`)."""
        return self._rules.covers(session.username, session.client_id or "", topic_filter)

    def ruled_users(self) -> list[str]:
        """Returns user names that have rules of their own (`acl_rules.AclRules`)."""
        return self._rules.ruled_users()

    def _take_rules(self, rules: AclRules) -> None:
        self._rules = rules

    async def topic_filtering(
        self, *, session: Session | None = None, topic: str | None = None, action: Action | None = None
    ) -> bool | None:
        if session is None or topic is None or action is None:
            return False
        return self.decides(session, topic, action)


class AclFilePlugin(_RulesPlugin):
    """A plugin with the rules of an ACL file in Mosquitto's syntax. Raises StartError."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._rules = self._read_rules(self.config.acl_file)

    @staticmethod
    def _read_rules(acl_file: str | Path) -> AclRules:
        path = Path(acl_file)
        try:
            if path.stat().st_size > FILE_BYTES_MAX:
                raise StartError(f"{path}: larger than {FILE_BYTES_MAX} bytes; is this an ACL file?")
            return parse_acl(path.read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            said = getattr(error, "strerror", None) or "not UTF-8 text"
            raise StartError(f"{path}: {said}; name the ACL file") from None
        except AclError as error:
            raise StartError(f"{path}: {error}; correct the line") from None

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads the file anew; returns a function putting it into force. Raises StartError."""
        return partial(self._take_rules, self._read_rules(options.get("acl_file") or self.config.acl_file))

    @dataclass
    class Config:
        acl_file: str | Path


class AclPlugin(_RulesPlugin):
    """A plugin with the rules of amqtt's tables. Raises StartError."""

    def __init__(self, context: BrokerContext) -> None:
        super().__init__(context)
        self._rules = self._read_rules(vars(self.config))
        # Warnings for the operator, printed at the start and by `veilmq check`.
        self.warnings = () if self.config.publish_acl else (OPEN,)

    @staticmethod
    def _read_rules(options: Mapping[str, Any]) -> AclRules:
        subscribe = options.get("subscribe_acl") or None
        if subscribe and options.get("acl"):
            raise StartError("plugins: acl is the old name of subscribe_acl; give one of them")
        try:
            # An empty table of amqtt's counts as absent.
            return Table(
                options.get("publish_acl") or None,
                subscribe or options.get("acl") or None,
                options.get("receive_acl") or None,
            )
        except (AclError, AttributeError, TypeError) as error:
            raise StartError(f"plugins: acl: {error}") from None

    def reread(self, options: dict[str, Any]) -> Callable[[], None]:
        """Reads other tables; returns a function putting them into force. Raises StartError."""
        return partial(self._take_rules, self._read_rules(options))

    @dataclass
    class Config:
        """The options of the plugin: filters by user name.

        `anonymous`: clients without a user name. `*`: all clients.
        """

        publish_acl: dict[str, list[str]] = field(default_factory=dict)
        subscribe_acl: dict[str, list[str]] = field(default_factory=dict)
        receive_acl: dict[str, list[str]] = field(default_factory=dict)
        acl: dict[str, list[str]] = field(default_factory=dict)
