//! Tables of what does not exist here. Clients join them, so they are there, with PostgreSQL's
//! columns and no rows.

use super::SystemTable;

pub(super) const TABLES: &[&SystemTable] = &[
    &ATTRIBUTES,
    &COLUMN_OPTIONS,
    &FOREIGN_SERVERS,
    &FOREIGN_TABLES,
    &TRIGGERED_UPDATE_COLUMNS,
    &TRIGGERS,
    &USER_DEFINED_TYPES,
    &PG_AMOP,
    &PG_AMPROC,
    &PG_CONVERSION,
    &PG_EVENT_TRIGGER,
    &PG_FOREIGN_DATA_WRAPPER,
    &PG_FOREIGN_SERVER,
    &PG_FOREIGN_TABLE,
    &PG_INHERITS,
    &PG_INIT_PRIVS,
    &PG_LARGEOBJECT_METADATA,
    &PG_MATVIEWS,
    &PG_PARAMETER_ACL,
    &PG_PARTITIONED_TABLE,
    &PG_POLICIES,
    &PG_POLICY,
    &PG_PUBLICATION,
    &PG_PUBLICATION_NAMESPACE,
    &PG_PUBLICATION_REL,
    &PG_PUBLICATION_TABLES,
    &PG_RANGE,
    &PG_REPLICATION_SLOTS,
    &PG_RULES,
    &PG_SECLABEL,
    &PG_SECLABELS,
    &PG_SHSECLABEL,
    &PG_STAT_GSSAPI,
    &PG_STAT_PROGRESS_VACUUM,
    &PG_STAT_REPLICATION,
    &PG_STAT_PROGRESS_ANALYZE,
    &PG_STAT_PROGRESS_BASEBACKUP,
    &PG_STAT_PROGRESS_CLUSTER,
    &PG_STAT_PROGRESS_COPY,
    &PG_STAT_PROGRESS_CREATE_INDEX,
    &PG_STAT_SLRU,
    &PG_STAT_SUBSCRIPTION,
    &PG_STAT_USER_FUNCTIONS,
    &PG_STAT_WAL_RECEIVER,
    &PG_STATISTIC_EXT,
    &PG_SUBSCRIPTION,
    &PG_TRANSFORM,
    &PG_TRIGGER,
    &PG_TS_CONFIG,
    &PG_TS_DICT,
    &PG_TS_PARSER,
    &PG_TS_TEMPLATE,
    &PG_USER_MAPPING,
    &PG_USER_MAPPINGS,
];

empty_table! {
    TRIGGERS = 13440 view "information_schema"."triggers",
    trigger_catalog: Name, trigger_schema: Name, trigger_name: Name, event_manipulation: Varchar,
    event_object_catalog: Name, event_object_schema: Name, event_object_table: Name, action_order: Int4,
    action_condition: Varchar, action_statement: Varchar, action_orientation: Varchar, action_timing: Varchar,
    action_reference_old_table: Name, action_reference_new_table: Name, action_reference_old_row: Name,
    action_reference_new_row: Name, created: Timestamptz,
}

empty_table! {
    USER_DEFINED_TYPES = 13463 view "information_schema"."user_defined_types",
    user_defined_type_catalog: Name, user_defined_type_schema: Name, user_defined_type_name: Name,
    user_defined_type_category: Varchar, is_instantiable: Varchar, is_final: Varchar, ordering_form: Varchar,
    ordering_category: Varchar, ordering_routine_catalog: Name, ordering_routine_schema: Name,
    ordering_routine_name: Name, reference_type: Varchar, data_type: Varchar, character_maximum_length: Int4,
    character_octet_length: Int4, character_set_catalog: Name, character_set_schema: Name,
    character_set_name: Name, collation_catalog: Name, collation_schema: Name, collation_name: Name,
    numeric_precision: Int4, numeric_precision_radix: Int4, numeric_scale: Int4, datetime_precision: Int4,
    interval_type: Varchar, interval_precision: Int4, source_dtd_identifier: Name, ref_dtd_identifier: Name,
}

