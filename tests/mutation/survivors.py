"""Faults that no test can notice, and why: {(module, line as it is, line as it becomes): why}."""

from __future__ import annotations


def _alike(module: str, why: str, *faults: tuple[str, str]) -> dict[tuple[str, str, str], str]:
    return {(module, old, new): why for old, new in faults}


_DEPTH = "if depth > 1 and len({place.region for place in self.label}) != depth:"
_RESPLIT = "if len(share.label) >= DEPTH_LIMIT:"
_MEMO = "if len(subsets) < len(self.present) - 1:  # all rows at level 1 never come again within one search"
_FAULTS = 'if below.faults.strip(b"\\0"):'
_WORDS = 'for value, what in ((self.name, "name"), (self.domain, "trust domain")):'
_SIGNED = (
    "is_signed = not (head.startswith(self._opening) and len(head) == _HEAD_BYTES) and _is_signed(data, self.session)"
)
_TOKEN = 'return base64.urlsafe_b64encode(mac[:TOKEN_BYTES]).rstrip(b"=").decode("ascii")'
_TOPIC_ROOT = 'def tokenise_topic(topic: str, key: bytes, control_root: str = "$veil") -> str:'
_FILTER_ROOT = 'def tokenise_filter(topic_filter: str, key: bytes, control_root: str = "$veil") -> str:'
_SPEAKS_AT = 'self._speaks_at = ""  # the topic for words to our broker in this session'
_PINGED = "self._pinged_ms, self._pinged_at = 0, 0.0  # the last ping, by our broker's clock and by ours"
_ALIVE = "self._alive_s = 0.0  # the period in which our broker wants unasked signs of life"
_HANDED = 'self._token = b""  # the last token with its key, as handed over'
_OFFSET = "self._token_offset_s = 0.0  # our clock's offset when that token was made"
_OF_A_TOPIC = "if self._session is None or self._advertisement is None:"
_USUAL_S = "usual_s = min(ASK_AGAIN_S * (1 << min(self._asked, 10)), ASK_AGAIN_MAX_S)"
_NO_REQUEST = 'self._request, self._ask_at, self._asked = b"", self._renewed_at(self._advertisement), 0'
_ANNOUNCED = 'if not (topic.startswith(beginning) and topic.endswith("/availability")):'
_QUOTED = 'encoded = quote(client_id, safe="") or "%-"'
_BITS = "self.bits = {places: 1 << i for i, places in enumerate(product(*[range(1, count + 1) for _, count in inner]))}"
_WITH_IT = "with_it = [[s for s in subsets if place in s] for subsets, place in zip(self.subsets, inner, strict=True)]"
_ALL_AGAIN = "self._all_again = False  # whether choices may be complete that need none of those"
_ENOUGH = "rows = [pair for pair in self._present.items() if pair[1].bit_count() >= needed]"
_ALL = "if self._all_again or len(self._fresh) > FEW:"
_THROUGH = "return [choice for mask, choice in self._plan.through(tuple(inner)) if not mask & missing]"
_PLACES = "places = tuple(sorted(self.rows))[: self._hops[0].threshold]"
_FEW_WORDS = "if count < 2 * self._faults + 1:"
_RANKS = "ranks[deal] = (0, False, deal) if self._faults else (least, chosen != self._avoid, deal)"
_LAST = '_LAST = {1: "", 2: "AQgw", 3: "AEIMQUYcgkosw048"}'
_INVERSES = "_INVERSE = bytes([0, *(MUL_TABLE[c].index(1) for c in range(1, 256))])"
_USUAL = "if len(data) != _USUAL_BYTES + SIGNATURE_BYTES:"
_PATH = "header[SCOPE_AT : SCOPE_AT + len(known.path)] != known.path"
_OUTLINE = "known = self._outlines.get((len(header), path)) if header.startswith(_OPENINGS) else None"
_HOPS_END = "return hops_at + 1 + header[hops_at] * HOP_BYTES"
_LEVEL = "if any(len(share.label) != 1 for share in decoded):"
_ENDORSED = (
    "return [Endorsement.sign_view(overlay.latest[r], self._name, self._identity) for r in regions if self._identity]"
)
_OLDER_FILE = "if version.number < self._latest.number:"
_NEWER_OFFER = "return offered is not None and offered.number > self._latest.number"
_SWEEP = "bridge/traces/sweep.py"
_STALE = "self._is_stale = True  # True if the bound may be far below the first time"
_SOONER = "if at < self._bound:  # noqa: PLR1730  a call of min for each of ten thousand a second"
_SORTED = 'order = self._np.argsort(due[places], kind="stable")[:most]'
_WITNESSES = "bridge/tracking/witnessing.py"
_ORDERED = "order: tuple[int, int] = (-1, 0)  # the last word about health: beginning of its token, its number"
_UNTIL = "self._until_ms = -1  # the end of the last token of these witnesses"
_SILENT = "self._silent_ms = -1  # the time at which the entity said that it goes silent"
_OWN = 'self._own = {"state": 0, "load": 0}  # the highest number of the entity\'s own words'
_SEATS = "if size > 1 and token.not_before_ms < witness.period_ms:"
_WORSE = "witness.level = level if level is Level.ALIVE else max(witness.level or level, level)"
_PINGS = "bridge/traces/pings.py"
_TRIP = "self._smoothed_s, self._deviation_s = -1.0, 0.0  # of round trips; unknown so far"
_EXCUSED = "self._excused_s = 0.0  # the part of that wait by which our own turns came late"
_FIRST_DUE = "if self._waiting and self._waiting[0][2] < due:"
_OVERTAKEN = "self._reordered = self._reordered << 1 | (number < self._highest_answered)"
_LATE_ANSWERS = "if self._reordered >= 2 * _LEADING:"
_MISSES = "self._misses = max(self._misses, 1)"
_ASKED_MS = "return -1 if known is None else known[2]"
_COUNTED = "counted = [each.level for each in self._witnesses if each.level is not None and each.counts(now)]"
_SAYING = "saying = [(i, e) for i, e in counted if e.level is level or (e.level or level) > level > Level.ALIVE]"

