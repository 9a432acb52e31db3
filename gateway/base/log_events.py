"""Registry of every line a broker or receiver logs at level info and above: its id, level, text and meaning.

A new line is a row here and its place in the code: `LogEvent.LINK_UP.say(log, member=peer)`. The line carries the id,
the member's name in lower case, which does not change with the text: alerts and audits go by it. The reference page
is made of this table. The form of lines is in `logs`; counters are in `bridge.contract.figures`.
"""

from __future__ import annotations

import logging
from enum import Enum
from types import TracebackType
from typing import TypeAlias

INFO, WARNING, ERROR = logging.INFO, logging.WARNING, logging.ERROR
ExcInfo: TypeAlias = bool | BaseException | tuple[type[BaseException], BaseException, TracebackType | None] | None


class LogEvent(Enum):
    """Event in the log. `text`: the line, with %-marks for arguments. `meaning`: for the reference, one sentence
    or two.
    """

    level: int
    text: str
    meaning: str

    def __init__(self, level: int, text: str, meaning: str) -> None:
        self.level, self.text, self.meaning = level, text, meaning

    @property
    def id(self) -> str:
        return self.name.lower()

    def say(self, log: logging.Logger, *args: object, exc_info: ExcInfo = None, **fields: object) -> None:
        """Logs the event. `args` fill the text; `fields` that are not empty follow it in the line."""
        if log.isEnabledFor(self.level):
            log.log(self.level, self.text, *args, exc_info=exc_info, extra={"id": self.id, **fields})

    # fmt: off
    # ------------------------------------------------------------------------------- start, end, configuration
    LISTENING = INFO, "listener %s: %s", "A listener takes connections at this address."
    METRICS_SERVED = INFO, "metrics: http://%s:%s/metrics", "Prometheus may ask there."
    CONSOLE_SERVED = INFO, "console: %s://%s:%d/", "The page and the HTTP API are served there."
    CONSOLE_NOT_SERVED = ERROR, "%s", "The page and the HTTP API are not served, as the line says; the broker goes on."
    STORED_TIMES_MOVED = (WARNING, "the clock of the former run was wrong: stored times move by %d s",
        "Lives of sessions, delays of wills and expiry of messages on disk go on where they were.")
    HISTORY_REFUSED = (ERROR, "the history stands still: %s",
        "The disk takes no records of scopes with a history, or gives none. Traffic goes on; what passes is missing.")
    HISTORY_TAKEN = INFO, "the history goes on", "The disk takes records again."
    RESTORED = INFO, "restored %d sessions and %d retained messages", "What was kept before this start is there again."
    STOPPING = INFO, "stopping", "The broker ends: `connections` are told, at most `within_s` are taken."
    STOPPED = INFO, "stopped", "All was told and kept in time."
    STOPPED_LATE = (ERROR, "limits.shutdown_s is over; a plugin or a client that does not finish is left",
        "The end was not clean: something hung.")
    RELOADED = INFO, "reloaded", "SIGHUP: the new configuration counts, but for what `needs_restart` names."
    NOT_RELOADED = ERROR, "not reloaded, all goes on as before", "SIGHUP: the new one has a mistake, `reason`."
    CERTIFICATE_RENEWED = INFO, "%s: shows the certificate in %s from now on", "A renewed file was taken over."
    CERTIFICATE_NOT_RENEWED = (WARNING, "%s: the certificate of before goes on: %s",
        "The file that was put there cannot be used. Put a certificate and its key there.")
    CERTIFICATE_LOOK_FAILED = (ERROR, "the look at certificates of listeners failed",
        "A defect of ours, with its traceback. Report it.")
    FEWER_CONNECTIONS = (WARNING, "fewer connections than configured",
        "The system allows too few open files for `limits.connections`; `cure` says what to set.")
    FILES_RUN_OUT = (ERROR, "open files run out, new connections are lost",
        "Something else takes files, or the limit was lowered. Raise it, or find what takes them.")
    PLUGIN_WARNS = WARNING, "%s", "A plugin says at the start what is open or missing in its configuration."
    # ---------------------------------------------------------------------------------------------------- clients
    CONNECTED = INFO, "connected", "A client came: `client`, `user`, `address`, `version`, `listener`."
    DISCONNECTED = INFO, "disconnected", "A client went; `clean`: with DISCONNECT; `reason`: why."
    CLIENT_REFUSED = INFO, "refused: %s", "A CONNECT was refused, with its reason code in `code`."
    CLIENT_MAY_NOT = INFO, "may not %s", "A client was refused a `topic` to publish or subscribe to."
    NO_PACKET = INFO, "%s: %s", "A connection was closed before CONNECT, since it sent what is no packet of MQTT."
    PROXY_REFUSED = INFO, "listener %s: %s %s", "A connection of a listener with `proxy` was closed before its header."
    LIMIT_REACHED = (WARNING, "limits.%s is reached",
        "A bound held. `who`: whom it hit last; `times`: since the last such line; `total`: since the start.")
    CONNECTION_FAILED = (ERROR, "%s: internal error",
        "A defect of ours ended one connection, with reason code 0x80. Report the traceback.")
    PUBLICATION_FAILED = (ERROR, "internal error; a publication of %s is refused",
        "A defect of ours: the client gets reason code 0x80, and nobody gets the publication. Report the traceback.")
    MACHINE_FAILED = (ERROR, "internal error in what the overlay does with %s",
        "A defect of ours: the event is dropped, links and clients stay. Report the traceback.")
    KEY_LOST = (ERROR, "%s; the process ends",
        "The token with this member's key does not sign any more. Put the token back, and start the process: what was "
        "acknowledged lies in the outbox.")
    SUBSCRIPTION_REFUSED = WARNING, "%s refused the subscription to %s: 0x%02x", "A broker that we are a client of."
    UNREACHABLE = WARNING, "%s", "A member or broker that we dial does not answer, or refuses us. Once for each cause."
    # ---------------------------------------------------------------------------------------------------- plugins
    AUTH_PLUGIN_FAILED = (ERROR, "an authentication plugin failed; %r is refused",
        "It raised; who cannot be judged is not let in.")
    AUTH_METHOD_FAILED = (ERROR, "an authentication method failed; the client is refused",
        "A method of enhanced authentication raised.")
    TOPIC_PLUGIN_FAILED = (ERROR, "a topic plugin failed; %s of %r on %r is refused",
        "It raised; what cannot be judged is not allowed.")
    TOPIC_PLUGINS_SLOW = (WARNING, "topic plugins are too slow; a publication is dropped",
        "Too many publications wait for a verdict.")
    PLUGIN_PUBLICATION_FAILED = ERROR, "a publication failed", "What a plugin published was not delivered. Report it."
    TOKEN_REFUSED = (INFO, "a token is refused: %s", "`client` showed a token that does not count, for this reason.")
    PROVIDER_KEYS_FETCHED = INFO, "%s: %d keys", "The public keys of the identity provider are known."
    PROVIDER_KEYS_NOT_FETCHED = (WARNING, "%s: its keys cannot be fetched: %s; those of before count for a day",
        "Clients whose tokens name a new key cannot log in. Said once until it succeeds again.")
    USERS_NOT_REREAD = (ERROR, "%s; what was before still counts",
        "The file of users was changed and cannot be read; correct it.")
    TOKENS_NOT_ENDED = (
        ERROR, "%s; tokens of users who are no more stay in the file",
        "They do not count any more. Correct the file, or revoke them with `veilmq tokens`.",
    )  # fmt: skip
    TOKENS_NOT_REREAD = (ERROR, "%s; the tokens of before still count",
        "The file of the API's tokens was changed and cannot be read; correct it.")
    AMQTT_BEHIND = (WARNING, "amqtt takes no more: %d deliveries dropped so far",
        "In a stock amqtt broker: it is slower than what the overlay brings.")
    AMQTT_NOT_TAKEN = (
        WARNING, "a publication on %s was not taken for the overlay (0x%02X); amqtt acknowledged it all the same",
        "In a stock amqtt broker, which has no way to refuse it.")
    # ------------------------------------------------------------------------------------------------------ stores
    STORE_REFUSES = (WARNING, "%s; publications that must be stored are refused",
        "The data directory takes nothing, as the line says. Clients hear it by reason code; free space.")
    STORE_TAKES_AGAIN = WARNING, "the data directory takes changes again", "After `store_refuses`: all is stored again."
    STORE_FAILED = ERROR, "sessions cannot be stored", "A defect of ours, with its traceback. Report it."
    STORE_LOST_CHANGES = (ERROR, "%s; the last changes of sessions are lost",
        "At the end the disk took nothing more. What was acknowledged to publishers was stored before.")
    OUTBOX_REFUSES = ERROR, "%s", "The outbox takes nothing, as the line says: clients are refused. Free space."
    SPLIT_SEED_NOT_KEPT = (ERROR, "%s; shares of epoch %d are withheld from the next regions until a seed is kept",
        "The disk takes nothing: free space. Content goes on. Up to f such replicas of a region stop nothing.")
    SPLIT_SEEDS_ERASED = INFO, "erased the split seeds of epochs %s", "Those epochs are over."
    SPLIT_SEEDS_NOT_ERASED = ERROR, "%s", "Seeds of ended epochs are still on the disk; it is tried again."
    READER_ROWS_DAMAGED = (WARNING, "%d rows of what was read before are not ours or damaged, and are not used",
        "The file of the reader's place was altered. What they stood for may come once more.")
    # --------------------------------------------------------------------------------------------- links, members
    LINK_UP = INFO, "link is up", "The link that we dialled to `member` stands."
    LINK_DOWN = INFO, "link is down", "It is down; it is dialled again."
    LINKS_RENEWED = INFO, "every link was made anew", "After a rotation of our key, all use the new one."
    LINK_CLOSED = (INFO, "closed the link of %s: the overlay lists it, or its key, for us no longer",
        "A newer version of the overlay: whoever it was has left, or rotated.")
    MEMBER_NAMED = WARNING, "named %s: %s", "It lied, and that is proved. Ask who runs it; detach it."
    EVIDENCE_KEPT = (WARNING, "%s; the evidence is in %s",
        "Anybody can check that file with `veilmq verify`. Send it to the owner of the overlay.")
    EVIDENCE_NOT_KEPT = WARNING, "%s; the evidence could not be written: %s", "Mend the directory of the identity."
    MEMBER_SUSPECTED = WARNING, "suspected %s: %s", "Either end of the link to it lied, or the one before."
    NOTHING_ADVERTISED = (
        WARNING, "discovery: nothing is advertised, for no listener has an address that others can use",
        "Bind a listener to an address of the network, or turn `discovery.advertise` off.")
    DISCOVERY_FAILED = ERROR, "%s; tried again every %d s", "Links go on by the signed addresses."
    # ------------------------------------------------------------------------------------------------ publications
    TOO_LARGE_FOR_REPLICAS = (WARNING, "refused a publication of %s: too large for a majority of our replicas",
        "The client gets reason code 0x95. Raise `limits.packet_bytes` of replicas, or send less at once.")
    RESPONSE_TOPIC_UNPROTECTED = (WARNING, "refused a publication of %s: its response topic is in no protected scope",
        "The client gets reason code 0x90: the answer would cross the overlay in clear.")
    NO_RIGHT_TO_PUBLISH = (
        WARNING, "refused a publication: the overlay's policy gives us no right to its protected topic now",
        "Once an epoch. Ask the owner for the right, or take the topic out of `protect`.")
    SCOPE_NOT_GRANTED = WARNING, "%s", "At the start: what local clients publish on its topics is refused."
    STORED_GIVEN_UP = (
        WARNING, "gave up %d stored publications: for a day no scope of the overlay took them, or no right allowed it",
        "Their clients were told that they are stored. The owner took a scope out, or a right away, before they went.")
    BRIDGE_UP = INFO, "bridge %s: connected to %s", "The other broker is reached."
    BRIDGE_CANNOT_CROSS = (WARNING, "bridge %s: a publication cannot cross: %s",
        "It is dropped: it would be refused at every attempt.")
    BRIDGE_REFUSED = (WARNING, "bridge %s: %s of %d bytes was refused (0x%02x) and does not cross; it is kept in %s",
        "By a broker, for good; a refusal without a word, which ends the connection, is one the third time.")
    BRIDGE_UNRELEASED = (WARNING,
        "bridge %s: the other broker does not answer PUBREL, and QoS 2 goes on without; write qos: 1 for this bridge",
        "Once: it closed three connections on one PUBREL, or said nothing for a minute.")
    BRIDGE_LEFT = (WARNING, "bridge %s is configured no more and has a session here still, in which %d messages wait",
        "At the start. Name it so again, or stop the broker and run `veilmq bridges forget`.")
    BRIDGE_KEEPS_OUT = (WARNING, "bridge %s: constrained topics of the other broker stay there, as %s",
        "Some client there publishes them; they are words of members of one overlay, and no ordinary messages.")
    BRIDGE_KEEPS = (WARNING, "bridge %s: topics of protected scopes that we may not read stay here",
        "Once. They would leave the overlay in clear.")
    # ------------------------------------------------------------------------------------------- overlay and keys
    OVERLAY_ADOPTED = INFO, "adopted version %d of overlay %s", "Members, rights and scopes are those of that version."
    OVERLAY_NOT_ADOPTED = (ERROR, "the new overlay file is not adopted: %s",
        "It does not hold; what was before still counts. Put the owner's file there.")
    OVERLAY_LOOK_FAILED = (ERROR, "the look at the overlay file failed",
        "A defect of ours, with its traceback. Report it; the file is looked at again.")
    OVERLAY_NOT_READ = WARNING, "the overlay file is not read: %s", "What was before still counts."
    OVERLAY_NOT_KEPT = ERROR, "version %d of the overlay is not kept: %s", "It counts until a restart. Free space."
    OVERLAY_NEEDS_RESTART = (
        WARNING, "version %d of the overlay changes our region or the key service; it is kept, restart to adopt it",
        "Restart this member when it suits.")
    OVERLAY_PASSED_ON = INFO, "version %d of the overlay from %s to %s", "`veilmq up` keeps the copies in step."
    OVERLAY_NOT_PASSED_ON = WARNING, "%s", "`veilmq up` could not write a member's copy, as the line says."
    VIEW_CHANGED = INFO, "region %s is in view %s", "These replicas carry its publications now."
    DETACHED = (
        WARNING, "detached: view %d of region %s goes on without us; nothing is carried until we are attached again",
        "This replica may be stopped.")
    NOT_LISTED = (ERROR, "the overlay lists us no longer: nothing is sent or received until it does",
        "The owner took this member out.")
    IDENTITY_RUNS_TWICE = (ERROR, "our identity was started again elsewhere, at %s UTC: we seal nothing any more",
        "Two gateways have one identity. Stop one of them, then start the other one again.")
    AUTHORITY_NOT_TRUSTED = (ERROR, "%s; new members of that authority cannot connect",
        "The overlay names an authority that TLS cannot read. Tell the owner.")
    KEY_ROTATED = INFO, "rotated: %s has the key that the overlay lists now", "The next identity is in use."
    KEY_NOT_OURS = (ERROR, "the overlay lists another key for us, which we do not have: %s",
        "Give the owner the card of the key that is here, or put the other key in place.")
    PREVIOUS_KEY_ERASED = INFO, "erased the key of %s of before its rotation", "Its time is over."
    PREVIOUS_KEY_NOT_ERASED = WARNING, "%s", "The key of before a rotation is still on the disk; remove it."
    EPOCH_KEYS_NOT_USED = (WARNING, "kept epoch keys are not used (%s); they are fetched anew",
        "The sealed file of keys does not open.")
    EPOCH_KEYS_NOT_KEPT = (ERROR, "epoch keys are not kept: %s; without them a restart needs the key service",
        "The disk takes nothing. Free space.")
    KEY_MATERIAL_TAKEN = INFO, "took in key material from %s and erased that file", "A key server's first start."
    KEY_MATERIAL_REFUSED = ERROR, "%s; tried again every second", "A key server cannot take in or keep its material."
    KEY_ARCHIVE_NOT_USED = ERROR, "archived keys are not used: %s", "A key server cannot give keys of that epoch."
    # ------------------------------------------------------------------------------------ traces, health, console
    TRACE_SENT_AWAY = WARNING, "sent %r away: %s", "A client broke the rules of traces and was disconnected."
    TRACE_REFUSED = WARNING, "refused of %r: %s", "What a client said of traces does not hold."
    TRACES_NOT_KEPT = ERROR, "%s", "Trace topics do not survive a restart: the disk takes nothing, as the line says."
    ALERTS_DROPPED = (WARNING, "alerts wait for %s faster than it takes them; the oldest is dropped",
        "The web address of `traces.fleet.webhook` is too slow.")
    ALERT_NOT_TAKEN = ERROR, "%s takes no alerts: %s", "An alert was tried several times and is lost."
    EVENTS_LOST = (WARNING, "events for %s are lost: it takes them too slowly or not at all",
        "A web address or topic under `events`. Once, until it takes them again.")
    EVENT_REFUSED = WARNING, "%s refused an event (%d); it is not repeated", "By HTTP status: another would not help."
    EVENT_RETRIED = WARNING, "%s does not take events (%s); tried again", "An HTTP status, or no answer."
    EVENT_LOST = WARNING, "%s took an event %d times in vain; it is lost", "The next one is tried all the same."
    HEALTH_DEGRADED = WARNING, "%s", "A finding of `veilmq status`: cause and cure. Again once a day while it lasts."
    HEALTH_BROKEN = ERROR, "%s", "The same, and clients are not served as they should be."
    HEALTH_OVER = INFO, "over: %s", "The finding is gone."
    HEALTH_FAILED = ERROR, "the look at how we stand failed", "A defect of ours, with its traceback. Report it."
    FOLLOWED = (INFO, "an administrator follows messages",
        "`veilmq log trace` or the page: names and sizes of what `client`, `topic` or `address` says, no payloads.")
    FOLLOWING_NOT_SERVED = (ERROR, "%s: %s; messages cannot be followed by `veilmq log trace`",
        "The socket could not be made in the data directory. Remove what is in the way, and restart when it suits.")
    DAY_NOT_KEPT = (WARNING, "figures and alarms of the day are not kept: %s",
        "They go on in memory. Once, until the data directory takes them again; free space.")
    SCRAPE_GIVEN_UP = INFO, "a scrape was given up", "Whoever asked for metrics did not wait for the answer."
    CONSOLE_LOGIN = INFO, "login at the console", "`user`, from `address`."
    CONSOLE_LOGIN_FAILED = WARNING, "a login at the console failed", "`user` and `address`; guesses are slowed down."
    CONSOLE_PROVIDER_AWAY = (WARNING, "the page cannot log in at the identity provider: %s",
        "The provider tells no addresses; logins by password go on.")
    CONSOLE_FAILED = ERROR, "a request to the console failed", "A defect of ours, with its traceback. Report it."
    RECEIPTS_NOT_KEPT = (ERROR, "receipts are not kept: %s",
        "The disk refuses them, or the file is damaged: there will be no proof of delivery of these. Traffic goes on.")
    # -------------------------------------------------------------------------------------- a receiver for Spark
    RECEIVER_STARTED = INFO, "receiver %s: started, writes to %s", "The spool is its own from now on."
    RECEIVER_ENDED = INFO, "receiver %s: ended, %d rows written", "Since its start."
    RECEIVING = INFO, "receiver %s: receiving, from segment %d on", "A session with the replicas began."
    RECEIVER_SUBSCRIBED = INFO, "receiver %s: subscribed at enough replicas", "A quorum knows its subscriptions."
    RECEIVER_READS_BACK = INFO, "receiver %s: reads histories back", "Beside all that is live."
    RECEIVER_READING_BACK = INFO, "receiver %s: reading back: %s", "Once a minute, how far it is."
    RECEIVER_READ_BACK = INFO, "receiver %s: read back: %s", "It has all that the histories hold, or may not read it."
    RECEIVER_LINK_UP = INFO, "receiver %s: connected to %s", "A replica."
    RECEIVER_LINK_DOWN = WARNING, "receiver %s: no connection to %s", "A replica; it is dialled again."
    RECEIVER_RETRIES = ERROR, "receiver %s: %s; trying again", "Disk or replicas; nothing is acknowledged meanwhile."
    RECEIVER_CLOCK = ERROR, "receiver %s: %s", "This machine's clock may be off: what looks like replays is held."
    RECEIVER_FULL = WARNING, "%s", "The spool is full: nothing is acknowledged until queries have caught up."
    RECEIVER_HAS_ROOM = INFO, "receiver %s: there is room in the spool again", "After `receiver_full`."
    RECEIVER_PACKS = INFO, "receiver %s: %s", "What packing a finished segment came to, if the receiver packs (`pack`)."
    RECEIVER_SCHEMAS = INFO, "the schemas of %s are in the spool anew", "The file, or one that it names, has changed."
    RECEIVER_SCHEMAS_STAY = (WARNING, "the schemas stay as they were: %s",
        "A changed file cannot be used; payloads are checked against the text before.")
    RECEIVER_DOUBTS = (WARNING, "receiver %s: %s",
        "Replicas that were suspected or named, and what was refused of them, since the last such line.")
    # fmt: on
