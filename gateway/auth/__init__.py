"""Authentication and access rules: logins, tokens, and enhanced authentication of MQTT 5 (SCRAM-SHA-256).

Imports `clients` and below.
"""

from __future__ import annotations

from gateway.auth.enhanced_auth import AuthRefused, EnhancedAuth, EnhancedAuthPlugin, Proven
from gateway.auth.scram import METHOD, NONCE_BYTES, SALT_BYTES, Decoys, ScramError, ScramServer, Verifier, saslprep

__all__ = [
    "METHOD",
    "NONCE_BYTES",
    "SALT_BYTES",
    "AuthRefused",
    "Decoys",
    "EnhancedAuth",
    "EnhancedAuthPlugin",
    "Proven",
    "ScramError",
    "ScramServer",
    "Verifier",
    "saslprep",
]