empty_table! {
    ATTRIBUTES = 13246 view "information_schema"."attributes",
    udt_catalog: Name, udt_schema: Name, udt_name: Name, attribute_name: Name, ordinal_position: Int4,
    attribute_default: Varchar, is_nullable: Varchar, data_type: Varchar, character_maximum_length: Int4,
    character_octet_length: Int4, character_set_catalog: Name, character_set_schema: Name,
    character_set_name: Name, collation_catalog: Name, collation_schema: Name, collation_name: Name,
    numeric_precision: Int4, numeric_precision_radix: Int4, numeric_scale: Int4, datetime_precision: Int4,
    interval_type: Varchar, interval_precision: Int4, attribute_udt_catalog: Name,
    attribute_udt_schema: Name, attribute_udt_name: Name, scope_catalog: Name, scope_schema: Name,
    scope_name: Name, maximum_cardinality: Int4, dtd_identifier: Name,
    is_derived_reference_attribute: Varchar,
}

empty_table! {
    TRIGGERED_UPDATE_COLUMNS = 13435 view "information_schema"."triggered_update_columns",
    trigger_catalog: Name, trigger_schema: Name, trigger_name: Name, event_object_catalog: Name,
    event_object_schema: Name, event_object_table: Name, event_object_column: Name,
}

empty_table! {
    COLUMN_OPTIONS = 13503 view "information_schema"."column_options",
    table_catalog: Name, table_schema: Name, table_name: Name, column_name: Name, option_name: Name,
    option_value: Varchar,
}

empty_table! {
    FOREIGN_SERVERS = 13525 view "information_schema"."foreign_servers",
    foreign_server_catalog: Name, foreign_server_name: Name, foreign_data_wrapper_catalog: Name,
    foreign_data_wrapper_name: Name, foreign_server_type: Varchar, foreign_server_version: Varchar,
    authorization_identifier: Name,
}

empty_table! {
    FOREIGN_TABLES = 13545 view "information_schema"."foreign_tables",
    foreign_table_catalog: Name, foreign_table_schema: Name, foreign_table_name: Name,
    foreign_server_catalog: Name, foreign_server_name: Name,
}

empty_table! {
    PG_AMOP = 2602 table "pg_catalog"."pg_amop",
    oid: Oid, amopfamily: Oid, amoplefttype: Oid, amoprighttype: Oid, amopstrategy: Int2,
    amoppurpose: InternalChar, amopopr: Oid, amopmethod: Oid, amopsortfamily: Oid,
}

empty_table! {
    PG_AMPROC = 2603 table "pg_catalog"."pg_amproc",
    oid: Oid, amprocfamily: Oid, amproclefttype: Oid, amprocrighttype: Oid, amprocnum: Int2, amproc: Regproc,
}

empty_table! {
    PG_CONVERSION = 2607 table "pg_catalog"."pg_conversion",
    oid: Oid, conname: Name, connamespace: Oid, conowner: Oid, conforencoding: Int4, contoencoding: Int4,
    conproc: Regproc, condefault: Bool,
}

empty_table! {
    PG_EVENT_TRIGGER = 3466 table "pg_catalog"."pg_event_trigger",
    oid: Oid, evtname: Name, evtevent: Name, evtowner: Oid, evtfoid: Oid, evtenabled: InternalChar,
    evttags: TextArray,
}

empty_table! {
    PG_FOREIGN_DATA_WRAPPER = 2328 table "pg_catalog"."pg_foreign_data_wrapper",
    oid: Oid, fdwname: Name, fdwowner: Oid, fdwhandler: Oid, fdwvalidator: Oid, fdwacl: TextArray,
    fdwoptions: TextArray,
}

empty_table! {
    PG_FOREIGN_SERVER = 1417 table "pg_catalog"."pg_foreign_server",
    oid: Oid, srvname: Name, srvowner: Oid, srvfdw: Oid, srvtype: Text, srvversion: Text, srvacl: TextArray,
    srvoptions: TextArray,
}

empty_table! {
    PG_FOREIGN_TABLE = 3118 table "pg_catalog"."pg_foreign_table",
    ftrelid: Oid, ftserver: Oid, ftoptions: TextArray,
}

empty_table! {
    PG_INHERITS = 2611 table "pg_catalog"."pg_inherits",
    inhrelid: Oid, inhparent: Oid, inhseqno: Int4, inhdetachpending: Bool,
}

