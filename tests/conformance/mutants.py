"""One-line faults of codec, session and routing that the conformance table must notice. Data only; see `mutate`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """`old` occurs once in `file` and is replaced by `new`."""

    file: str
    what: str
    old: str
    new: str


def _in(name: str, *faults: tuple[str, str, str]) -> tuple[Mutant, ...]:
    return tuple(Mutant(f"gateway/{name}.py", *fault) for fault in faults)


CODEC = (
    *_in(
        "mqtt5/codec",
        ("QoS 3 is let in", "if qos == 3 or packet_id == 0:", "if packet_id == 0:"),
        ("packet identifier 0 is let in", "if qos == 3 or packet_id == 0:", "if qos == 3:"),
        ("QoS 0 with DUP is let in", "elif first & 8:", "elif False:"),
        ("RETAIN is not read", "first & 1 == 1", "first & 1 == 2"),
        (
            "clients may send subscription identifiers",
            "if properties.subscription_ids and not may_have_subscription_ids:",
            "if False:",
        ),
        ("an empty topic is let in", "if not topic and properties.topic_alias is None:", "if False:"),
        ("anything may come first", "if data and data[0] != 0x10:", "if False:"),
        ("too large packets are let in", "if stop - position > maximum:", "if stop - position > maximum + 1000:"),
        ("wrong flags get another code", "flags != (2 if kind in (6, 8, 10) else 0)", "flags < 0"),
        ("codes of the other side are let in", "if packet.code not in codes:", "if False:"),
    ),
    *_in(
        "mqtt5/types",
        ("ill-formed UTF-8 is replaced", "text = raw.decode()", 'text = raw.decode("utf-8", "replace")'),
        ("U+FEFF is stripped", "text = raw.decode()", 'text = raw.decode("utf-8-sig")'),
        ("+ in topic names", 'if "+" in topic or "#" in topic:', 'if "#" in topic:'),
        ("# in topic names", 'if "+" in topic or "#" in topic:', 'if "+" in topic:'),
        ("long forms of numbers", "if byte == 0 and shift:", "if False:"),
        ("numbers of five bytes", "if end - at >= 4:", "if end - at >= 400:"),
        ("+ beside other characters", 'if any("+" in level and level != "+" for level in levels):', "if False:"),
        ("# anywhere", 'if any("#" in level for level in levels[:-1]) or', "if False and"),
        ("wildcards in share names", 'if not name or "+" in name or "#" in name:', "if not name:"),
        ("empty share names", 'if not name or "+" in name or "#" in name:', 'if "+" in name or "#" in name:'),
        ("empty filters", "if not rest:", "if False:"),
        (
            "another return code for the version",
            "ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 1,",
            "ReasonCode.UNSUPPORTED_PROTOCOL_VERSION: 2,",
        ),
        ("another return code for authorisation", "ReasonCode.NOT_AUTHORIZED: 5,", "ReasonCode.NOT_AUTHORIZED: 4,"),
    ),
    *_in(
        "mqtt5/parsing",
        ("the reserved connect flag is not looked at", "if flags & 0x01:", "if False:"),
        ("will QoS 3", "if flags & 0x18 == 0x18:", "if False:"),
        ("will retain without a will", "elif flags & 0x38:", "elif flags & 0x18:"),
        ("will QoS without a will", "elif flags & 0x38:", "elif flags & 0x20:"),
        ("3.1.1 with a password alone", "if flags & 0xC0 == 0x40 and version != Version.V5:", "if False:"),
        ("3.1.1 without client identifier", "if not client_id and (version == Version.V31 or", "if False and ("),
        ("subscriptions of QoS 3", "if options & 3 == 3:", "if False:"),
        ("reserved options in 3.1.1", "if options & 0xFC:", "if (options := options & 3) > 3:"),
        ("reserved options in 5", "if options & 0xC0:", "if False:"),
        ("retain handling 3", "if options & 0x30 == 0x30:", "if False:"),
        ("no local on shares", 'if options & 0x04 and topic_filter.startswith("$share/"):', "if False:"),
        (
            "no local and retain as published exchanged",
            "options & 4 != 0, options & 8 != 0",
            "options & 8 != 0, options & 4 != 0",
        ),
        ("every protocol level", "else (4, 5)):", "else (4, 5, 6)):"),
        (
            "other protocol names",
            'if name not in (b"MQTT", b"MQIsdp"):',
            'if name.upper() not in (b"MQTT", b"MQISDP"):',
        ),
        ("clean start is not read", "clean = flags & 0x02 != 0", "clean = True"),
        ("will retain is not read", "flags >> 3 & 3, flags & 0x20 != 0", "flags >> 3 & 3, False"),
        ("will QoS is not read", "flags >> 3 & 3, flags & 0x20 != 0", "0, flags & 0x20 != 0"),
        ("SUBSCRIBE without filters", "if not subscriptions:", "if False:"),
        ("UNSUBSCRIBE without filters", "if not filters:", "if False:"),
        (
            "PUBREL with flags 0000",
            "0x62: _acknowledgement(PubRel, Carrier.PUBREL)",
            "0x60: _acknowledgement(PubRel, Carrier.PUBREL)",
        ),
    ),
    *_in(
        "mqtt5/properties",
        (
            "wildcards in response topics",
            '"response_topic", _STRING, _MESSAGE, _topic)',
            '"response_topic", _STRING, _MESSAGE)',
        ),
        ("receive maximum 0", '"receive_maximum", _TWO, _LIMITS, _positive)', '"receive_maximum", _TWO, _LIMITS)'),
        ("properties that come twice", 'raise ProtocolViolation(f"property {row.field} appears twice")', "pass"),
        ("user properties in reverse", 'found["user"] = tuple(user)', 'found["user"] = tuple(user[::-1])'),
        (
            "user properties without repeats",
            "for name, content in properties.user:",
            "for name, content in dict(properties.user).items():",
        ),
        ("misplaced properties get another code", "if identifier in _KNOWN:", "if False:"),
    ),
    *_in(
        "mqtt5/encoding",
        ("RETAIN is not written", "_BYTES[0x30 | dup << 3 | qos << 1 | retain]", "_BYTES[0x30 | dup << 3 | qos << 1]"),
        ("DUP is not written", "bytes((packet[0] | 8,))", "bytes((packet[0],))"),
        ("session present is not written", "bytes((packet.session_present, packet.code))", "bytes((0, packet.code))"),
        (
            "SUBACK of 3.1.1 with codes of 5",
            "code if code < 0x80 else 0x80 for code in codes",
            "code for code in codes",
        ),
        (
            "UNSUBACK without codes",
            "encode_properties(packet.properties, Carrier.UNSUBACK) + bytes(packet.codes)",
            "encode_properties(packet.properties, Carrier.UNSUBACK)",
        ),
    ),
    *_in(
        "mqtt5/packets",
        ("content types are lost", '("payload_format", "content_type", ', '("payload_format", '),
        ("correlation data are lost", '"correlation_data", "user")', '"user")'),
        ("response topics are lost", '"content_type", "response_topic", ', '"content_type", '),
        ("payload formats are lost", 'LASTING = ("payload_format", ', "LASTING = ("),
        ("user properties are lost", ', "user")', ")"),
    ),
    *_in(
        "mqtt5/message",
        ("nothing expires", "self.expires_at is not None and self.expires_at < now", "False"),
    ),
    *_in(
        "mqtt5/endings",
        ("any CONNACK", "if most is not None and len(acceptance(", "if most is not None and 0 * len(acceptance("),
        (
            "clean sessions are kept",
            "return 0 if connect.clean_start else NEVER_EXPIRES_S",
            "return NEVER_EXPIRES_S",
        ),
        ("DISCONNECT with another code", "code = reason if reason in DISCONNECT_FROM_SERVER else", "code ="),
    ),
)

SESSION = (
    *_in(
        "mqtt5/flows",
        (
            "QoS 2 is delivered twice",
            "(_S.AWAIT_PUBREL, _H.PUBLISH_2): FlowStep(_S.AWAIT_PUBREL, _A.SEND_PUBREC)",
            "(_S.AWAIT_PUBREL, _H.PUBLISH_2): FlowStep(_S.ACCEPTING_2, _A.ROUTE)",
        ),
        (
            "a refusing PUBREC is answered by PUBREL",
            "(_S.AWAIT_PUBREC, _H.PUBREC_REFUSED): FlowStep(_S.FREE, _A.DONE)",
            "(_S.AWAIT_PUBREC, _H.PUBREC_REFUSED): FlowStep(_S.AWAIT_PUBCOMP, _A.SEND_PUBREL)",
        ),
        (
            "a second PUBREC is not answered",
            "(_S.AWAIT_PUBCOMP, _H.PUBREC): FlowStep(_S.AWAIT_PUBCOMP, _A.SEND_PUBREL)",
            "(_S.AWAIT_PUBCOMP, _H.PUBREC): FlowStep(_S.AWAIT_PUBCOMP, _A.NOTHING)",
        ),
        (
            "PUBCOMP without a code for unknown identifiers",
            "FlowStep(_S.FREE, _A.SEND_PUBCOMP_UNKNOWN)",
            "FlowStep(_S.FREE, _A.SEND_PUBCOMP)",
        ),
        (
            "PUBREC acknowledges QoS 1",
            "(_S.AWAIT_PUBACK, _H.PUBREC): _WRONG",
            "(_S.AWAIT_PUBACK, _H.PUBREC): FlowStep(_S.FREE, _A.DONE)",
        ),
        (
            "QoS 1 on an identifier of QoS 2",
            "(_S.AWAIT_PUBREL, _H.PUBLISH_1): _WRONG",
            "(_S.AWAIT_PUBREL, _H.PUBLISH_1): FlowStep(_S.ACCEPTING_1, _A.ROUTE)",
        ),
        ("nothing is sent again", "self.repeat = deque(self.unacknowledged)", "self.repeat = deque()"),
        (
            "what is sent again is in reverse",
            "self.repeat = deque(self.unacknowledged)",
            "self.repeat = deque(reversed(self.unacknowledged))",
        ),
        ("the client's receive maximum is ignored", "min(receive_maximum, self.window_max)", "self.window_max"),
        ("quota is never exhausted", "return self.quota > self._least and not self.repeat", "return not self.repeat"),
        (
            "quota is never exhausted on the short way",
            "if self.quota <= self._least or self.repeat or len(",
            "if self.repeat or len(",
        ),
        ("quota is not given back", "self.quota += 1", "pass"),
        ("our receive maximum is not enforced", "if self._enforced and len(accepting)", "if False and len(accepting)"),
        ("PUBREL ends nothing", "self.awaiting_pubrel.pop(packet_id, None)", "pass"),
        ("a refused message waits for PUBREL", "if publish.qos == 2 and not refused:", "if publish.qos == 2:"),
    ),
    *_in(
        "mqtt5/aliases",
        ("aliases above the maximum", "if not 0 < alias <= self.maximum:", "if alias <= 0:"),
        ("aliases cannot be given anew", "self._topics[alias] = topic", "self._topics.setdefault(alias, topic)"),
        ("one alias too many", "if len(self._aliases) < self.maximum and", "if len(self._aliases) <= self.maximum and"),
    ),
    *_in(
        "mqtt5/delivery",
        ("what expired while it waited is sent", "if queued.message.expired(now):", "if False:"),
        (
            "repetitions without DUP",
            "self._packet(queued, packet_id, True, now)",
            "self._packet(queued, packet_id, False, now)",
        ),
        ("aliases are not remembered", "self._aliases_out.define(message.topic, alias)", "pass"),
        (
            "an alias does not shorten",
            'topic = b"" if alias and not new_alias else message.topic',
            "topic = message.topic",
        ),
        ("subscription identifiers are lost", 'personal += b"\\x0b" + encode_varint(identifier)', "continue"),
        ("another message expiry", 'remaining_s.to_bytes(4, "big")', '(remaining_s + 5).to_bytes(4, "big")'),
    ),
    *_in(
        "mqtt5/exchange",
        ("PUBACK and PUBREC exchanged", 'b"\\x40\\2" if publish.qos == 1 else', 'b"\\x40\\2" if publish.qos == 2 else'),
        ("PUBREL is not sent again", "for packet_id in self.outbound.released:", "for packet_id in ():"),
        (
            "PUBREC of failure taken for success",
            "HeardFlow.PUBREC if packet.code < 0x80 else HeardFlow.PUBREC_REFUSED",
            "HeardFlow.PUBREC",
        ),
    ),
    *_in(
        "mqtt5/session",
        ("nothing is resumed", "self.begun and not connect.clean_start and not expired", "False"),
        ("keep-alive twice", "1.5 * self._keep_alive_s", "2 * self._keep_alive_s"),
        ("keep-alive once", "1.5 * self._keep_alive_s", "1 * self._keep_alive_s"),
        ("wills without delay", "min(self.will.properties.will_delay_s or 0, self.session_expiry_s)", "0"),
        ("DISCONNECT leaves the will", "self.will = None  # MQTT-3.14.4-3", "pass  # MQTT-3.14.4-3"),
        ("every DISCONNECT discards the will", "if packet.code == ReasonCode.SUCCESS:", "if packet.code >= 0:"),
        (
            "retain handling 1 as 0",
            "if asked.retain_handling == 2 or (asked.retain_handling == 1 and existed):",
            "if asked.retain_handling == 2:",
        ),
        ("retain handling 2 as 0", "if asked.retain_handling == 2 or (", "if (False) or ("),
        ("no PINGRESP", 'actions.append(b"\\xd0\\0")', "pass"),
        (
            "the client's maximum packet size is ignored",
            "asked.maximum_packet_size or MAXIMUM_REMAINING_LENGTH + 5",
            "MAXIMUM_REMAINING_LENGTH + 5",
        ),
        (
            "aliases outlive their connection",
            "self._aliases_in = InboundAliases(offer.topic_alias_maximum) if v5 else NO_INBOUND",
            "self._aliases_in = InboundAliases(9) if v5 and self._aliases_in is NO_INBOUND else self._aliases_in",
        ),
        ("any answer to SUBSCRIBE", "if answer_bytes(len(filters), self.version) >", "if -1 >"),
        (
            "session expiry begins at DISCONNECT",
            "if expiry_s and not self.asked.session_expiry_s:",
            "if False:",
        ),
        (
            "UNSUBACK always succeeds",
            "ReasonCode.NO_SUBSCRIPTION_EXISTED if gone is None else ReasonCode.SUCCESS",
            "ReasonCode.SUCCESS",
        ),
    ),
    *_in(
        "broker/lifecycle",
        ("clean start keeps subscriptions", "if connect.clean_start or not client.alive", "if not client.alive"),
    ),
    *_in(
        "mqtt5/endings",
        ("no assigned client identifier", "proof = replace(proof, assigned_client_id=client_id)", "pass"),
    ),
    *_in(
        "broker/delivery",
        ("retain as published is ignored", "message.retain and target.retain_as_published", "False"),
        ("retain as published is ignored by shares", "message.retain and entry.options.retain_as_published", "False"),
        ("delivery at the publisher's QoS", "qos = min(target.qos, message.qos)", "qos = message.qos"),
    ),
    *_in(
        "broker/exchange",
        ("anybody publishes below $SYS", "or is_reserved(publish.topic)", "or False"),
    ),
    *_in(
        "clients/routing",
        (
            "overlapping at the lowest QoS",
            "qos=max(entry.options.qos for entry in entries)",
            "qos=min(entry.options.qos for entry in entries)",
        ),
        ("no local is ignored", "if not self.no_local:", "if True:"),
        (
            "no local of one subscription for all",
            "return Target.from_entries(entries) if entries else None",
            "return None",
        ),
    ),
)

MUTANTS: tuple[Mutant, ...] = CODEC + SESSION
