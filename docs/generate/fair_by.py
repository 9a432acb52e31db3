"""By whom each bound is fair that no row of `reference/bounds.md` names: the column *fair by* of the table made from
the code. A new bound of the code gets a row on the page, or a name here and a comment at the constant.
"""

from __future__ import annotations

_NAMES = {
    "connection": """
        gateway.auth.enhanced_auth.STEPS_MAX gateway.auth.passwords.PASSWORD_BYTES_MAX
        gateway.auth.scram.MESSAGE_BYTES_MAX gateway.auth.scram.NAME_CHARACTERS_MAX
        gateway.auth.scram.NONCE_CHARACTERS_MAX gateway.listening.proxy_header.V1_BYTES_MAX
        gateway.listening.proxy_header.V2_BYTES_MAX""",
    "client": """
        gateway.outbox.store.MAX_OUTBOX_BYTES""",
    "user": """
        gateway.telling.hooks.QUEUE_MAX""",
    "address": """
        gateway.auth.passwords.PENDING_MAX gateway.listening.proxied.ACCEPTED_AT_ONCE
        gateway.sockets.door.ORIGINS_MAX""",
    "member": """
        bridge.reader.key_opening.REPEATED_CHARS_MAX bridge.reader.intake.FORMER_MAX
        bridge.topology.witnesses.PEERS_MAX keys.fetching.PENDING_MAX keys.handover.KEYS_MAX
        keys.handover.SCOPES_MAX keys.issuing.REQUESTS_BURST keys.verdicts.DEALS_KEPT""",
    "publisher": """
        bridge.reader.streams.MARKS_MAX bridge.reader.key_opening.DOUBLINGS_MAX
        bridge.reader.key_opening.KNOWN_MAX""",
    "entity": """
        bridge.devices.life_evidence.DEVIATION_MAX bridge.devices.life_evidence.PHI_MAX
        bridge.devices.sparkplug.ALIASES_MAX""",
    "message": """
        bridge.base.topics.MAX_LEVELS bridge.base.topics.MAX_NAME_BYTES bridge.devices.dashboards.SLUG_MAX
        bridge.devices.discovery.NAME_MAX bridge.devices.discovery.TOPIC_MAX
        bridge.document.wire_topics.SCOPE_NUMBER_MAX bridge.publisher.sealing.BESIDE_MAX
        bridge.traces.availability.MAX_LEVEL_BYTES gateway.base.peer_clock.DIGITS_MAX
        gateway.client.mqtt_client.PACKET_BYTES_MAX gateway.console.shown.LIST_MAX
        gateway.mqtt5.copies.COPY_BYTES_MAX gateway.mqtt5.copies.COPY_PROPERTIES_MAX
        gateway.telling.hooks.PAYLOAD_MAX gateway.telling.hooks.TRIES_MAX keys.epochs.EPOCH_MAX
        keys.frames.PROPERTY_LENGTH_LIMIT keys.frames.TEXT_BYTES_LIMIT keys.keyheader.HOPS_LIMIT
        keys.message.BLOCKS_LIMIT keys.message.PAYLOAD_LIMIT keys.message.PROPERTIES_LIMIT
        keys.records.FILL_MAX keys.records.NUMBER_MAX keys.records.RECORDS_MAX keys.requests.ANSWER_BYTES_MAX
        keys.requests.ARCHIVED_MAX keys.requests.NAMES_MAX keys.sharetree.CELLS_LIMIT keys.sharetree.DEPTH_LIMIT
        keys.sharetree.SHARES_LIMIT keys.topictokens.DEPTH_LIMIT keys.topictokens.TOPIC_BYTES_LIMIT
        keys.wrapping.WRAPS_LIMIT
        gateway.terminal.messages.LINE_BYTES_MAX""",
    "owner": """
        bridge.document.batching.BATCH_MOST bridge.document.organise.HOPS_MOST
        bridge.document.organise.TIMES_MOST bridge.document.policy.KEY_SERVERS_MAX
        bridge.document.trees.STEPS_MOST bridge.topology.placement.ADDED_MAX gateway.owner.cards.MAX_CA_BYTES
        gateway.owner.description.MAX_DESCRIPTION_BYTES gateway.owner.listing.MAX_BYTES
        gateway.owner.live_placing.NUMBER_MAX gateway.owner.live_placing.SPARES_MAX
        gateway.owner.organising.SUMMARIES_MAX gateway.owner.replica_numbers.FAILURES_MAX
        gateway.owner.replica_numbers.PATHS_MAX gateway.owner.replica_numbers.REGIONS_MAX
        gateway.owner.replica_numbers.REPLICAS_MAX
        gateway.trust.domains.MAX_CARD_BYTES gateway.trust.overlay_file.MAX_OVERLAY_BYTES
        keys.columnsearch.CHOICES_LIMIT keys.epochs.SCOPE_KEYS_MAX keys.issuing.ARCHIVE_BYTES_MAX
        keys.issuing.ARCHIVE_EPOCHS_MAX keys.material.THRESHOLD_SERVERS_MAX keys.material.WALK_STEPS_MAX
        keys.reedsolomon.MAX_BLOCKS keys.shamir.MAX_PLACE keys.wrapping.REGIONS_LIMIT""",
    "operator": """
        gateway.auth.access_tokens.GROUPS_MAX gateway.auth.access_tokens.GROUP_CHARS_MAX
        gateway.auth.access_tokens.KEYS_MAX gateway.auth.access_tokens.RSA_BITS_MAX
        gateway.auth.access_tokens.USER_CHARS_MAX gateway.auth.oidc.FILE_BYTES_MAX
        gateway.auth.oidc.REVOKED_MAX
        gateway.auth.acl_file.FILE_BYTES_MAX gateway.auth.api_tokens.NOTE_MAX gateway.auth.api_tokens.USER_MAX
        gateway.auth.claimed_names.SHOWN_MAX gateway.auth.password_file.FILE_BYTES_MAX
        gateway.auth.password_file.USER_BYTES_MAX gateway.auth.password_hashes.ITERATIONS_MAX
        gateway.auth.password_hashes.TEXT_MAX gateway.auth.scram.ITERATIONS_MAX
        gateway.auth.sha_crypt.ROUNDS_MAX gateway.base.config.MAX_CONFIG_BYTES
        gateway.base.large_pages.MOVED_BYTES_MAX
        gateway.base.config_bridges.ADDRESSES_MAX gateway.base.config_bridges.TOPICS_MAX
        gateway.base.config_events.HOOKS_MAX gateway.base.config_listeners.PORT_MAX
        gateway.base.config_listeners.PROXIES_MAX gateway.base.descriptors.FILES_MAX
        gateway.bridging.ends.NO_LIMIT gateway.client.complaints.SAID_MAX gateway.client.redial.ELSEWHERE_MAX
        gateway.client.wanted.MAX_SUBSCRIPTIONS gateway.following.asking.LINE_BYTES_MAX
        gateway.commands.top.ALARMS_SHOWN_MAX gateway.day.minutes.MINUTES_MAX
        gateway.health.alarms.ALARMS_MAX gateway.health.alarms.TEXT_MAX
        gateway.following.serving.LINE_BYTES_MAX gateway.following.serving.WAITING_MAX
        gateway.commands.organising.ANSWER_BYTES_MAX
        gateway.commands.overlay_status.ASKED_AT_ONCE gateway.commands.placing.ASKED_AT_ONCE
        gateway.commands.status.ANSWER_BYTES_MAX gateway.files.MAX_PRIVATE_BYTES
        gateway.importing.loading.DB_BYTES_MAX gateway.importing.mosquitto_conf.FILES_MAX
        gateway.importing.mosquitto_conf.FILE_BYTES_MAX gateway.importing.translating.PACKET_BYTES_MAX
        gateway.data.database.FACT_MAX gateway.overlay.discovery.LABEL_BYTES_MAX
        gateway.overlay.key_material.ARCHIVED_EPOCHS_MAX gateway.setup.backing_up.BYTES_MAX
        gateway.setup.backing_up.FILES_MAX gateway.setup.initialising.PORT_MAX gateway.setup.plan.MEMBERS_MAX
        gateway.setup.supervising.LOG_BYTES_MAX gateway.stock.ARRIVED_MAX
        gateway.tracing.addresses.PROCESSES_MAX gateway.tracing.assembly.MAX_BYTES
        gateway.trust.credentials.MAX_BYTES gateway.trust.tokens.MAX_OBJECTS gateway.trust.tokens.MAX_URI_CHARS
        gateway.terminal.load.CLIENTS_MAX
        gateway.terminal.load.SAMPLES_MAX
        gateway.terminal.publishing.ENDS_MAX""",
    "none": """
        bridge.document.record_rights.TEXTS_KEPT bridge.publisher.intake.CHAINS_MAX
        gateway.auth.passwords.REMEMBERED_MAX gateway.base.figures.LABELS_MAX
        gateway.base.figures.LINKS_SHOWN_MAX gateway.broker.local_clients.NARROWED_AT_ONCE
        gateway.outbox.database.MAX_TOPICS gateway.outbox.store.GROUP_MAX gateway.sessions.batch.PATIENT_MAX
        gateway.overlay.discovery.FOUND_MAX
        gateway.overlay.discovery.RESOLVES_MAX gateway.sessions.database.ROWS_MAX
        gateway.sockets.audit.CAUSES_MAX keys.fetching.EXTRA_MAX keys.identity.PUBLIC_KEYS_KEPT
        keys.keyopening.OUTLINES_KEPT keys.sealedbox.CHECKED_MAX keys.shamir.POWERS_KEPT
        keys.shamir.WEIGHTS_KEPT keys.sharetree.CUTS_KEPT keys.sharetree.LEVELS_KEPT""",
}
FAIR_BY = {name: owner for owner, names in _NAMES.items() for name in names.split()}
