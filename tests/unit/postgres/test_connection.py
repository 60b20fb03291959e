from __future__ import annotations

import subprocess
import sys

import pytest

from eosframework.config import DatabaseSettings
from eosframework.errors import ConfigurationError
from eosframework.postgres.database import Database

SECRET = "p4ss"


def database(dsn: str) -> Database:
    return Database(DatabaseSettings.model_validate({"dsn": dsn}))


@pytest.mark.parametrize(
    ("dsn", "display"),
    [
        (f"postgresql://u:{SECRET}@h:5/d", "postgresql://u@h:5/d"),
        (f"postgres://u:{SECRET}@h:5,i:6/d?sslmode=require", "postgresql://u@h:5,i:6/d"),
        (f"host=h port=5 user=u dbname=d password={SECRET}", "postgresql://u@h:5/d"),
        (f"host=h,i port=5 user=u dbname=d password={SECRET}", "postgresql://u@h:5,i:5/d"),
        (f"postgresql://u:1?{SECRET}#@h:5/d", "postgresql://u@h:5/d"),
        (f"postgresql://u%40x:{SECRET}%40%2F@h:5/d", "postgresql://u@x@h:5/d"),
    ],
)
def test_a_database_is_shown_without_its_secret(dsn: str, display: str) -> None:
    assert database(dsn).display == display
    assert SECRET not in repr(database(dsn))


@pytest.mark.parametrize(
    "dsn",
    [
        "",
        " ",
        SECRET,
        f"mysql://u:{SECRET}@h/d",
        f"postgresql://u:a@{SECRET}@h/d",
        f"postgresql://u:{SECRET}/a@h/d",
        f"postgresql://u:1/{SECRET}@h/d",
        f"postgresql://u:{SECRET}@h/d?a",
        f"postgresql://u:{SECRET}@h:x/d",
        f"host=h password=a {SECRET}",
    ],
)
def test_what_is_no_dsn_is_refused_without_showing_it(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="percent-encoded") as refused:
        database(dsn)

    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None


def test_without_a_dsn_the_message_says_how_to_get_one() -> None:
    with pytest.raises(ConfigurationError, match="`eosframework database up`"):
        Database(DatabaseSettings())


def test_without_its_packages_the_message_says_what_to_install() -> None:
    code = "import sys; sys.modules['psycopg'] = None; import eosframework.postgres.database"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert "run: pip install 'eosframework[postgres]'" in done.stderr