empty_table! {
    PG_INIT_PRIVS = 3394 table "pg_catalog"."pg_init_privs",
    objoid: Oid, classoid: Oid, objsubid: Int4, privtype: InternalChar, initprivs: TextArray,
}

empty_table! {
    PG_LARGEOBJECT_METADATA = 2995 table "pg_catalog"."pg_largeobject_metadata",
    oid: Oid, lomowner: Oid, lomacl: TextArray,
}

empty_table! {
    PG_MATVIEWS = 12038 view "pg_catalog"."pg_matviews",
    schemaname: Name, matviewname: Name, matviewowner: Name, tablespace: Name, hasindexes: Bool,
    ispopulated: Bool, definition: Text,
}

empty_table! {
    PG_PARAMETER_ACL = 6243 table "pg_catalog"."pg_parameter_acl",
    oid: Oid, parname: Text, paracl: TextArray,
}

empty_table! {
    PG_PARTITIONED_TABLE = 3350 table "pg_catalog"."pg_partitioned_table",
    partrelid: Oid, partstrat: InternalChar, partnatts: Int2, partdefid: Oid, partattrs: Int2vector,
    partclass: Oidvector, partcollation: Oidvector, partexprs: Text,
}

empty_table! {
    PG_POLICIES = 12018 view "pg_catalog"."pg_policies",
    schemaname: Name, tablename: Name, policyname: Name, permissive: Text, roles: NameArray, cmd: Text,
    qual: Text, with_check: Text,
}

empty_table! {
    PG_POLICY = 3256 table "pg_catalog"."pg_policy",
    oid: Oid, polname: Name, polrelid: Oid, polcmd: InternalChar, polpermissive: Bool, polroles: OidArray,
    polqual: Text, polwithcheck: Text,
}

empty_table! {
    PG_PUBLICATION = 6104 table "pg_catalog"."pg_publication",
    oid: Oid, pubname: Name, pubowner: Oid, puballtables: Bool, pubinsert: Bool, pubupdate: Bool,
    pubdelete: Bool, pubtruncate: Bool, pubviaroot: Bool,
}

empty_table! {
    PG_PUBLICATION_NAMESPACE = 6237 table "pg_catalog"."pg_publication_namespace",
    oid: Oid, pnpubid: Oid, pnnspid: Oid,
}

empty_table! {
    PG_PUBLICATION_REL = 6106 table "pg_catalog"."pg_publication_rel",
    oid: Oid, prpubid: Oid, prrelid: Oid, prqual: Text, prattrs: Int2vector,
}

empty_table! {
    PG_PUBLICATION_TABLES = 12068 view "pg_catalog"."pg_publication_tables",
    pubname: Name, schemaname: Name, tablename: Name, attnames: NameArray, rowfilter: Text,
}

empty_table! {
    PG_RANGE = 3541 table "pg_catalog"."pg_range",
    rngtypid: Oid, rngsubtype: Oid, rngmultitypid: Oid, rngcollation: Oid, rngsubopc: Oid,
    rngcanonical: Regproc, rngsubdiff: Regproc,
}

empty_table! {
    PG_REPLICATION_SLOTS = 12257 view "pg_catalog"."pg_replication_slots",
    slot_name: Name, plugin: Name, slot_type: Text, datoid: Oid, database: Name, temporary: Bool,
    active: Bool, active_pid: Int4, xmin: Xid, catalog_xmin: Xid, restart_lsn: PgLsn,
    confirmed_flush_lsn: PgLsn, wal_status: Text, safe_wal_size: Int8, two_phase: Bool,
}

empty_table! {
    PG_RULES = 12023 view "pg_catalog"."pg_rules",
    schemaname: Name, tablename: Name, rulename: Name, definition: Text,
}

empty_table! {
    PG_SECLABEL = 3596 table "pg_catalog"."pg_seclabel",
    objoid: Oid, classoid: Oid, objsubid: Int4, provider: Text, label: Text,
}

empty_table! {
    PG_SECLABELS = 12099 view "pg_catalog"."pg_seclabels",
    objoid: Oid, classoid: Oid, objsubid: Int4, objtype: Text, objnamespace: Oid, objname: Text,
    provider: Text, label: Text,
}

