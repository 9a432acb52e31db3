"""Detection of rights on user names without proof: any client claiming such a name has its rights."""

from __future__ import annotations

from collections.abc import Iterable

from amqtt.plugins.authentication import AnonymousAuthPlugin
from amqtt.plugins.base import BaseAuthPlugin, BaseTopicPlugin

from gateway.auth.acl_file import AclFilePlugin, AclPlugin
from gateway.auth.enhanced_auth import EnhancedAuthPlugin
from gateway.auth.oidc import OidcPlugin

SHOWN_MAX = 5  # names in one line of a warning


def claimed_names(plugins: Iterable[object], allow_anonymous: bool) -> str | None:
    """Returns a warning for the operator, in a line; None if names are proven or have no rights."""
    found = list(plugins)
    provers = BaseAuthPlugin | EnhancedAuthPlugin
    if any(isinstance(one, provers) and not isinstance(one, AnonymousAuthPlugin) for one in found):
        return None
    says_yes = any(isinstance(one, AnonymousAuthPlugin) for one in found)
    names = [name for one in found if isinstance(one, AclFilePlugin | AclPlugin) for name in one.ruled_users()]
    if not names or not (allow_anonymous or says_yes):
        return None
    shown = ", ".join(names[:SHOWN_MAX]) + (", ..." if len(names) > SHOWN_MAX else "")
    return (
        f"ANYBODY MAY CLAIM ANY NAME: rules count for user names ({shown}), clients are let in without a proof, and no "
        "plugin proves names; add gateway.auth.passwords.PasswordPlugin or another one that does"
    )


def unlimited_tokens(plugins: Iterable[object]) -> str | None:
    """Returns a warning for the operator if whoever has a token of an identity provider may do everything."""
    found = list(plugins)
    if not any(isinstance(one, OidcPlugin) for one in found) or any(isinstance(one, BaseTopicPlugin) for one in found):
        return None
    return (
        "whoever has a token of the identity provider may publish and read everything, and groups of tokens count "
        "nowhere: no plugin has rights; add gateway.auth.dynamic.DynamicPlugin, and rights of groups to its file"
    )
