"""The figures that machines count, each name once with its meaning, for Prometheus, `$SYS` and the documentation.

`Count` carries the name. A new figure is a line here and the place of its event. Figures of the broker's local
clients are in `gateway.operation.registry`.
"""

from __future__ import annotations

from enum import StrEnum


class FigureName(StrEnum):
    """The public name of a figure, as its value; `text` describes a single counted event."""

    text: str

    def __new__(cls, name: str, text: str) -> FigureName:
        member = str.__new__(cls, name)
        member._value_ = name
        member.text = text
        return member

    AVAILABILITY_REFUSED = "availability_refused", "A client's word about its own state was too long or one too many."
    CLOCK_OFF = "clock_off", "An answer came from a clock that differs from ours by more than is allowed."
    COMPLAINTS = "complaints", "A replica before us sent a share that misfits its commitment."
    CONSTRAINED_REFUSED = (
        "constrained_refused",
        "A client may not use that constrained topic; the label says how it would.",
    )
    CONTENT_AFTER = "content_after", "Content came after the rest of its publication had been passed on."
    CONTENT_GIVEN_UP = "content_given_up", "Content that was not whole in time is waited for no longer."
    DATA_KEYS = "data_keys", "A data key came that was not known."
    DELIVERED = "delivered", "A publication was verified, opened and delivered."
    DETOURS = "detours", "Sealed content for a replica whose link is full went over another one."
    DEVICES_DEATHS_OF_BEFORE = (
        "devices_deaths_of_before",
        "A device's will that came belongs to a connection of before, and ends nothing.",
    )
    DEVICES_EVICTED = "devices_evicted", "A device was forgotten to make room for another."
    DEVICES_REFUSED = (
        "devices_refused",
        "Who spoke of a device may not, or there is no room; the label says what it said.",
    )
    DISCOVERIES = "discoveries", "A discovery node answered a request."
    DISCOVERIES_REFUSED = "discoveries_refused", "A request for discovery did not hold; the label says why."
    DUPLICATES_DROPPED = "duplicates_dropped", "A publication came once more, as it does from every replica."
    ENDORSEMENTS_UNKNOWN = "endorsements_unknown", "An endorsement is of a view that we do not know."
    ENTITIES_ASKED_THERE = "entities_asked_there", "An entity that is silent here was asked through other witnesses."
    ENTITIES_ENDED = "entities_ended", "An entity ended its registration."
    ENTITIES_EVICTED = "entities_evicted", "An entity was forgotten to make room for another."
    ENTITIES_REGISTERED = "entities_registered", "An entity registered."
    ENTITIES_RESUMED = "entities_resumed", "An entity is back in its session of before."
    SESSIONS_UNKNOWN = "sessions_unknown", "An entity wanted to go on with a session that this broker does not know."
    ENTITIES_RESTORED = "entities_restored", "An entity that had registered before a restart is known again."
    ENTITIES_VOUCHED = "entities_vouched", "An entity that is silent here answered through another witness."
    EPOCH_KEY_WAITS = "epoch_key_waits", "A publication waits for the epoch's key of its scope."
    EXPIRED = "expired", "A publication came after its deadline."
    FORWARDED = "forwarded", "A replica forwarded a publication that it had not seen."
    GAUGES_UNANSWERED = "gauges_unanswered", "A broker did not answer what a tracker wants to hear."
    HISTORY_DENIED = "history_denied", "A replica refused to give us its history."
    HISTORY_SLOW = "history_slow", "A replica made a reading of the history wait for too long, and was left behind."
    GAPS_READ = "gaps_read", "Publications that replicas forgot are looked for in their histories."
    READ_ON = "read_on", "This gateway was away for long, and reads on in the history."
    UNVOUCHED = "unvouched", "Too few replicas have a record of the history for it to count."
    HISTORY_MISFIT = "history_misfit", "A page of a history, or a record of one, did not hold; the label says why."
    FAR_ASKED = "far_asked", "A replica of another region was asked for its history, which the label names."
    HISTORY_LOST = "history_lost", "A publication is missing in the history, since the disk did not take it."
    FAR_PASSED = "far_passed", "A request for a history of another region, or its page, was passed on."
    FAR_REPEATED = "far_repeated", "A request for a history of another region came twice, and was dropped."
    FAR_TOO_MANY = "far_too_many", "A reader asked another region for more than a reading needs: a request was dropped."
    FAR_UNASKED = "far_unasked", "A page of another region's history came for nothing that waits, and was dropped."
    HISTORY_REFUSED = "history_refused", "A reader asked for a history that it may not read, or that nobody keeps."
    HISTORY_SENT = "history_sent", "A record of the history was sent to a reader."
    RECORDED = "recorded", "A publication went into the history."
    GROUPS_TAKEN_OVER = "groups_taken_over", "A shared group of another gateway is served by us, since its lease ended."
    GROUPS_UNLEASED = "groups_unleased", "A shared group lost its lease to newer ones of its client."
    GENERATIONS_PASSED = (
        "generations_passed",
        "A start of ours with a wrong clock came to count: we went on with a later generation.",
    )
    HELD_OVERFLOW = (
        "held_overflow",
        "There is no room for another publication to wait for its turn: it is not acknowledged before there is.",
    )
    HOLES = "holes", "A publication that came before its predecessor was delivered all the same, after waiting."
    INCOMPLETE = "incomplete", "A publication never became whole: too few shares, or no content."
    KEY_REFUSALS = "key_refusals", "A key server refused a request."
    KEY_REQUESTS = "key_requests", "A member asked for epoch keys."
    KEY_REQUESTS_ANSWERED = "key_requests_answered", "A key server answered."
    KEY_SERVER_LIES = "key_server_lies", "A key server's answer contradicts the others'."
    KEY_WAITS = "key_waits", "A publication of ours waits for the epoch's key of its scope."
    KEYLESS_OVERFLOW = "keyless_overflow", "There is no room to wait for another publication's data key."
    KEYS_AHEAD = "keys_ahead", "A data key came before the view or tree of regions that it was split for."
    KEYS_UNVOUCHED = "keys_unvouched", "A data key that a bump outdated waits until enough replicas bring it."
    PUBLICATIONS_AHEAD = (
        "publications_ahead",
        "A publication came before the tree of regions or the version that it needs.",
    )
    PUBLICATIONS_AHEAD_DROPPED = (
        "publications_ahead_dropped",
        "One that waited for a tree of regions or a version made room for others of its publisher or neighbour.",
    )
    KEYS_FETCHED = "keys_fetched", "An epoch key was fetched."
    KEYS_ISSUED = "keys_issued", "A key server issued an epoch key."
    KEYS_REFUTED = (
        "keys_refuted",
        "Nothing can open a data key any more: what came does not fit what was signed.",
    )
    KEYS_REFUSED = "keys_refused", "A key server refused: no right, or no such key."
    LEASES = "leases", "A lease of a shared group was passed on."
    LINKS_STILL = (
        "links_still",
        "The link to this replica stands still: others take over what was to go through it by planes.",
    )
    LINK_OVERFLOW = "link_overflow", "What was to go to this member found no room, or was too large for it."
    LINK_REFUSED = "link_refused", "This member refused a publication."
    LINK_THROTTLED = (
        "link_throttled",
        "This member's link brought more than its budget, and is read no further for a while.",
    )
    MACHINE_FAILED = "machine_failed", "An exception of ours: the machine dropped one event."
    NAMED = "named", "A member was named as a liar."
    NEWCOMERS_UNSERVED = (
        "newcomers_unserved",
        "What is retained was asked for too often by a newcomer, and is told later.",
    )
    NOT_AUTHORISED = "not_authorised", "A publication of ours waits: no scope takes it, or no right allows it."
    NOT_AUTHORISED_DROPPED = (
        "not_authorised_dropped",
        "A publication of ours was given up: no scope or right for it came in time.",
    )
    OTHERS_DROPPED = "others_dropped", "A publication is another receiver's to take."
    OUTBOX_DAMAGED = "outbox_damaged", "A row of the outbox could not be read."
    OUTBOX_EXPIRED = "outbox_expired", "A publication of ours was dropped: too old before it could be sent."
    OUTBOX_REFUSED = (
        "outbox_refused",
        "The outbox took no publication: it is full, the disk fails, or local clients alone got it.",
    )
    OUTLIVED = "outlived", "A later start of our own identity was proven: it runs twice, and we seal nothing any more."
    OUTLIVED_WAITS = (
        "outlived_waits",
        "A publication of ours waits: a later start of our identity runs elsewhere.",
    )
    OVERLAY_EQUIVOCATIONS = "overlay_equivocations", "The owner signed two documents of one version."
    OVERLAYS_ADOPTED = "overlays_adopted", "A newer version of the overlay is in force."
    OVERLAYS_SENT = "overlays_sent", "The overlay was sent to a member that had an older one."
    OVERLAYS_WITHHELD = "overlays_withheld", "A member offered a version and did not send it."
    OWN_TOPICS_REFUSED = "own_topics_refused", "Somebody published on a topic that only this gateway may use."
    PRESENCE = "presence", "A newer word of a replica, that it lives and has links, was verified and kept."
    PUBLISH_REFUSED = (
        "publish_refused",
        "A local publication was refused: no right, too large, or more than a record holds.",
    )
    PUBLISHER_DELAYED = "publisher_delayed", "A publisher sent more than its budget, and is acknowledged later."
    PUBLISHER_THROTTLED = "publisher_throttled", "A publisher sent more than its budget."
    PULLS = "pulls", "A party asked for what it lacks."
    PULLS_ANSWERED = "pulls_answered", "A request for what somebody lacks was answered."
    PULLS_PASSED_ON = "pulls_passed_on", "A request was passed on towards the publisher."
    PULLS_REFUSED = "pulls_refused", "A request came more often than its allowance."
    QOS0_DROPPED = "qos0_dropped", "A publication of QoS 0 of ours found no room."
    RECEIPTS_LOST = "receipts_lost", "A row for proofs of delivery was not written: the disk did not take it."
    RECEIPTS_PASSED_ON = "receipts_passed_on", "A receipt of a reader was passed on towards its publisher."
    RECEIPTS_SIGNED = "receipts_signed", "A receipt of ours was signed and sent."
    RECEIPTS_SKIPPED = "receipts_skipped", "A batch that we have will be in no receipt: too many waited for one."
    RECEIPTS_TAKEN = "receipts_taken", "A receipt came that fits what we sealed."
    RECEIPTS_UNMATCHED = "receipts_unmatched", "A receipt of this reader does not fit what we know to have sealed."
    RECOMBINE_RETRIES = "recombine_retries", "A data key opened only after other choices of shares."
    RECOMBINED = "recombined", "A data key was recombined."
    REFUSED = "refused", "What came is refused; the label says why."
    BATCHES_CUT = "batches_cut", "A stored batch is larger than what enough hosted brokers take, and goes in parts."
    REFUSED_BY_REPLICA = "refused_by_replica", "A replica did not take a publication of ours; the label says why."
    REGISTERED = "registered", "This program is traced by its broker."
    REORDER_WAITS = "reorder_waits", "A publication waits for its predecessor."
    REPAIRS = "repairs", "A publication came because it was asked for."
    REPLAYS_DROPPED = "replays_dropped", "An old publication came again."
    REPORTS_SKIPPED = "reports_skipped", "A report of a trace was left out: too many at once."
    RETAINED_ENDED = "retained_ended", "A retained publication ended with its epoch."
    RETAINED_OWN_DROPPED = "retained_own_dropped", "A retained publication of ours is kept no longer, for want of room."
    RETAINED_RESEALED = "retained_resealed", "A retained publication of ours is sealed anew."
    SEALED = "sealed", "A publication was sealed."
    SHARES_RECEIVED = "shares_received", "A share came."
    WRAPS_RECEIVED = "wraps_received", "A wrap of a key with a long way came to be believed."
    SPARKPLUG_REBIRTHS = "sparkplug_rebirths", "A Sparkplug node was asked to be born again."
    SPOOLED = "spooled", "A publication was written to the spool."
    STALLS = "stalls", "A next region has no room: publications towards it wait."
    STATEMENTS = "statements", "A subscription statement was accepted and passed on."
    SUBSCRIPTIONS_ACCEPTED = "subscriptions_accepted", "A quorum of our region knows a subscription of ours."
    SUMMARIES = "summaries", "Another replica's summary of what it measured was verified and kept."
    SUMMARIES_UNKNOWN = "summaries_unknown", "A summary is of a version of the overlay that we do not have."
    SUSPECTED = "suspected", "One end of the link to a member lied, or the one before it."
    SWAPS_HEARD = "swaps_heard", "A swap of the tree, or an endorsement of one, was new and held."
    SWAPS_UNKNOWN = "swaps_unknown", "A swap stands on a tree that we do not have yet."
    SWAPS_WITHHELD = "swaps_withheld", "A member asked for all swaps more often than it may."
    TRACE_KEYS_GIVEN = "trace_keys_given", "A tracker was given the key of sealed traces."
    TRACE_TOPICS = "trace_topics", "A trace topic was made."
    TRACES = "traces", "A trace was told or believed."
    TRACES_EXPIRED = "traces_expired", "A trace came too late to be believed."
    TRACES_REFUSED = "traces_refused", "A trace, or what an entity said, did not hold; the label says why."
    TRACES_UNAUTHORISED = "traces_unauthorised", "A trace was not told: no right to speak for the entity now."
    TRACES_UNOPENED = "traces_unopened", "A sealed trace could not be opened."
    UNOPENED = "unopened", "A publication's content does not open: its publisher lied."
    UNSEALABLE = "unsealable", "A publication cannot be sealed under its scope: it is too large."
    VARIANTS_DROPPED = "variants_dropped", "Another sealing came of a publication that is in the spool."
    VIEWS_CHANGED = "views_changed", "Another view of a region is in force."
    VIEWS_REFUSED = "views_refused", "A view that somebody endorsed does not hold."
    VOUCHERS_AWAITED = "vouchers_awaited", "A publication of an ended epoch waits until enough replicas brought it."
    WAITS_CUT_SHORT = (
        "waits_cut_short",
        "There was no room at all for more of a publisher: what its others wait for is waited for no longer.",
    )
    WRONG_EPOCH_KEY = "wrong_epoch_key", "A publisher's check value contradicts the epoch key that we hold."
