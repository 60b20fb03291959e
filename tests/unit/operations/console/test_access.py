"""Access: tokens, sessions, forms of other sites, and addresses that need a token."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eosframework.errors import ConfigurationError
from eosframework.operations.console.access import (
    FORM_FIELD,
    SESSION_SECONDS,
    Access,
    Refused,
)
from eosframework.operations.console.pages import after_prefix
from eosframework.operations.console.server import require_token_where_needed
from eosframework.operations.console.site import FIRST_PAGE, own_path
from eosframework.serialization.bounds import SESSIONS

TOKEN = "sixteen characters"


def test_a_session_is_known_until_it_ends_and_only_by_its_own_cookie() -> None:
    now = [0.0]
    access = Access(TOKEN, clock=lambda: now[0])
    session = access.sign_in()
    assert access.may_read(session, "")
    assert access.may_read("", f"Bearer {TOKEN}")
    for wrong in ("", session[:-1], f"{session}x"):
        assert not access.may_read(wrong, "")
    for wrong in ("", TOKEN, f"Basic {TOKEN}", "Bearer ", "Bearer é", f"Bearer {TOKEN}x"):
        assert not access.may_read("", wrong)
    now[0] = SESSION_SECONDS + 1
    assert not access.may_read(session, "")
    sessions = [access.sign_in() for _ in range(SESSIONS.value + 1)]
    assert [access.may_read(one, "") for one in sessions].count(True) == SESSIONS.value
    access.sign_out(sessions[-1])
    assert not access.may_read(sessions[-1], "")


def test_a_console_without_a_token_has_none_that_fits() -> None:
    assert not Access(None).is_token("")


@pytest.mark.parametrize(
    "headers",
    [
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "none"},
        {"origin": "http://127.0.0.1:8089"},
        {"origin": "null"},
        {"origin": "https://evil.example"},
        {"origin": "http://["},
    ],
)
def test_a_request_of_another_site_is_refused_even_with_the_right_form(
    headers: dict[str, str],
) -> None:
    access = Access(None)
    form = {FORM_FIELD: access.form_token("s")}
    own = {"host": "127.0.0.1:8088"}
    access.require_own_form(own, "s", form)
    same = {"origin": "http://127.0.0.1:8088", "sec-fetch-site": "same-origin"}
    access.require_own_form(own | same, "s", form)
    with pytest.raises(Refused, match="another site"):
        access.require_own_form(own | headers, "s", form)
    with pytest.raises(Refused, match="another session"):
        access.require_own_form(own, "t", form)
    with pytest.raises(Refused, match="another session"):
        access.require_own_form(own, "s", {})


def test_an_address_that_others_reach_needs_a_token_and_so_do_changes() -> None:
    for address in ("127.0.0.1:8088", "[::1]:0", "localhost:8088", "127.9.9.9:1"):
        require_token_where_needed(address, has_token=False, allow_changes=False)
        with pytest.raises(ConfigurationError, match=r"console\.token"):
            require_token_where_needed(address, has_token=False, allow_changes=True)
    for address in ("0.0.0.0:8088", "[::]:8088", "10.0.0.7:8088", "console.example.com:80"):
        require_token_where_needed(address, has_token=True, allow_changes=True)
        with pytest.raises(ConfigurationError, match=r"console\.token"):
            require_token_where_needed(address, has_token=False, allow_changes=False)
    with pytest.raises(ConfigurationError, match="expected HOST:PORT"):
        require_token_where_needed("8088", has_token=False, allow_changes=False)


@pytest.mark.parametrize(
    "target", ["//evil.example", "https://evil.example/", "/\\evil.example", "//[", "tasks", ""]
)
def test_signing_in_leads_to_no_other_site(target: str) -> None:
    assert own_path(target) == FIRST_PAGE


def test_signing_in_leads_back_to_the_page_that_was_asked_for() -> None:
    assert own_path("/state?store=a&key=b") == "/state?store=a&key=b"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4))
def test_after_a_prefix_comes_the_least_text_without_it(prefix: str) -> None:
    after = after_prefix(prefix)
    if after is None:
        assert set(prefix) == {"\U0010ffff"}
        return
    assert after.encode() > (prefix + "\U0010ffff" * 3).encode()
    assert not after.startswith(prefix)
