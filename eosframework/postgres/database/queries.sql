-- name: set_session(statement, idle_transaction, keepalives_idle, keepalives_interval, user_timeout)^
-- Limit how long the server waits for this connection and works for it. tcp_* settings do not affect
-- a Unix socket. Values have the same meaning whatever the server, database and role have set.
SELECT set_config('statement_timeout', :statement, false),
       set_config('idle_in_transaction_session_timeout', :idle_transaction, false),
       set_config('tcp_keepalives_idle', :keepalives_idle, false),
       set_config('tcp_keepalives_interval', :keepalives_interval, false),
       set_config('tcp_keepalives_count', '2', false),
       set_config('tcp_user_timeout', :user_timeout, false),
       set_config('TimeZone', 'UTC', false),
       set_config('DateStyle', 'ISO, YMD', false),
       set_config('IntervalStyle', 'postgres', false),
       set_config('extra_float_digits', '1', false);

-- name: limit_statements(limit)^
-- Limit each further statement of the session; return the limit until now.
SELECT current_setting('statement_timeout'), set_config('statement_timeout', :limit, false);

-- name: is_standby()$
-- True if the server is a standby, which is read-only.
SELECT pg_is_in_recovery();

-- name: lock_migrations()^
-- Let one process at a time change the schema; the lock ends with the transaction.
SELECT pg_advisory_xact_lock(hashtextextended('eosframework.migrations', 0));

-- name: has_schema()$
-- True if the schema of eosframework's own tables exists.
SELECT to_regnamespace('eosframework') IS NOT NULL;

-- name: lacking(kinds, names, privileges)
-- Return the privileges on existing objects of the schema eosframework that this role lacks, with the
-- name of the role.
SELECT wanted.kind, wanted.name, wanted.privilege, quote_ident(current_user)
FROM unnest(:kinds::text[], :names::text[], :privileges::text[])
    WITH ORDINALITY AS wanted (kind, name, privilege, place)
LEFT JOIN pg_namespace AS schema ON schema.nspname = 'eosframework'
LEFT JOIN pg_class AS object ON object.relnamespace = schema.oid AND object.relname = wanted.name
WHERE NOT CASE wanted.kind
    WHEN 'SCHEMA' THEN has_schema_privilege(schema.oid, wanted.privilege)
    WHEN 'SEQUENCE' THEN has_sequence_privilege(object.oid, wanted.privilege)
    ELSE has_table_privilege(object.oid, wanted.privilege) END
ORDER BY wanted.place;