empty_table! {
    PG_SHSECLABEL = 3592 table "pg_catalog"."pg_shseclabel",
    objoid: Oid, classoid: Oid, provider: Text, label: Text,
}

empty_table! {
    PG_STAT_GSSAPI = 12253 view "pg_catalog"."pg_stat_gssapi",
    pid: Int4, gss_authenticated: Bool, principal: Text, encrypted: Bool,
}

empty_table! {
    PG_STAT_PROGRESS_VACUUM = 12302 view "pg_catalog"."pg_stat_progress_vacuum",
    pid: Int4, datid: Oid, datname: Name, relid: Oid, phase: Text, heap_blks_total: Int8,
    heap_blks_scanned: Int8, heap_blks_vacuumed: Int8, index_vacuum_count: Int8, max_dead_tuples: Int8,
    num_dead_tuples: Int8,
}

empty_table! {
    PG_STAT_PROGRESS_ANALYZE = 12297 view "pg_catalog"."pg_stat_progress_analyze",
    pid: Int4, datid: Oid, datname: Name, relid: Oid, phase: Text, sample_blks_total: Int8,
    sample_blks_scanned: Int8, ext_stats_total: Int8, ext_stats_computed: Int8, child_tables_total: Int8,
    child_tables_done: Int8, current_child_table_relid: Oid,
}

empty_table! {
    PG_STAT_PROGRESS_BASEBACKUP = 12317 view "pg_catalog"."pg_stat_progress_basebackup",
    pid: Int4, phase: Text, backup_total: Int8, backup_streamed: Int8, tablespaces_total: Int8,
    tablespaces_streamed: Int8,
}

empty_table! {
    PG_STAT_PROGRESS_CLUSTER = 12307 view "pg_catalog"."pg_stat_progress_cluster",
    pid: Int4, datid: Oid, datname: Name, relid: Oid, command: Text, phase: Text, cluster_index_relid: Oid,
    heap_tuples_scanned: Int8, heap_tuples_written: Int8, heap_blks_total: Int8, heap_blks_scanned: Int8,
    index_rebuild_count: Int8,
}

empty_table! {
    PG_STAT_PROGRESS_COPY = 12322 view "pg_catalog"."pg_stat_progress_copy",
    pid: Int4, datid: Oid, datname: Name, relid: Oid, command: Text, type: Text, bytes_processed: Int8,
    bytes_total: Int8, tuples_processed: Int8, tuples_excluded: Int8,
}

empty_table! {
    PG_STAT_PROGRESS_CREATE_INDEX = 12312 view "pg_catalog"."pg_stat_progress_create_index",
    pid: Int4, datid: Oid, datname: Name, relid: Oid, index_relid: Oid, command: Text, phase: Text,
    lockers_total: Int8, lockers_done: Int8, current_locker_pid: Int8, blocks_total: Int8,
    blocks_done: Int8, tuples_total: Int8, tuples_done: Int8, partitions_total: Int8,
    partitions_done: Int8,
}

empty_table! {
    PG_STAT_SLRU = 12232 view "pg_catalog"."pg_stat_slru",
    name: Text, blks_zeroed: Int8, blks_hit: Int8, blks_read: Int8, blks_written: Int8, blks_exists: Int8,
    flushes: Int8, truncates: Int8, stats_reset: Timestamptz,
}

empty_table! {
    PG_STAT_SUBSCRIPTION = 12244 view "pg_catalog"."pg_stat_subscription",
    subid: Oid, subname: Name, pid: Int4, relid: Oid, received_lsn: PgLsn, last_msg_send_time: Timestamptz,
    last_msg_receipt_time: Timestamptz, latest_end_lsn: PgLsn, latest_end_time: Timestamptz,
}

empty_table! {
    PG_STAT_USER_FUNCTIONS = 12275 view "pg_catalog"."pg_stat_user_functions",
    funcid: Oid, schemaname: Name, funcname: Name, calls: Int8, total_time: Float8, self_time: Float8,
}