_DISCOVERY = "bridge/tracking/discovery.py"
_CLAIMS = 'claimed = b"" if claim is None else claim[0].topic'
_KNOWN = 'for known in map(self._kept.get, {self._newest.get(entity, b""): None, claimed: None}):'
_SAME_STRING = "return owner if entity == owner else entity"
_NEWEST = 'newest = self._kept.get(self._newest.get(entity, b""))'
_WITNESSED = "bridge/tracking/witnessed.py"
_OWN_WORDS = "self._number = 0  # the number of our last own word"
_TRACKER = "bridge/tracking/tracker.py"
_CLAIMED = "CLAIMED = \"\"  # the slot of the entity's own registration, beside the nodes' names"
_ONLY = "heard.add(0 if trace.token.seat is None else trace.token.seat.witness)"
_OF_TOPIC = 'entity, advertisement = self._topics.get(topic, ("", None))'
_ASKED_AT = "followed.ask_at = now + min(ASK_AGAIN_S * (1 << min(followed.asked, 10)), ASK_AGAIN_MAX_S)"
_AVAILABILITY = "bridge/traces/availability.py"
_WAS_OFFLINE = "if entity.state == OFFLINE:  # silent beyond its keep-alive, but the connection held"
_REJOIN_UNTIL = "return entity.announced + self._rejoin_s"
_SOONER_DUE = "if entity.due is not None and entity.due <= due:"
_REJOIN = "self._schedule_check(event.client_id, entity, now + self._rejoin_s)"
_PREFIX = 'if not prefix or any(c in prefix for c in "+#\\0") or prefix.startswith(("$", "/")):'
_FETCHING = "keys/fetching.py"
_MOMENT = "self._ahead = (-1, 0.0)  # an epoch and when to fetch its keys"
_BUMP = "name = KeyName(scope, epoch, directory.bump(scope) or 0)"
_MARKED = 'name = hashlib.sha256("\\0".join((sender, topic, *told.values())).encode()).digest()'
_TICK = "return self._work(now) if now >= self._next else []"
_RANK = "return (servers.index(server) + sum(self._identity.party_id)) % len(servers)"
_PAUSE = "return min(RETRY_MAX_S, RETRY_S * 2.0 ** min(count - 1, 10)) * (0.75 + self._chance() / 2)"
_ISSUING = "keys/issuing.py"
_BOX = "archived[name.epoch] = archived.get(name.epoch) or self._archived(name.epoch, request.asker)"
_NEARER = "nearer = [g for e, g in self._walked.items() if g.deal == start.deal and e < name.epoch]"
_ARCHIVED = "bump = directory.bump(scope) or 0"
_OLDEST = "oldest = calendar.epoch_at(now - calendar.grace_s - calendar.skew_s) - calendar.history_epochs"
_NO_ARCHIVE = 'box = find_box(self._archive.get(epoch, b""), party)'
_SHARETREE = "keys/sharetree.py"
_PRESENT = "self.present = [tuple(sorted({*places})) for places in by_hop]"
_FOREIGN = "if by_hop is None:  # some are of another view or path: one liar's share must not stop the search"

