"""Table of every option of Mosquitto 2.0 and 2.1 with the outcome of its import. Data only.

An option that restricts access (connecting, reading, writing) and has no counterpart here is *refused*: the import
stops and prints the cure, because a broker allowing more than Mosquitto did is worse than none. A difference only in
amount or speed is *changed* and reported. An option missing from the table is refused. Sources: mosquitto.conf(5) of
2.0.11 and 2.1.2, and the options that their `conf.c` reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """The outcome of a line, in the order of the report: the worst comes last, next to the prompt."""

    TAKEN = "taken"
    NEEDLESS = "not needed"
    CHANGED = "changed"
    REFUSED = "refused"


class OptionPlace(StrEnum):
    """The scope of an option. SECURITY: a listener after `per_listener_settings true`, else all listeners."""

    GLOBAL = "global"
    SECURITY = "security"
    LISTENER = "listener"
    BRIDGE = "bridge"


@dataclass(frozen=True, slots=True)
class Option:
    """A row of the table. `text`: the reason, or the cure of a refusal. `like_ours`: values equal to our behaviour."""

    place: OptionPlace
    outcome: Outcome
    text: str = ""
    like_ours: frozenset[str] = field(default=frozenset())


def _rows(place: OptionPlace, outcome: Outcome, rows: dict[str, str | tuple[str, str]]) -> dict[str, Option]:
    """Returns options by name. A row of `rows` has its text, or its text and the values equal to our behaviour."""
    found = {}
    for names, row in rows.items():
        text, like_ours = row if isinstance(row, tuple) else (row, "")
        for name in names.split():
            found[name] = Option(place, outcome, text, frozenset(like_ours.split()))
    return found


def _taken(place: OptionPlace, names: str) -> dict[str, Option]:
    return dict.fromkeys(names.split(), Option(place, Outcome.TAKEN))


_FALSE, _TRUE = "false 0", "true 1"
_TAKE_OUT = "to do without, take the line out of a copy of the file and import that"
_PLUGIN = (
    f"checks of a plugin do not happen here; move its users and rights to password_file and acl_file, then {_TAKE_OUT}"
)
_CIPHERS = f"the ciphers of Python's ssl are offered, whatever the list says; {_TAKE_OUT}"
_ENGINE = "a private key is read from a file only; write keyfile with a file"
_LOG = "the log goes to standard error, which the service manager keeps"
_LINES = "every event is one line with its time; `log: json` for programs"
_ON_DISK = "changes are on disk before they are acknowledged"
_STATUS = "status_topic says here whether the other broker is reached"
_LAZY = "a bridge connects at the start and stays connected"
_SOCKET = "the operating system's keep-alive is left as it is; MQTT's finds a dead connection"

OPTIONS: dict[str, Option] = {
    **_taken(
        OptionPlace.GLOBAL,
        "include_dir global_max_clients global_max_connections max_inflight_messages max_keepalive max_packet_size "
        "max_queued_bytes max_queued_messages message_size_limit per_listener_settings persistence persistence_file "
        "persistence_location persistent_client_expiration retain_available retained_persistence sys_interval "
        "plugin_load",
    ),
    **_taken(OptionPlace.SECURITY, "acl_file allow_anonymous password_file plugin auth_plugin global_plugin"),
    **_taken(
        OptionPlace.LISTENER,
        "listener port bind_address cafile capath certfile keyfile require_certificate max_connections max_topic_alias "
        "protocol websockets_origin socket_domain listener_allow_anonymous enable_proxy_protocol plugin_use",
    ),
    **_taken(
        OptionPlace.BRIDGE,
        "connection address addresses topic clientid remote_clientid username remote_username password remote_password "
        "keepalive_interval cleansession local_cleansession local_clientid bridge_protocol_version notification_topic "
        "bridge_cafile bridge_capath bridge_certfile bridge_keyfile bridge_insecure bridge_tls_use_os_certs "
        "bridge_session_expiry_interval bridge_max_packet_size try_private",
    ),
    **_rows(
        OptionPlace.GLOBAL,
        Outcome.NEEDLESS,
        {
            "autosave_interval autosave_on_changes": _ON_DISK,
            "log_dest log_facility": _LOG,
            "log_timestamp log_timestamp_format log_type connection_messages websockets_log_level": _LINES,
            "pid_file": "the service manager knows the process",
            "user": "the service manager says who runs it",
            "set_tcp_nodelay": "it is always set",
            "retry_interval": "MQTT repeats on reconnects only",
            "websockets_headers_size packet_buffer_size": "bounds of a handshake are fixed",
        },
    ),
    **_rows(
        OptionPlace.GLOBAL,
        Outcome.CHANGED,
        {
            "allow_duplicate_messages": ("overlapping subscriptions get one copy, as MQTT 5 says", _FALSE),
            "check_retain_source": ("retained messages stay when their publisher loses its rights", _FALSE),
            "enable_control_api": ("$CONTROL is not offered; use the console or `veilmq users`", _FALSE),
            "max_inflight_bytes": ("bytes in flight are not bounded apart; limits.queue_bytes counts them too", "0"),
            "memory_limit": ("every queue and store has a bound of its own under `limits`", "0"),
            "queue_qos0_messages": ("QoS 0 is not queued for clients that are away", _FALSE),
            "retain_expiry_interval": "retained messages stay; publishers give them a message expiry interval",
            "upgrade_outgoing_qos": ("a delivery has the smaller QoS of publication and subscription", _FALSE),
        },
    ),
    **_rows(
        OptionPlace.GLOBAL,
        Outcome.REFUSED,
        {"clientid_prefixes": f"client ids are not restricted here; write `pattern` lines with %c, then {_TAKE_OUT}"},
    ),
    **_rows(
        OptionPlace.SECURITY,
        Outcome.NEEDLESS,
        {
            "auth_plugin_deny_special_chars": "it is of its plugin",
            "psk_file": "pre-shared keys count on a listener with psk_hint only",
        },
    ),
    **_rows(OptionPlace.SECURITY, Outcome.CHANGED, {"auto_id_prefix": "made client ids begin with veilmq-"}),
    **_rows(
        OptionPlace.SECURITY,
        Outcome.REFUSED,
        {"allow_zero_length_clientid": (f"clients without a client id are let in; {_TAKE_OUT}", _TRUE)},
    ),
    **_rows(
        OptionPlace.LISTENER,
        Outcome.NEEDLESS,
        {
            "dhparamfile": "key exchange is over elliptic curves",
            "max_topic_alias_broker": "aliases towards a client are agreed by themselves",
        },
    ),
    **_rows(
        OptionPlace.LISTENER,
        Outcome.CHANGED,
        {
            "disable_client_cert_date_checks": ("client certificates out of date are refused; renew them", _FALSE),
            "http_dir": "no files are served; give them to a web server",
            "listener_auto_id_prefix": "made client ids begin with veilmq-",
            "max_qos maximum_qos": ("clients may use every QoS", "2"),
        },
    ),
    **_rows(
        OptionPlace.LISTENER,
        Outcome.REFUSED,
        {
            "accept_protocol_versions": (f"MQTT 3.1, 3.1.1 and 5 are all let in; {_TAKE_OUT}", "3,4,5"),
            "bind_interface": "a listener is bound to an address, not an interface; write `listener PORT ADDRESS`",
            "ciphers ciphers_tls1.3": _CIPHERS,
            "crlfile": (
                "revoked certificates would be let in; sign those that count with a new CA and name it as cafile"
            ),
            "mount_point": "its clients would see all topics; run a broker of their own for them, bridged to this",
            "proxy_protocol_v2_require_tls": (
                "a balancer is not asked whether its client used TLS; have it listen with TLS only", _FALSE,
            ),
            "psk_hint": "TLS with pre-shared keys is not offered; write certfile and keyfile, and passwords for users",
            "tls_engine tls_engine_kpass_sha1": _ENGINE,
            "tls_keyform": (_ENGINE, "pem"),
            "tls_version": (
                f"TLS 1.2 and 1.3 are offered, and TLS 1.3 alone cannot be asked for; {_TAKE_OUT}",
                "tlsv1.2 tlsv1.1 tlsv1",
            ),
            "use_identity_as_username use_subject_as_username": (
                "certificates are no user names here; give each client a password in password_file", _FALSE,
            ),
            "use_username_as_clientid": (
                "a client id is not made of the user name here, so one user could take another's session; write "
                f"`pattern` lines with %u instead of %c, then {_TAKE_OUT}", _FALSE,
            ),
        },
    ),
    **_rows(
        OptionPlace.BRIDGE,
        Outcome.NEEDLESS,
        {
            "round_robin": "addresses are tried in their order, and the first again after each round",
            "restart_timeout": "pauses between attempts double up to 30 s",
            "threshold idle_timeout": "they are of lazy bridges",
            "bridge_attempt_unsubscribe": "only what is configured is subscribed",
            "local_username local_password": "a bridge is inside the broker and logs in nowhere",
            "notifications notifications_local_only": _STATUS,
            "bridge_max_topic_alias bridge_receive_maximum": "both are agreed by themselves",
            "bridge_reload_type": "a bridge takes a new configuration at the next start",
            "bridge_tcp_keepalive bridge_tcp_user_timeout": _SOCKET,
        },
    ),
    **_rows(
        OptionPlace.BRIDGE,
        Outcome.CHANGED,
        {
            "start_type": (_LAZY, "automatic"),
            "bridge_alpn": "no ALPN is offered; where port 443 asks for it, use port 8883",
            "bridge_bind_address": "the operating system's routes choose the address to connect from",
            "bridge_outgoing_retain": ("retained messages cross as retained; the other broker has to take them", _TRUE),
        },
    ),
    **_rows(
        OptionPlace.BRIDGE,
        Outcome.REFUSED,
        {
            "bridge_ciphers bridge_ciphers_tls1.3": _CIPHERS,
            "bridge_psk bridge_identity": (
                "TLS with pre-shared keys is not offered; have the other broker listen with a certificate, and write "
                "bridge_cafile"
            ),
            "bridge_require_ocsp": (f"the other broker's certificate is not checked by OCSP; {_TAKE_OUT}", _FALSE),
            "bridge_tls_version": (
                f"TLS 1.2 and 1.3 are used, and TLS 1.3 alone cannot be asked for; {_TAKE_OUT}", "tlsv1.2 tlsv1.1",
            ),
        },
    ),
}  # fmt: skip
"""Options by name, except options of plugins, whose names begin with a prefix of `OF_PLUGIN`."""
OF_PLUGIN = ("plugin_opt_", "auth_opt_")
PLUGIN = Option(OptionPlace.SECURITY, Outcome.REFUSED, _PLUGIN)
"""The row for any plugin except Mosquitto's own plugins for password_file, acl_file and SQLite."""


def option_of(name: str) -> Option | None:
    """Returns the row of an option, or None if Mosquitto knows no such option."""
    if name.startswith(OF_PLUGIN):
        return Option(OptionPlace.GLOBAL, Outcome.TAKEN)
    return OPTIONS.get(name)
