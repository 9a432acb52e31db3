"""`overlay.discovery:` in a configuration: facts that this member announces on the local network, and facts that it
seeks.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import Annotated

from pydantic import AfterValidator, Field

from gateway.base.limits import Model


def _ip_address(text: str) -> str:
    try:
        return str(ip_address(text))
    except ValueError:
        raise ValueError("is not an IP address; write e.g. 192.0.2.7") from None


class Discovery(Model):
    """Multicast DNS on the local network. A found address counts only as far as TLS and the overlay confirm it."""

    advertise: bool = Field(default=False, description="say on the local network where we listen")
    find: bool = Field(default=False, description="look there for members that do not answer where the overlay says")
    interfaces: list[Annotated[str, AfterValidator(_ip_address)]] = Field(
        default=[], description="addresses of the interfaces to use, e.g. 192.0.2.7; none: all"
    )