empty_table! {
    PG_STAT_WAL_RECEIVER = 12236 view "pg_catalog"."pg_stat_wal_receiver",
    pid: Int4, status: Text, receive_start_lsn: PgLsn, receive_start_tli: Int4, written_lsn: PgLsn,
    flushed_lsn: PgLsn, received_tli: Int4, last_msg_send_time: Timestamptz,
    last_msg_receipt_time: Timestamptz, latest_end_lsn: PgLsn, latest_end_time: Timestamptz,
    slot_name: Text, sender_host: Text, sender_port: Int4, conninfo: Text,
}

empty_table! {
    PG_STAT_REPLICATION = 12227 view "pg_catalog"."pg_stat_replication",
    pid: Int4, usesysid: Oid, usename: Name, application_name: Text, client_addr: Inet, client_hostname: Text,
    client_port: Int4, backend_start: Timestamptz, backend_xmin: Xid, state: Text, sent_lsn: PgLsn,
    write_lsn: PgLsn, flush_lsn: PgLsn, replay_lsn: PgLsn, write_lag: Interval, flush_lag: Interval,
    replay_lag: Interval, sync_priority: Int4, sync_state: Text, reply_time: Timestamptz,
}

empty_table! {
    PG_STATISTIC_EXT = 3381 table "pg_catalog"."pg_statistic_ext",
    oid: Oid, stxrelid: Oid, stxname: Name, stxnamespace: Oid, stxowner: Oid, stxstattarget: Int4,
    stxkeys: Int2vector, stxkind: InternalCharArray, stxexprs: Text,
}

empty_table! {
    PG_SUBSCRIPTION = 6100 table "pg_catalog"."pg_subscription",
    oid: Oid, subdbid: Oid, subskiplsn: Text, subname: Name, subowner: Oid, subenabled: Bool, subbinary: Bool,
    substream: Bool, subtwophasestate: InternalChar, subdisableonerr: Bool, subconninfo: Text,
    subslotname: Name, subsynccommit: Text, subpublications: TextArray,
}

empty_table! {
    PG_TRANSFORM = 3576 table "pg_catalog"."pg_transform",
    oid: Oid, trftype: Oid, trflang: Oid, trffromsql: Regproc, trftosql: Regproc,
}

empty_table! {
    PG_TRIGGER = 2620 table "pg_catalog"."pg_trigger",
    oid: Oid, tgrelid: Oid, tgparentid: Oid, tgname: Name, tgfoid: Oid, tgtype: Int2, tgenabled: InternalChar,
    tgisinternal: Bool, tgconstrrelid: Oid, tgconstrindid: Oid, tgconstraint: Oid, tgdeferrable: Bool,
    tginitdeferred: Bool, tgnargs: Int2, tgattr: Int2vector, tgargs: Bytea, tgqual: Text, tgoldtable: Name,
    tgnewtable: Name,
}

empty_table! {
    PG_TS_CONFIG = 3602 table "pg_catalog"."pg_ts_config",
    oid: Oid, cfgname: Name, cfgnamespace: Oid, cfgowner: Oid, cfgparser: Oid,
}

empty_table! {
    PG_TS_DICT = 3600 table "pg_catalog"."pg_ts_dict",
    oid: Oid, dictname: Name, dictnamespace: Oid, dictowner: Oid, dicttemplate: Oid, dictinitoption: Text,
}

empty_table! {
    PG_TS_PARSER = 3601 table "pg_catalog"."pg_ts_parser",
    oid: Oid, prsname: Name, prsnamespace: Oid, prsstart: Regproc, prstoken: Regproc, prsend: Regproc,
    prsheadline: Regproc, prslextype: Regproc,
}

empty_table! {
    PG_TS_TEMPLATE = 3764 table "pg_catalog"."pg_ts_template",
    oid: Oid, tmplname: Name, tmplnamespace: Oid, tmplinit: Regproc, tmpllexize: Regproc,
}

empty_table! {
    PG_USER_MAPPING = 1418 table "pg_catalog"."pg_user_mapping",
    oid: Oid, umuser: Oid, umserver: Oid, umoptions: TextArray,
}

empty_table! {
    PG_USER_MAPPINGS = 12327 view "pg_catalog"."pg_user_mappings",
    umid: Oid, srvid: Oid, srvname: Name, umuser: Oid, usename: Name, umoptions: TextArray,
}
