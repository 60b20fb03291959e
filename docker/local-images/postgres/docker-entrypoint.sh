#!/bin/bash
# The contract of the official image: POSTGRES_USER, _PASSWORD, _DB (each also as _FILE),
# POSTGRES_INITDB_ARGS, POSTGRES_HOST_AUTH_METHOD, and scripts in /docker-entrypoint-initdb.d, which
# run once, when the data directory is new, before the server listens to anybody else.
set -euo pipefail

from_file() {
    local file="${1}_FILE"
    if [ -n "${!file:-}" ]; then export "$1"="$(<"${!file}")"; fi
}

run_scripts() {
    local script
    ls /docker-entrypoint-initdb.d > /dev/null # one that cannot be read is no empty one
    for script in /docker-entrypoint-initdb.d/*; do
        case "$script" in
            *.sh) if [ -x "$script" ]; then "$script"; else . "$script"; fi ;;
            *.sql) ask --dbname="$POSTGRES_DB" --file="$script" ;;
            *.sql.gz) gunzip --stdout "$script" | ask --dbname="$POSTGRES_DB" ;;
        esac
    done
}

ask() {
    psql --no-psqlrc --set=ON_ERROR_STOP=1 --username="$POSTGRES_USER" "$@"
}

initialize() {
    local method="${POSTGRES_HOST_AUTH_METHOD:-scram-sha-256}"
    if [ -z "${POSTGRES_PASSWORD:-}" ] && [ "$method" != trust ]; then
        echo "Database is uninitialized and POSTGRES_PASSWORD is not set." >&2
        exit 1
    fi
    eval "initdb --pgdata='$PGDATA' --username='$POSTGRES_USER' --encoding=UTF8 \
        --auth-local=trust --auth-host='$method' --no-instructions \
        --pwfile=<(printf '%s\n' \"\${POSTGRES_PASSWORD:-}\") ${POSTGRES_INITDB_ARGS:-}"
    echo "host all all all $method" >> "$PGDATA/pg_hba.conf"
    printf "%s\n" "listen_addresses = '*'" "unix_socket_directories = '/var/run/postgresql, /tmp'" \
        >> "$PGDATA/postgresql.conf"
    pg_ctl --pgdata="$PGDATA" --wait --options="-c listen_addresses=''" start
    if [ "$POSTGRES_DB" != postgres ]; then
        printf 'CREATE DATABASE :"name";' | ask --dbname=postgres --set=name="$POSTGRES_DB"
    fi
    run_scripts
    pg_ctl --pgdata="$PGDATA" --mode=fast --wait stop
}

if [ "${1#-}" != "$1" ]; then set -- postgres "$@"; fi
if [ "$1" = postgres ] && [ "$(id -u)" = 0 ]; then
    mkdir -p "$PGDATA"
    chown -R postgres:postgres "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi
if [ "$1" = postgres ]; then
    for name in POSTGRES_USER POSTGRES_PASSWORD POSTGRES_DB POSTGRES_INITDB_ARGS; do
        from_file "$name"
    done
    export POSTGRES_USER="${POSTGRES_USER:-postgres}"
    export POSTGRES_DB="${POSTGRES_DB:-$POSTGRES_USER}"
    mkdir -p "$PGDATA"
    chmod 700 "$PGDATA"
    if [ ! -s "$PGDATA/PG_VERSION" ]; then initialize; fi
fi
exec "$@"
