"""The owner of every table of the code (`holders`), by owner and by what bounds it: a constant, a limit of the
configuration, or a word of `holders.WHY`. A line has a class and its tables.
"""

from __future__ import annotations

OWNERS: dict[str, dict[str, str]] = {
    "connection": {
        "each": """
            gateway.broker.holding._Behind waiting
            gateway.broker.holding._Held passed
            gateway.mqtt5.aliases.InboundAliases _topics
            gateway.mqtt5.aliases.OutboundAliases _aliases
            gateway.mqtt5.codec.Decoder _parsers""",
        "gateway.console.streams.WAITING_MAX": """
            gateway.console.streams.StreamBacklog _messages""",
        "limits.write_bytes": """
            gateway.listening.listeners.StreamTransport _outgoing""",
    },
    "client": {
        "bridge.publisher.intake.UNSTORED_MAX": """
            bridge.publisher.intake.OutboxIntake _unstored""",
        "bridge.publisher.residents.QOS0_ENTRIES_MAX": """
            bridge.publisher.residents.Fleeting _held _owned""",
        "gateway.history.rereading.WAITING_MAX": """
            gateway.history.rereading._Reading kept names waiting""",
        "bridge.traces.offenders.CLIENTS_MAX": """
            bridge.traces.offenders.Offenders _bogus _budgets""",
        "bridge.tracking.registrations.WAITING_MAX": """
            bridge.tracking.registrations.RegistrationQueue _waiting""",
        "each": """
            gateway.broker.retained_sending._Expected owed
            gateway.broker.retained_sending._Expecting by_filter""",
        "gateway.broker.subscribing.UNANSWERED_MAX": """
            gateway.broker.subscribing.Subscribing _unanswered
            gateway.overlay.accepting.Accepting _waiting
            gateway.overlay.settling.Settling _unsettled _waiting""",
        "limits.receive_maximum": """
            gateway.mqtt5.flows.InboundFlows _to_come accepting awaiting_pubrel half_done
            gateway.mqtt5.flows.OutboundFlows released unacknowledged
            gateway.sessions.store.SessionRecord released_ids
            gateway.sockets.held_actions.HeldActions _actions""",
        "limits.subscriptions": """
            bridge.reader.interest.ScopeInterest _filters _widened
            gateway.broker.retained_sending.RetainedSending _expected _following _tasks
            gateway.clients.record.Client filters
            gateway.clients.routing.SharedGroup members wide
            gateway.mqtt5.session.ServerSession subscriptions""",
        "overlay.outbox_bytes": """
            bridge.publisher.intake.OutboxIntake _storing
            gateway.outbox.spare_room.SpareRoom _entries _held
            gateway.outbox.store.Store _appends _deleting _gone _in_hand _ranges _ungone""",
    },
    "user": {
        "bridge.groups.shared_groups.OWNERS_MAX": """
            bridge.groups.shared_groups._Group owners""",
        "gateway.base.turns.TURN_S": """
            gateway.base.turns.FairTurns _waiting""",
        "gateway.broker.subscribing.ALL_READINGS_MAX": """
            bridge.reader.far_asking.FarAsking _digests
            bridge.reader.far_asking._Asked open
            bridge.reader.readings.Readings _asked _queue
            bridge.reader.readings._Reading held ids
            gateway.broker.subscribing.Subscribing _readings
            gateway.history.local.LocalHistory _parts _turns
            gateway.history.local._Part carried
            gateway.history.rereading.Rereading _draining _readings""",
        "gateway.telling.hooks.QUEUE_MAX": """
            gateway.telling.hooks.WaitingEvents _events""",
        "beside": """
            bridge.groups.shared_groups.SharedGroups _by_id _postponed
            bridge.predicates.matching._Above _first_values _firsts
            bridge.predicates.matching._Equal _by_value
            gateway.broker.session_shares.SessionShares _known _of_size _sizes
            gateway.console.answering.Answering _closing _of_user
            gateway.console.streams.Streams clients""",
        "bridge.predicates.matching.NAMES_MAX": """
            bridge.predicates.matching.PredicateIndex _names""",
        "bridge.predicates.matching.SLOTS_MAX": """
            bridge.predicates.matching.PredicateIndex _free _held _named _owned _owners _tests""",
        "bridge.publisher.own_retained.EXPECTED_MAX": """
            bridge.publisher.own_retained.OwnRetained _expected""",
        "bridge.publisher.own_retained.RETAINED_OWN_MAX": """
            bridge.publisher.own_retained.OwnRetained _kept changed""",
        "bridge.traces.availability.MAX_ENTITIES": """
            bridge.traces.availability.Availability _entities _heap""",
        "fair": """
            bridge.groups.shared_groups.SharedGroups _groups
            bridge.traces.availability.Availability _offline
            gateway.broker.session_shares.SessionShares _empty _holding
            gateway.console.logins.Logins _logins
            gateway.console.streams.Streams _open""",
        "gateway.auth.api_tokens.TOKENS_MAX": """
            gateway.auth.api_tokens.ApiTokens _tokens""",
        "limits.sessions": """
            gateway.broker.lifecycle.Lifecycle clients
            gateway.clients.record.Deadlines _heap""",
    },
    "address": {
        "beside": """
            bridge.devices.conventions.Conventions _devices _entities _topics
            bridge.devices.dashboards.Dashboards _alerts _described
            bridge.devices.device_tracing.DeviceTracer _heap _topics _voiced
            bridge.devices.device_verdicts.Judging _heap
            bridge.devices.speaking.Speaking _children _levels _links _speaks
            bridge.devices.device_verdicts.WorkInTurns _heap _works
            gateway.console.door.ConsoleDoor _idle _open""",
        "bridge.devices.devices.WORDS_MAX": """
            bridge.devices.life_evidence.LifeEvidence words""",
        "bridge.devices.speaking.ORIGINS_MAX": """
            bridge.devices.device_verdicts.Judging _at_once
            bridge.devices.speaking.Speaking _names""",
        "fair": """
            bridge.devices.conventions.Conventions _documents _watched _wild
            bridge.devices.device_tracing.DeviceTracer _waiting
            bridge.devices.speaking.Speaking _devices
            gateway.console.door.ConsoleDoor _of_origin""",
        "gateway.console.guesses.BLOCKS_MAX": """
            gateway.console.guesses.Guesses _made""",
        "gateway.sockets.door.ORIGINS_MAX": """
            gateway.sockets.door.Failures _failed _judged _waiting""",
        "limits.connections": """
            gateway.broker.exchange.Exchange undecided
            gateway.broker.holding.Holding _burdened behind
            gateway.broker.lifecycle.Lifecycle connections
            gateway.sockets.door.Door _of_origin _open""",
        "limits.half_open": """
            gateway.listening.proxied.ProxiedServer _of_proxy _waiting
            gateway.plugins.host.PluginHost _changes
            gateway.sockets.door.Door _half_open _not_accepted""",
    },
    "prefix": {
        "limits.retained_messages": """
            gateway.bridging.retained.RetainedState _missing brought""",
        "gateway.bridging.twins.TWINS_MAX": """
            gateway.bridging.twins.Twins _of_topic _seen""",
    },
    "member": {
        "bridge.replica.far_passing.OPEN_MAX": """
            bridge.replica.far_passing._Lane open""",
        "bridge.replica.far_passing.WAITING_MAX": """
            bridge.replica.far_passing._Lane waiting""",
        "bridge.replica.far_passing.ASKED_MAX": """
            bridge.replica.far_passing.FarPassing _asked""",
        "bridge.contract.early_room.EARLY_BYTES": """
            bridge.node.ReplicaNode _again""",
        "bridge.reader.replay.SOURCE_KEYS_MAX": """
            bridge.reader.replay._Source keys pages""",
        "beside": """
            bridge.membership.early_wires.EarlyWires _due _instead _links taken
            bridge.reader.readings.Readings _turns""",
        "bridge.publisher.windows.AHEAD_MAX": """
            bridge.publisher.windows.RunAhead _blocks""",
        "bridge.publisher.windows.WINDOW_MAX": """
            bridge.publisher.windows.Lane _late_chains _late_in_flight in_flight new outdated""",
        "bridge.reader.intake.FORMER_MAX": """
            bridge.reader.intake.Lineages _former _next""",
        "bridge.reader.overflow.LINK_WINDOW": """
            bridge.reader.overflow.Overflow _bytes _in_hand _links to_take""",
        "bridge.reader.intake.VOUCHED_MAX": """
            bridge.reader.intake.Vouchers _brought""",
        "bridge.topology.witnesses.PEERS_MAX": """
            bridge.topology.witnesses.LinkWitness _bins _last""",
        "document": """
            bridge.node.JobNode _up
            bridge.reader.far_asking.FarAsking _asked
            bridge.reader.readings.Readings up
            bridge.replica.far_passing.FarPassing _brought _lanes _readers _taken
            bridge.reader.replay.Replay _deniers _left _sources _up
            bridge.replica.recording.Recorder _budgets _waiting
            gateway.history.archive._Known owned
            bridge.contract.budgets.LinkGuard _authors _budgets _in_debt charged
            bridge.contract.publisher_guard.PublisherGuard _accounts in_debt _since
            bridge.groups.lease_relay.LeaseRelay _comebacks _told
            bridge.groups.leases.LeaseTable _allowances
            bridge.groups.shared_groups.SharedGroups _up
            bridge.measuring.measurer.Measurer _away _clients _failed _filters _probes _rates _rtts _said up
            bridge.measuring.region_costs.RegionCosts _counts _said
            bridge.membership.adopting.OverlayKeeper _away _peers
            bridge.membership.endorsing.Endorser _due _told
            bridge.membership.node.Node _links
            bridge.organiser.OrganiserNode _interests _said
            bridge.presence.heard.PresenceTable _awaited _words
            bridge.presence.heard.RegionPresence heard reaches
            bridge.receipts.acknowledged.Acknowledged _bits _owed
            bridge.receipts.acknowledging.Acknowledging _chains _comebacks _pace _up
            bridge.receipts.checks.ReceiptChecks _allowances
            bridge.receipts.relay.ReceiptRelay _comebacks
            bridge.publisher.data_keys.LiveKey announced
            bridge.publisher.entry.Entry acked too_large_for
            bridge.publisher.own_retained.OwnRetained retold
            bridge.publisher.publisher.Publisher _up
            bridge.publisher.residents.Residents _lead
            bridge.publisher.windows.Lanes lanes
            bridge.publisher.windows.Refusals _pauses _refused rounds reasons
            bridge.publisher.windows.StandIns _marks
            bridge.reader.blame.Evidence _named _standing
            bridge.reader.blame.WrappedEvidence _named _walks
            bridge.reader.interest._Want acked filters refused_by
            bridge.reader.key_opening.KeyRing _contradicted
            bridge.reader.assembling.Skipped up
            bridge.replica.content_relay.Carrying _comebacks _down
            bridge.replica.forwarder.Forwarder _met _newcomers _retells
            bridge.replica.plane_routing.PlaneRouting _links _takers
            bridge.replica.resplitting.Resplitter _new_keys
            bridge.replica.destinations.SilentHosts waiting
            bridge.replica.statement_relay.StatementRelay _answers
            bridge.replica.untold_keys.UntoldKeys peers
            bridge.topology.routes.Routes up
            bridge.wire.admission.Admission _bumped _came _left
            bridge.wire.covers.ScopeCovers _members _slots
            bridge.wire.generations.Generations _latest _outlives _proved
            bridge.wire.pulling.Answers _bytes _requests _unknown
            bridge.wire.pulling.Pulls _unanswered
            bridge.wire.statements.RoutingTable _allowances _covers _rights _statements
            gateway.base.figures.Figures counts heard named suspected
            gateway.broker.lifecycle.Lifecycle peers
            gateway.client.tls.LinkTls _authorities _by_key
            gateway.overlay.backpressure._Held waiting
            gateway.overlay.broker_overlay.BrokerOverlay _refused _shown
            gateway.overlay.delays.Delays _timers
            gateway.overlay.dials.Dials _clients _closing _refused_bytes
            gateway.overlay.gateway_overlay.GatewayOverlay _came
            gateway.overlay.loading.Loading _before
            gateway.overlay.member_status.OverlayStanding clocks ends named proposal refusals refused swaps versions
            gateway.overlay.wires.Wires _cut _lanes
            keys.fetching.KeyFetcher _named _up
            keys.fetching._Wish tries
            keys.issuing.KeyServer _requests
            keys.verdicts.Verdict _avoid _chosen _liars _votes""",
        "fair": """
            bridge.receipts.acknowledged.Acknowledged _readers
            bridge.receipts.checks.ReceiptChecks _seen
            bridge.receipts.relay.ReceiptRelay _newest
            bridge.groups.leases.LeaseTable _order
            bridge.wire.pulling.Answers _given""",
        "gateway.broker.member_sessions.CONTROL_WINDOW": """
            gateway.overlay.withheld.Withheld _acknowledges""",
        "gateway.overlay.backpressure.HELD_MAX": """
            gateway.overlay.backpressure.Backpressure _down_at _held _stalled _towards""",
        "once": """
            bridge.replica.plane_routing._Round vectors ways""",
    },
    "publisher": {
        "bridge.measuring.measurer.CACHE_IDS": """
            bridge.measuring.measurer.Measurer _ids""",
        "gateway.history.keeper.WAITING_BYTES_MAX": """
            gateway.history.keeper.HistoryKeeper _waiting_of""",
        "beside": """
            bridge.groups.leases.LeaseTable _groups _signers
            bridge.reader.waiting.Keyless _by_key
            bridge.reader.kept.KeptReader _waiting changed streams
            bridge.reader.key_opening.KeyRing _audits _lacking _searches
            bridge.reader.newest_retained.Joining _members _until
            bridge.replica.outdated_keys.OutdatedKeys _of
            bridge.replica.resplitting.Resplitter gathering
            bridge.replica.retained.Retained _named
            bridge.wire.pulling.Pulls wakeups""",
        "bridge.contract.budgets.RESEALED_MAX": """
            bridge.contract.budgets.Repeats _sealed""",
        "bridge.receipts.acknowledging.WAITING_MAX": """
            bridge.receipts.acknowledging.Acknowledging _closed
            bridge.receipts.acknowledging._ChainState waiting""",
        "bridge.reader.gaps.GAPS_MAX": """
            bridge.reader.gaps.Gaps _budget _by_publisher _open fresh
            bridge.reader.readings.Readings _gaps""",
        "bridge.reader.key_opening.DOUBTED_MAX": """
            bridge.reader.key_opening.KeyRing _doubted""",
        "bridge.reader.waiting.HELD_MAX": """
            bridge.reader.waiting.HeldRoom _held
            bridge.reader.streams.Stream held
            bridge.reader.waiting.Waiting _by_key _deadlines _left _streams _wakeups""",
        "bridge.reader.key_opening.KNOWN_MAX": """
            bridge.reader.key_opening.SearchDebts _refuted _until""",
        "bridge.reader.interest.FORGOTTEN_MAX": """
            bridge.reader.interest._Subscription forgotten""",
        "bridge.replica.filtering.RUNS_MAX": """
            bridge.replica.filtering._Filtered given left_out votes""",
        "bridge.replica.resplitting.KEYS_HELD_MAX": """
            bridge.replica.untold_keys._Peer keys""",
        "bridge.replica.retained.OWED_TOPICS_MAX": """
            bridge.replica.retained.Owed peers topics""",
        "document": """
            bridge.replica.destinations.Destinations _ways_known
            bridge.replica.passed.Passed _repeats
            bridge.wire.sealings.Sealings _accused fresh""",
        "each": """
            bridge.reader.key_opening._Key brought served shares told
            bridge.replica.plane_routing._Served sent
            bridge.reader.blame._Walks _against _alone
            bridge.replica.resplitting.HeldKey announced came shares splits
            bridge.replica.wrapping.WrappedKey _sealed
            bridge.wire.pulling.Pull asked askers
            keys.columnsearch.ColumnSearch _fresh _present _tried _values rows shares
            keys.wrapping.Wraps _votes believed
            keys.wrapsearch.WrapAudit alone refuted suspects
            keys.wrapsearch.WrapSearch _tasks _tried _won rows
            keys.wrapsearch._Values keys""",
        "fair": """
            bridge.groups.shared_groups.SharedGroups _held _held_large
            bridge.reader.assembling.Assembling _holes _parts
            bridge.reader.waiting.Keyless _held
            bridge.reader.collector.Collector _streams
            bridge.reader.key_opening.KeyRing _keys
            bridge.reader.newest_retained.Joining _last _waiting
            bridge.receipts.acknowledging.Acknowledging _again
            bridge.reader.assembling.Skipped _lows
            bridge.replica.content_relay.Carrying _recent
            bridge.replica.filtering.Filtering _streams
            bridge.replica.outdated_keys.OutdatedKeys _kept
            bridge.replica.plane_routing.PlaneRouting _served
            bridge.replica.resplitting.Resplitter _held
            bridge.replica.retained.Owing _owed
            bridge.replica.retained.Retained _kept
            bridge.replica.destinations._Waiting words
            bridge.wire.pulling.Pulls _pulls
            bridge.wire.sealings.Sealings _known""",
        "keys.replay.BLOCKS_MAX": """
            keys.replay.SequenceWindow _blocks""",
    },
    "entity": {
        "beside": """
            bridge.traces.sweep.Sweep _free
            bridge.traces.tracer.Tracer _changed _clients _doubted _placed _sessions _spoken _traced
            bridge.tracking.discovery.DiscoveryNode _claims _newest _unverified
            bridge.tracking.following.Looks _heap""",
        "bridge.devices.sparkplug.ALIASES_MAX": """
            bridge.devices.sparkplug.Session aliases""",
        "bridge.traces.pings.OUTSTANDING_MAX": """
            bridge.traces.pings.Pulse _waiting""",
        "bridge.traces.reporting.REPORTED_MAX": """
            bridge.traces.reporting.Reporter _held _paces""",
        "each": """
            bridge.devices.entities.SaidOfEntities heard words
            bridge.devices.life_evidence.Regularity _intervals
            bridge.traces.reporting._Pace steady
            bridge.tracking.following.Followed candidates heard_on keys sources wishes
            bridge.tracking.following.Source answered numbers unopened
            bridge.tracking.witnessed.WitnessedEntity _met
            bridge.tracking.witnessing.Panel _witnesses
            bridge.tracking.witnessing._Witness ahead relented said""",
        "bridge.traces.fleet.ENTITIES_MAX": """
            bridge.traces.fleet.Fleet _alerts _groups""",
        "bridge.traces.fleet.FLAPS_KEPT": """
            bridge.traces.fleet._Member went""",
        "fair": """
            bridge.traces.elsewhere.Elsewhere _budget
            bridge.traces.tracer.Tracer _places
            bridge.tracking.discovery.DiscoveryNode _kept
            gateway.tracing.other_witnesses.OtherWitnesses _asked
            gateway.tracing.webhook.WaitingAlerts _alerts""",
    },
    "message": {
        "bridge.contract.history.ERAS_MOST": """
            bridge.reader.replay.Replay _documents _eras""",
        "each": """
            bridge.reader.assembling._Parts announcers pieces
            bridge.reader.handing_out.Unpacked records
            bridge.replica.passing.Passing announcers owed
            gateway.mqtt5.message.Message _packets
            keys.records.Records _extras_ends _payload_ends""",
        "once": """
            bridge.predicates.attributes.Attributes _known
            bridge.replica.plane_routing._Copies found
            keys.columnsearch._Plan _masks _through""",
    },
    "owner": {
        "document": """
            bridge.reader.readings.Readings _own
            gateway.history.keeper.HistoryKeeper reach
            gateway.history.rereading._Reading live
            gateway.overlay.reaching.HomeReaches _asked _told
            bridge.groups.shared_groups._Group shares
            bridge.node.ReaderNode secrets
            bridge.publisher.data_keys.DataKeys _live
            bridge.publisher.sealing.Sealer _hops _protections
            bridge.reader.interest.ScopeInterest _again _ahead_of _lingering _readable _secrets _tickets _told _up
            bridge.reader.interest.ScopeInterest _wants _withdrawals
            bridge.reader.interest.Subscriptions _of
            bridge.replica.resplitting.Resplitter _known_seeds
            bridge.topology.planes.Planes _counts _hosts
            bridge.topology.scot.RowTable rows
            bridge.topology.topology.Topology _senders
            bridge.traces.tracer.Tracer _nodes
            bridge.tracking.discovery.DiscoveryNode _nodes
            bridge.tracking.entity.TracedEntity _nodes
            bridge.tracking.tracker.Tracker _nodes
            gateway.outbox.lingering.Lingering _left_at _on_disk _waiting
            gateway.overlay.member_files.Keeping _archives_owed
            gateway.overlay.local_rights.LocalRights _held _lost _refused _said_at
            gateway.party.Party granted outgoing
            keys.epochs.ScopeKeys _keys
            keys.issuing.KeyServer _walked""",
        "keys.issuing.ARCHIVE_EPOCHS_MAX": """
            keys.issuing.KeyServer _archive""",
    },
    "operator": {
        "bridge.traces.fleet.GROUPS_MAX": """
            bridge.traces.fleet.Fleet _said_at _say_at""",
        "bridge.tracking.tracker.ENTITIES_MAX": """
            bridge.tracking.tracker.Tracker _followed _requests _topics""",
        "bridge.tracking.patterns.PATTERNS_MAX": """
            bridge.tracking.patterns.Patterns _asked""",
        "document": """
            bridge.document.own_topics.OwnTopics _documents
            gateway.attached.Attached _bridges
            gateway.auth.acl_file.Config acl publish_acl receive_acl subscribe_acl
            gateway.auth.acl_rules.FileRules of_group of_user patterns
            gateway.auth.enhanced_auth.EnhancedAuth methods
            gateway.auth.oidc.Config algorithms audience
            gateway.auth.oidc.OidcPlugin _tasks
            gateway.auth.password_file.PasswordFile _lines
            gateway.base.defects.Defects _said_at
            gateway.base.followed.MessageStep about
            gateway.bridging.circles.Circles bridges
            gateway.broker.edge_broker.EdgeBroker _contexts _first _sockets
            gateway.broker.exchange.Exchange watchers
            gateway.broker.running.RenewedCertificates _stamps
            gateway.client.wanted.WantedSubscriptions _unwanted _wanted
            gateway.clients.bounds.Reached _logged
            gateway.console.editing.Editing _ending
            gateway.console.operations.ApiOperation body query
            gateway.health.findings.View details disk_free ends
            gateway.health.looking.Certificates _known
            gateway.health.watching.HealthWatch _said
            gateway.mqtt5.client_session.ClientSession _half_finished_tokens _losses _requests
            gateway.operation.sys_topics.SysTopics _loads _said
            gateway.plugins.host.PluginHost _followers
            gateway.telemetry.exporting.SentMetrics _values
            gateway.telling.hooks.Hooks _tasks
            gateway.tracing.client._Driven _amiss""",
        "gateway.base.followed.CLIENTS_MAX": """
            gateway.base.followed.Following _clients""",
        "gateway.base.followed.FOLLOWINGS_MAX": """
            gateway.base.followed.FollowedMessages _open
            gateway.following.serving.FollowServer _tasks""",
        "gateway.base.followed.MESSAGES_MAX": """
            gateway.base.followed.Following _messages
            gateway.following.asking._Member named""",
        "gateway.base.followed.PASSED_MAX": """
            gateway.base.followed.FollowedMessages _passed""",
        "gateway.base.followed.STEPS_MAX": """
            gateway.base.followed.Following _steps""",
        "gateway.auth.oidc.REVOKED_MAX": """
            gateway.auth.oidc.RevokedUsers before""",
        "gateway.day.minutes.MINUTES_MAX": """
            gateway.day.day_keeper.DayKeeper _rows""",
        "gateway.health.alarms.ALARMS_MAX": """
            gateway.health.alarms.Alarms _all""",
        "gateway.client.complaints.SAID_MAX": """
            gateway.client.complaints.Complaints _said""",
        "gateway.stock.ARRIVED_MAX": """
            gateway.stock._Shell _arrived""",
    },
    "none": {
        "bridge.receipts.acknowledged.SEALED_BYTES_MAX": """
            bridge.receipts.acknowledged.Acknowledged _sealed""",
        "gateway.receipts.keeper.WAITING_MAX": """
            gateway.receipts.keeper.ReceiptKeeper _came _sealed""",
        "gateway.bridging.ends.WINDOW": """
            gateway.bridging.crossing.Way seen states
            gateway.bridging.exact.ExactWay _cleared _clearing lost stages
            gateway.bridging.relaying.RelaySession _had over wanted
            gateway.bridging.relaying.Releases _repeated _since""",
        "gateway.tracing.client.OBSERVED_MAX": """
            gateway.tracing.client.Tracker _observed""",
        "gateway.tracing.writing.PENDING_MAX": """
            gateway.tracing.writing._Changes advertisements entities waiters""",
        "gateway.history.local.FRESH_MAX": """
            gateway.history.local.LocalHistory _fresh""",
        "gateway.history.archive.OPEN_MAX": """
            gateway.history.archive.Archive _reading""",
        "bridge.replica.recording.KEYLESS_MAX": """
            bridge.replica.recording.Recorder keyless""",
        "bridge.replica.recording.GATHERED_BYTES": """
            bridge.replica.recording.Recorder _fresh""",
        "bridge.reader.readings.KEPT_WIRES_MAX": """
            bridge.reader.readings._Reading kept parked""",
        "beside": """
            gateway.sessions.store.SessionStore kept""",
        "bridge.devices.host.GAPS_MAX": """
            bridge.devices.host.Host _gaps""",
        "bridge.devices.sparkplug.ASKED_MAX": """
            bridge.devices.sparkplug.Rebirths _asked""",
        "bridge.groups.leases.RIGHTS_MAX": """
            bridge.groups.leases.LeaseTable _rights""",
        "bridge.publisher.cutting.DROPPED_MAX": """
            bridge.publisher.cutting.Cuts _former _parts _row_of changed
            bridge.publisher.cutting.Predecessors _before _last changed""",
        "bridge.publisher.former_scopes.FORMER_MAX": """
            bridge.publisher.former_scopes.FormerScopes _former""",
        "bridge.publisher.intake.CHAINS_MAX": """
            bridge.publisher.intake.OutboxIntake _last_stored""",
        "bridge.publisher.residents.REPAIR_BYTES_MAX": """
            bridge.publisher.residents.Repairable kept""",
        "bridge.publisher.residents.RESIDENT_MAX": """
            bridge.publisher.pacing.Pacing held
            bridge.publisher.publisher.Publisher _entries _young
            bridge.publisher.residents.Residents _settled
            bridge.publisher.windows._Round waits""",
        "bridge.publisher.sealed_before.RUNS_MAX": """
            bridge.publisher.sealed_before.SealedBefore _former _runs changed""",
        "bridge.publisher.sealing.TOPICS_MAX": """
            bridge.publisher.intake.OutboxIntake _passed
            bridge.publisher.sealing.Sealer _names""",
        "bridge.tracking.discovery.REQUESTS_MAX": """
            bridge.tracking.discovery.DiscoveryNode _answered""",
        "bridge.wire.admission.HEADERS_MAX": """
            bridge.wire.admission.Admission _admitted""",
        "bridge.wire.admission.RIGHTS_MAX": """
            bridge.wire.admission.Admission _rights""",
        "bridge.wire.admission.VERIFIED_KEYS_MAX": """
            bridge.wire.admission.Admission _keys""",
        "gateway.auth.passwords.REMEMBERED_MAX": """
            gateway.auth.passwords.PasswordPlugin _right""",
        "gateway.clients.routing.NARROWED_MAX": """
            gateway.clients.routing.Router narrowed""",
        "gateway.overlay.discovery.FOUND_MAX": """
            gateway.overlay.discovery.Neighbourhood _found _interfaces _resolving""",
        "gateway.overlay.local_rights.RIGHTS_MAX": """
            gateway.overlay.local_rights.LocalRights _known""",
        "gateway.sockets.audit.CAUSES_MAX": """
            gateway.sockets.audit.Audit _said""",
        "keys.fetching.EXTRA_MAX": """
            keys.fetching.KeyFetcher _wishes""",
        "memory": """
            gateway.clients.routing.Router _plans
            gateway.console.shown.LogTail lines
            gateway.outbox.database.Outbox _recent
            keys.keyopening.KeyOpener _derivations _outlines _places""",
        "once": """
            gateway.receipts.proving.MessageReceipts readers
            gateway.sessions.database.Content kept""",
        "tool": """
            bridge.base.belongings.Belongings _held _of_size
            bridge.base.intervals.Intervals _highs lows
            bridge.base.name_weights._Branch below order
            bridge.base.name_weights._Names each
            bridge.base.sorted_names.SortedNames _names
            bridge.base.topics.TopicIndex _exact _memo _wild
            bridge.base.topics._Level below here rest
            bridge.base.topics._Name below
            bridge.base.turns.Turns _origin_of _origins
            bridge.contract.budgets.Deferrals _allowances _due_at
            bridge.contract.budgets.FairBudget _owed
            bridge.contract.budgets.FairBytes _about _by_owner _bytes _values
            bridge.contract.budgets.FairTable _owned _owners _values
            bridge.contract.early_room.EarlyRoom _kept""",
        "turn": """
            bridge.devices.device_verdicts.Judging _effects
            gateway.broker.holding.Holding _woken
            gateway.client.batched.BatchedWriter _out
            gateway.clients.routing.Choices _by_slot _clients
            gateway.outbox.outgoing.Outgoing _appending _gathered
            gateway.sessions.batch.Batch debts deliveries gated gone_deliveries gone_messages kept messages received
            gateway.sessions.batch.Batch patient retained sessions subscriptions waiters
            gateway.sessions.database.Changes deliveries gone_deliveries gone_kept gone_messages gone_received
            gateway.sessions.database.Changes gone_retained gone_sessions gone_subscriptions kept messages received
            gateway.sessions.database.Changes retained sessions subscriptions
            gateway.sockets.flushing.Flusher _dirty""",
    },
}