_REJOINING = "bridge/traces/rejoining.py"
_NOBODY_YET = 'self._began = self._since = float("-inf")'
_NONE_CAME = "self._came = self._before = 0  # since `_since`, and in the `COMES_S` before"

_TRACER = "bridge/traces/tracer.py"
_DOUBTED = "if self._doubted and self.self_health.score < SICK:"
_RESTORED = "ours = TraceSession(session, record.key, 1, known.certificate.public_key)"

EXPLAINED: dict[tuple[str, str, str], str] = {
    **_alike(
        _TRACER,
        "the same is done once more than needed, or of nothing",
        (
            "if traced.client != event.client:  # the same entity on another connection",
            "if True:  # the same entity on another connection",
        ),
        ("if changed is None and not voice.is_heard:", "if False:"),
        (_DOUBTED, _DOUBTED.replace("self._doubted", "True", 1)),
    ),
    **_alike(_TRACER, "nobody is called by an empty name", ("if traced.pulse is not None:", "if True:")),
    **_alike(
        _TRACER,
        "whoever is traced has had something said of it before anything could be said while we were sick",
        ("if session is not None and held is not None:", "if True and held is not None:"),
        ("if session is not None and held is not None:", "if session is not None and True:"),
    ),
    **_alike(
        _TRACER,
        "nothing is said in a session of before a restart",
        (_RESTORED, _RESTORED.replace("key, 1,", "key, 2,")),
    ),
    **_alike(
        _REJOINING,
        "nobody asks before somebody is missing, and a minute later what came before does not count",
        (_NOBODY_YET, "pass"),
        (_NONE_CAME, _NONE_CAME.replace("0 ", "1 ", 1)),
    ),
    **_alike(
        _DISCOVERY,
        "no trace topic is of one byte, or of none",
        (_CLAIMS, _CLAIMS.replace('b""', "b'X'")),
        (_KNOWN, _KNOWN.replace('b""', "b'X'")),
        (_NEWEST, _NEWEST.replace('b""', "b'X'")),
    ),
    **_alike(
        _DISCOVERY,
        "an equal string, which is kept twice then: only memory",
        (_SAME_STRING, _SAME_STRING.replace("entity == owner", "False")),
    ),
    **_alike(_TRACKER, "whatever no node is called", (_CLAIMED, _CLAIMED.replace('""', "'X'"))),
    **_alike(_TRACKER, "any number, where there is one", (_ONLY, _ONLY.replace("add(0", "add(1"))),
    **_alike(_TRACKER, "of no topic nothing is asked", (_OF_TOPIC, _OF_TOPIC.replace('""', "'X'"))),
    **_alike(_TRACKER, "a minute is the most", (_ASKED_AT, _ASKED_AT.replace("10)", "11)"))),
    **_alike(_TRACKER, "it is proven once more, with the same outcome", ("if followed.proven:", "if False:")),
    **_alike(_WITNESSED, "before any time", ("self._since_ms = -1", "self._since_ms = -2")),
    **_alike(
        _WITNESSED,
        "set anew where witnesses are named, before anything is said; with one nothing is numbered",
        (_OWN_WORDS, "pass  # the number of our last own word"),
        (_OWN_WORDS, _OWN_WORDS.replace("= 0", "= 1")),
    ),
    **_alike(_WITNESSED, "the first that is there is asked", ("self._asks(0)", "self._asks(1)")),
    **_alike(
        _WITNESSED,
        "a set of small numbers is in order",
        ("for other in sorted(self._met - {witness}):", "for other in list(self._met - {witness}):"),
    ),
    **_alike(
        _AVAILABILITY,
        "who is online is not turned, and looked at once more",
        (_WAS_OFFLINE, _WAS_OFFLINE.replace("entity.state == OFFLINE", "True")),
    ),
    **_alike(
        _AVAILABILITY, "looked at once more than needed, and scheduled then", (_REJOIN, _REJOIN.replace("+", "-"))
    ),
    **_alike(_AVAILABILITY, "letters stand for themselves", (_PREFIX, _PREFIX.replace('"+#\\0"', "'+#\\x00X'"))),
    **_alike(
        _FETCHING,
        "set anew before anybody looks, or before any time",
        (_MOMENT, _MOMENT.replace("-1", "-2")),
        (_MOMENT, _MOMENT.replace("0.0", "1.0")),
        ("at: float = 0.0", "at: float = 1.0"),
    ),
    **_alike(
        _FETCHING,
        "nothing is due before, and what is planned is planned",
        (_TICK, _TICK.replace("now >= self._next", "True")),
        ("if now < self._extra_at:", "if False:"),
        ("if planned == self._planned:", "if False:"),
    ),
    **_alike(
        _FETCHING,
        "False is 0",
        (_BUMP, _BUMP.replace("or 0", "or False")),
    ),
    **_alike("bridge/wire/early.py", "any mark that stands between", (_MARKED, _MARKED.replace('"\\0"', "'\\x00X'"))),
    **_alike(_FETCHING, "any number that differs from member to member", (_RANK, _RANK.replace("+", "-"))),
    **_alike(_FETCHING, "far beyond the longest pause", (_PAUSE, _PAUSE.replace("10)", "11)"))),
    **_alike(
        _ISSUING, "the same box, looked up again", (_BOX, _BOX.replace("archived.get(name.epoch) or", "False or"))
    ),
    **_alike(_ISSUING, "one that is walked to already was found before", (_NEARER, _NEARER.replace("e <", "e <="))),
    **_alike(_ISSUING, "False is 0", (_ARCHIVED, _ARCHIVED.replace("or 0", "or False"))),
    **_alike(_ISSUING, "nothing is left to do: what comes behind stays as it is", ("break", "continue")),
    **_alike(
        _ISSUING,
        "an estimate, which the next line sets right",
        (_OLDEST, _OLDEST.replace("- calendar.grace_s", "+ calendar.grace_s")),
        (_OLDEST, _OLDEST.replace("- calendar.skew_s", "+ calendar.skew_s")),
    ),
    **_alike(_ISSUING, "no archive either", (_NO_ARCHIVE, _NO_ARCHIVE.replace('b""', "b'X'"))),
    **_alike(
        _SHARETREE,
        "any order that is the same everywhere",
        (_PRESENT, _PRESENT.replace("sorted", "list")),
    ),
    **_alike(_SHARETREE, "the long way says the same", (_FOREIGN, _FOREIGN.replace("by_hop is None", "True"))),
    **_alike(
        "keys/sharetree.py",
        "a label of one place has one region",
        (_DEPTH, _DEPTH.replace("depth > 1", "True")),
        (_DEPTH, _DEPTH.replace("depth > 1", "depth >= 1")),
    ),
    **_alike(
        "keys/sharetree.py",
        "a share with five places cannot be made: the check saves the work before",
        (_RESPLIT, "if False:"),
        (_RESPLIT, "if len(share.label) > DEPTH_LIMIT:"),
    ),
    **_alike(
        "keys/sharetree.py",
        "only what is remembered, hence how long a search takes",
        (_MEMO, _MEMO.replace("len(subsets) < len(self.present) - 1", "True")),
        (_MEMO, _MEMO.replace("len(subsets) < len(self.present) - 1", "False")),
        (_MEMO, _MEMO.replace("<", "<=")),
        (_MEMO, _MEMO.replace("- 1", "+ 1")),
        (_MEMO, _MEMO.replace("- 1", "- 2")),
        ("if len(self._memo) >= LEVELS_KEPT:", "if False:"),
        ("if len(self._memo) >= LEVELS_KEPT:", "if True:"),
        ("if len(self._memo) >= LEVELS_KEPT:", "if len(self._memo) > LEVELS_KEPT:"),
        ("self._memo = {(): self._memo[()]}", "pass"),
        ("self._memo[subsets] = known", "pass"),
        (_FAULTS, "if True:"),
        (_FAULTS, _FAULTS.replace('b"\\0"', "b'\\x00X'")),
        ("if other != first:", "if True:"),
    ),
    **_alike(
        "keys/sharetree.py",
        "tags of the places that are chosen are equal, or the cell has its fault already",
        ("above = tuple([plane[0] for plane in tags[:-1]])", "above = tuple([plane[1] for plane in tags[:-1]])"),
    ),
    **_alike(
        "keys/identity.py",
        "words of an error",
        (_WORDS, _WORDS.replace('"name"', "'nameX'")),
        (_WORDS, _WORDS.replace('"trust domain"', "'trust domainX'")),
    ),
    **_alike(
        "keys/tracesession.py",
        "the long way of reading says the same of what is sealed",
        (_SIGNED, "is_signed = True and _is_signed(data, self.session)"),
        (_SIGNED, _SIGNED.replace("len(head) == _HEAD_BYTES", "len(head) != _HEAD_BYTES")),
    ),
    **_alike(
        "keys/tracesession.py",
        "a message that ends with its counter is no message either way",
        ("reader.number(8)", "reader.number(9)"),
    ),
    **_alike(
        "keys/frames.py",
        "text of 4 n + 1 characters is no base64 at all, whatever its last one",
        (_LAST, _LAST.replace("1:", "2:", 1)),
        (_LAST, _LAST.replace('1: ""', "1: 'X'")),
    ),
    **_alike(
        "keys/topictokens.py",
        "16 bytes end in A, Q, g or w",
        (_TOKEN, _TOKEN.replace('b"="', "b'=X'")),
    ),
    **_alike(
        "keys/topictokens.py",
        "words of an error",
        ('_check_string(topic, "topic")', "_check_string(topic, 'topicX')"),
        ('_check_string(topic_filter, "topic filter")', "_check_string(topic_filter, 'topic filterX')"),
    ),
    **_alike(
        "keys/gf256.py",
        "zero has no inverse, whatever stands in its place",
        (_INVERSES, _INVERSES.replace("[0,", "[1,")),
    ),
    **_alike(
        "keys/signedheader.py",
        "the long way of reading says the same",
        ("if header is not None:", "if False:"),
        (_USUAL, "if True:"),
        ("version != frames.PROTOCOL_VERSION", "True"),
        ("or flags > HEADER_FLAGS", "or flags >= HEADER_FLAGS"),
    ),
    **_alike(
        "keys/keyopening.py",
        "a type variable is known by what it is bound to",
        ('K = TypeVar("K")', "K = TypeVar('KX')"),
        ('V = TypeVar("V")', "V = TypeVar('VX')"),
    ),
    **_alike(
        "keys/keyopening.py",
        "only what is remembered, hence how long it takes",
        ("if known is None or (", "if True:"),
        (_PATH, _PATH.replace("AT + len", "AT - len")),
        (_OUTLINE, _OUTLINE.replace("header.startswith(_OPENINGS)", "False")),
        ("if known is None:", "if True:"),
        ("self._last = known", "pass"),
        ("if places is None:", "if True:"),
        ("if derivation is None:", "if True:"),
        (_HOPS_END, _HOPS_END.replace("+ 1", "+ 2")),
    ),
    **_alike(
        "keys/keyopening.py",
        "kept until the secret, or why there is none, takes its place",
        ('secrets.append(b"")', "secrets.append(b'X')"),
    ),
    **_alike(
        "keys/keyopening.py",
        "shares of one frame are of one level, and there is at least one",
        (_LEVEL, _LEVEL.replace("any", "all")),
    ),
    **_alike(
        "keys/envelope.py",
        "a draft's, in nothing that is hashed before the true one takes its place",
        ("commitment=bytes(32),", "commitment=bytes(33),"),
        ('signature=b"",', "signature=b'X',"),
    ),
    **_alike(
        "keys/shamir.py",
        "below zero either way: no size yet",
        ("total, size = 0, -1", "total, size = 0, -2"),
    ),
    **_alike(
        "bridge/tracking/entity.py",
        "a connection, or what comes in its session, sets it before anybody looks",
        ('self._request = b""', "pass"),
        ('self._request = b""', "self._request = b'X'"),
        ("self._asked = 0", "pass"),
        ("self._asked = 0", "self._asked = 1"),
        (_SPEAKS_AT, _SPEAKS_AT.replace('self._speaks_at = ""', "pass")),
        (_SPEAKS_AT, _SPEAKS_AT.replace('""', "'X'")),
        (_PINGED, _PINGED.replace("0, 0.0", "1, 0.0")),
        (_PINGED, _PINGED.replace("0, 0.0", "0, 1.0")),
        (_ALIVE, _ALIVE.replace("self._alive_s = 0.0", "pass")),
        (_ALIVE, _ALIVE.replace("0.0", "1.0")),
        (_HANDED, _HANDED.replace('self._token = b""', "pass")),
        (_HANDED, _HANDED.replace('b""', "b'X'")),
        (_OFFSET, _OFFSET.replace("self._token_offset_s = 0.0", "pass")),
        (_OFFSET, _OFFSET.replace("0.0", "1.0")),
        ("self._token_made_at = 0.0", "self._token_made_at = 1.0"),
    ),
    **_alike(
        "bridge/tracking/entity.py",
        "a session is of a topic that we have",
        (_OF_A_TOPIC, _OF_A_TOPIC.replace("self._advertisement is None", "False")),
    ),
    **_alike(
        "bridge/tracking/entity.py",
        "a minute is the most, and no request has such a length",
        (_USUAL_S, _USUAL_S.replace("10)", "11)")),
        (_NO_REQUEST, _NO_REQUEST.replace('b""', "b'X'")),
    ),
    **_alike(
        "bridge/traces/availability.py",
        "what it lets through is told apart by its topic",
        (_ANNOUNCED, "if False:"),
        (_ANNOUNCED, _ANNOUNCED.replace("topic.startswith(beginning)", "True")),
        (_ANNOUNCED, _ANNOUNCED.replace("and", "or")),
        (_ANNOUNCED, _ANNOUNCED.replace('topic.endswith("/availability")', "True")),
    ),
    **_alike(
        "bridge/traces/availability.py",
        "set before anybody looks; letters stand for themselves",
        ("keep_alive_s: int = 0", "keep_alive_s: int = 1"),
        ("dirty: bool = True", "dirty: bool = False"),
        (_QUOTED, _QUOTED.replace('safe=""', "safe='X'")),
    ),
    **_alike(
        _AVAILABILITY,
        "who is remembered is looked at when that time has come, and not before",
        (_REJOIN_UNTIL, _REJOIN_UNTIL.replace("+", "-")),
    ),
    **_alike(
        _AVAILABILITY,
        "what is due is worked out anew at each look; only how many entries are stale",
        (_SOONER_DUE, _SOONER_DUE.replace("<=", "<")),
        (_SOONER_DUE, "if False:"),
    ),
    **_alike(
        _TRACKER, "before any time that a claim can have", ("followed.claimed_ms = -1", "followed.claimed_ms = -2")
    ),
    **_alike(
        _TRACKER,
        "what is proven is not asked, and forgets who spoke when its topic ends: only memory",
        ("followed.heard_on.clear()", "pass"),
    ),
    **_alike(
        "keys/columnsearch.py",
        "only how shares are numbered within a row",
        (_BITS, _BITS.replace("1 << i", "2 << i")),
        (_BITS, _BITS.replace("count + 1", "count + 2")),
    ),
    **_alike(
        "keys/columnsearch.py",
        "only what is remembered or looked at once more, hence how long a search takes: nothing is tried twice",
        ("if known is None:", "if True:"),
        ("if name not in self._values:", "if True:"),
        (_WITH_IT, _WITH_IT.replace("if place in s", "if True")),
        (_ALL_AGAIN, _ALL_AGAIN.replace("False", "True")),
        ("self._all_again = len(self.rows) > fits", "self._all_again = len(self.rows) >= fits"),
        (_ENOUGH, _ENOUGH.replace("pair[1].bit_count() >= needed", "True")),
        ("if len(rows) < self._hops[0].threshold:", "if False:"),
        (_ALL, "if True:"),
        (_ALL, _ALL.replace(">", ">=")),
        ("if contradicted:", "if True:"),
        ("if self._present[row].bit_count() < self._plan.needed:", "if False:"),
        (_THROUGH, _THROUGH.replace("not mask & missing", "True")),
    ),
    **_alike(
        "keys/columnsearch.py",
        "only in which order places are interpolated",
        (_PLACES, _PLACES.replace("sorted", "list")),
    ),
    **_alike(
        "keys/verdicts.py",
        "only whether the same is worked out once more",
        (
            "self._open = True  # words came that may change the key",
            "self._open = False  # words came that may change the key",
        ),
        ("if not self._open:", "if False:"),
        ("self._open = False", "pass"),
        ("self._open = False", "self._open = True"),
        (_FEW_WORDS, "if False:"),
        (_FEW_WORDS, _FEW_WORDS.replace("+ 1", "- 1")),
    ),
    **_alike(
        "keys/verdicts.py",
        "no deal has such a name, and no set of which nobody spoke counts",
        ('self._deal = b""', "self._deal = b'X'"),
        ('return b"", 0', "return b'X', 0"),
    ),
    **_alike(
        "keys/verdicts.py",
        "the same for every deal",
        (_RANKS, _RANKS.replace("(0, False", "(1, False")),
        (_RANKS, _RANKS.replace("(0, False", "(0, True")),
    ),
    **_alike(
        "keys/topictokens.py",
        "what begins with $ is left alone, whatever the control root is",
        (_TOPIC_ROOT, _TOPIC_ROOT.replace('"$veil"', "'$veilX'")),
        (_FILTER_ROOT, _FILTER_ROOT.replace('"$veil"', "'$veilX'")),
    ),
    **_alike(
        "keys/replay.py",
        "only how long it takes",
        ("if bits[byte] == 0xFF and bits == _FULL:", "if True and bits == _FULL:"),
    ),
    **_alike(
        "keys/records.py",
        "what is added up, or marked, once more is the same",
        ("if not self._extras_ends:", "if True:"),
        ("if any(extras) or flags.translate(None, _PLAIN_FLAGS):", "if True:"),
    ),
    **_alike(
        "keys/records.py",
        "the long way of reading says the same",
        ("if flags & _SEALED_FLAGS:", "if True:"),
        ("if flags & _SEALED_FLAGS:", "if flags | _SEALED_FLAGS:"),
    ),
    **_alike(
        "bridge/membership/endorsing.py",
        "without an identity nothing is due",
        (_ENDORSED, _ENDORSED.replace("if self._identity]", "if True]")),
    ),
    **_alike(
        "bridge/membership/adopting.py",
        "a link that comes up sets it",
        ("told_at: float = 0.0", "told_at: float = 1.0"),
        ("awaited: bool = False", "awaited: bool = True"),
    ),
    **_alike(
        "bridge/membership/adopting.py",
        "the same number was told apart before",
        (_OLDER_FILE, _OLDER_FILE.replace("<", "<=")),
        (_NEWER_OFFER, _NEWER_OFFER.replace(">", ">=")),
    ),
    **_alike(
        _PINGS,
        "the first answer sets both",
        (_TRIP, _TRIP.replace("-1.0", "-2.0")),
        (_TRIP, _TRIP.replace(" 0.0", " 1.0")),
    ),
    **_alike(
        _PINGS,
        "the first ping sets it anew, as does a connection that ends",
        (_EXCUSED, _EXCUSED.replace("0.0", "1.0")),
    ),
    **_alike(_PINGS, "the same time", (_FIRST_DUE, _FIRST_DUE.replace("<", "<="))),
    **_alike(_PINGS, "no ping is answered twice", (_OVERTAKEN, _OVERTAKEN.replace(" < ", " <= "))),
    **_alike(_PINGS, "where both differ no answer came late", (_LATE_ANSWERS, _LATE_ANSWERS.replace(">=", ">"))),
    **_alike(_PINGS, "whether there is one is all that counts", (_MISSES, _MISSES.replace("1", "2"))),
    **_alike(
        "bridge/traces/kinds.py",
        "before any time that a wish can have",
        (_ASKED_MS, _ASKED_MS.replace("-1", "-2")),
    ),
    **_alike(
        "bridge/traces/kinds.py",
        "what holds no escape holds no half of a character",
        ('if "\\\\u" in text:', "if True:"),
    ),
    **_alike("bridge/traces/telling.py", "it is written as it is there", ("if known is None:", "if True:")),
    **_alike(_WITNESSES, "only the order of levels counts", ("FAILED = 3", "FAILED = 4")),
    **_alike(
        _WITNESSES,
        "before any time and any number that a token can have",
        ("period_ms: int = -1  # the beginning of its token", "period_ms: int = -2  # the beginning of its token"),
        (_ORDERED, _ORDERED.replace("-1", "-2")),
        (_ORDERED, _ORDERED.replace("0)", "1)")),
        ("self._since_ms = -1", "self._since_ms = -2"),
        ("self._since_ms = self._until_ms = -1", "self._since_ms = self._until_ms = -2"),
        ("self._until_ms = -1", "self._until_ms = -2"),
        ("self._silent_ms = -1", "self._silent_ms = -2"),
    ),
    **_alike(
        _WITNESSES,
        "the first token sets it anew before anybody looks",
        (_UNTIL, "pass  # the end of the last token of these witnesses"),
        (_UNTIL, _UNTIL.replace("-1", "-2")),
        (_SILENT, "pass  # the time at which the entity said that it goes silent"),
        (_SILENT, _SILENT.replace("-1", "-2")),
        (_OWN, _OWN.replace('"state": 0', '"state": 1')),
        (_OWN, _OWN.replace('"load": 0', '"load": 1')),
    ),
    **_alike(_WITNESSES, "no entity has two witnesses", (_SEATS, _SEATS.replace("> 1", "> 2"))),
    **_alike(
        _WITNESSES,
        "every other level is above ALIVE, which is nought",
        (_WORSE, _WORSE.replace("witness.level or level,", "witness.level or False,")),
        (_SAYING, _SAYING.replace("e.level or level", "e.level or False")),
    ),
    **_alike(
        _WITNESSES,
        "who said nothing does not count either way",
        (_COUNTED, _COUNTED.replace("each.level is not None", "True")),
    ),
    **_alike(
        _WITNESSES,
        "what more than half say is all the same",
        ("return equal[0] if equal else None", "return equal[1] if equal else None"),
    ),
    **_alike(
        _SWEEP,
        "looked at once more than needed: the answer is the same, and takes longer",
        ("self._is_stale = False  # True if the bound may be far below the first time", _STALE),
        ("if self._is_stale:", "if True:"),
        ("self._is_stale = False", "pass"),
        ("self._is_stale = False", "self._is_stale = True"),
        (_SOONER, _SOONER.replace("<", "<=")),
    ),
    **_alike(
        _SWEEP,
        "an array that grows too often is as long as it has to be, and more",
        ("if self._used == len(self._due):", "if True:"),
    ),
    **_alike(_SWEEP, "numpy knows a kind by its first letter", (_SORTED, _SORTED.replace('"stable"', "'stableX'"))),
}
