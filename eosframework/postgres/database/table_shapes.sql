-- name: column_types(table)
-- List the columns of a table that a row may name, with their types as PostgreSQL writes them.
SELECT attribute.attname, format_type(attribute.atttypid, attribute.atttypmod)
FROM pg_catalog.pg_attribute AS attribute
WHERE attribute.attrelid = :table::regclass
    AND attribute.attnum > 0
    AND NOT attribute.attisdropped
    AND attribute.attgenerated = ''
    AND attribute.attidentity <> 'a'
ORDER BY attribute.attnum;

-- name: relation(table)^
-- Return the kind of a relation, whether row-level security applies to this role, and whether a
-- trigger may fill columns before a row is inserted; no row: it does not exist.
SELECT relation.relkind::text, row_security_active(relation.oid), EXISTS (
    SELECT FROM pg_catalog.pg_trigger AS known
    WHERE known.tgrelid = relation.oid
        AND NOT known.tgisinternal
        AND known.tgenabled <> 'D'
        AND known.tgtype & 7 = 7)  -- for each row, before, insert
FROM pg_catalog.pg_class AS relation
WHERE relation.oid = to_regclass(:table);

-- name: columns(table)
-- List the columns of a table. The type of a domain is the one below it.
WITH RECURSIVE found AS (
    SELECT attribute.attnum, attribute.attname,
        format_type(attribute.atttypid, attribute.atttypmod) AS declared,
        attribute.atttypid AS type, attribute.atttypmod AS modifier,
        attribute.attnotnull AS required,
        attribute.attgenerated = '' AND attribute.atthasdef OR attribute.attidentity <> '' AS filled,
        attribute.attgenerated <> '' OR attribute.attidentity = 'a' AS computed,
        attribute.attcollation AS collation_id
    FROM pg_catalog.pg_attribute AS attribute
    WHERE attribute.attrelid = to_regclass(:table)
        AND attribute.attnum > 0
        AND NOT attribute.attisdropped
    UNION ALL
    SELECT found.attnum, found.attname, found.declared, domain.typbasetype, domain.typtypmod,
        found.required OR domain.typnotnull, found.filled OR domain.typdefault IS NOT NULL,
        found.computed, found.collation_id
    FROM found
    JOIN pg_catalog.pg_type AS domain ON domain.oid = found.type AND domain.typtype = 'd'
)
SELECT found.attname, found.declared, format_type(kind.oid, found.modifier),
    CASE WHEN kind.typtype = 'e' THEN 'enum' ELSE kind.typname::text END,
    CASE WHEN kind.typcategory = 'A' THEN
        CASE WHEN item.typtype = 'e' THEN 'enum' ELSE item.typname::text END END,
    NOT found.required, found.filled, found.computed,
    coalesce(known.collisdeterministic, true)
FROM found
JOIN pg_catalog.pg_type AS kind ON kind.oid = found.type AND kind.typtype <> 'd'
LEFT JOIN pg_catalog.pg_type AS item ON item.oid = kind.typelem
LEFT JOIN pg_catalog.pg_collation AS known ON known.oid = found.collation_id
ORDER BY found.attnum;

-- name: unique_indexes(table)
-- List the unique indexes of a table without expressions and conditions: name, columns, valid, not
-- deferrable, nulls not distinct (PostgreSQL 15 and later).
SELECT name.relname, array_agg(attribute.attname::text), index.indisvalid, index.indimmediate,
    coalesce((to_jsonb(index) ->> 'indnullsnotdistinct')::boolean, false)
FROM pg_catalog.pg_index AS index
JOIN pg_catalog.pg_class AS name ON name.oid = index.indexrelid
JOIN pg_catalog.pg_attribute AS attribute ON attribute.attrelid = index.indrelid
    AND array_position(index.indkey::smallint[], attribute.attnum) < index.indnkeyatts
WHERE index.indrelid = to_regclass(:table)
    AND index.indisunique
    AND index.indpred IS NULL
    AND index.indexprs IS NULL
GROUP BY 1, 3, 4, 5
ORDER BY 1;
