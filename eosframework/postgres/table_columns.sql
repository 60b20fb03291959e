-- name: column_types(table)
-- List the columns of a table that a row may name, with their types as PostgreSQL writes them.
SELECT attribute.attname, format_type(attribute.atttypid, attribute.atttypmod)
FROM pg_catalog.pg_attribute AS attribute
WHERE attribute.attrelid = :table::regclass
    AND attribute.attnum > 0
    AND NOT attribute.attisdropped
    AND attribute.attgenerated = ''
ORDER BY attribute.attnum;
