"""Access to the console: the token, sessions of browsers, and requests that change something.

CA1. Without a token in the settings every request may read; the console then listens on this
machine only (`server`).
CA2. With a token, a request needs the cookie of a session, or the token as a bearer. A browser
gets the cookie when it shows the token on the page for signing in.
CA3. A request that starts or changes something (POST) must come from a page of this console:
`Sec-Fetch-Site` and `Origin`, where a browser sends them, name this site, and the form has
the session's form token, which no other site can read.
CA4. A change in the cluster also needs `--allow-changes`, and so a token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from http import HTTPStatus
from urllib.parse import SplitResult, urlsplit

from eosframework.serialization.bounds import SESSIONS

SESSION_SECONDS = 12 * 3600.0

FORM_FIELD = "form_token"
"""Name of the hidden field with the form token."""


class Refused(Exception):
    """A request that is refused, with the status and the message of its answer."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Access:
    """Sessions and form tokens of a console.

    Args:
        token: of the settings; None: everybody who reaches the address may read.
        allow_changes: changes in the cluster are offered.
        clock: in seconds.
    """

    def __init__(
        self,
        token: str | None,
        *,
        allow_changes: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.allow_changes = allow_changes
        self._token = token
        self._clock = clock
        self._secret = secrets.token_bytes(32)
        self._sessions: dict[str, float] = {}

    @property
    def needs_token(self) -> bool:
        """True if a browser must show the token."""
        return self._token is not None

    def is_token(self, given: str) -> bool:
        """Return whether `given` is the token, in a time that does not depend on it."""
        expected = self._token or ""
        return bool(expected) and hmac.compare_digest(given.encode(), expected.encode())

    def sign_in(self) -> str:
        """Return the cookie of a new session."""
        now = self._clock()
        self._sessions = {k: until for k, until in self._sessions.items() if until > now}
        while len(self._sessions) >= SESSIONS.value:
            del self._sessions[min(self._sessions, key=self._sessions.__getitem__)]
        session = secrets.token_urlsafe(32)
        self._sessions[session] = now + SESSION_SECONDS
        return session

    def sign_out(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(session, None)

    def may_read(self, session: str, authorization: str) -> bool:
        """Return whether a request may read pages (CA1, CA2).

        Args:
            session: the cookie's value; empty: none.
            authorization: the header's value; empty: none.
        """
        if self._token is None:
            return True
        kind, _, given = authorization.partition(" ")
        if kind.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return self._sessions.get(session, 0.0) > self._clock()

    def form_token(self, session: str) -> str:
        """Return the form token of a session."""
        return hmac.new(self._secret, session.encode(), hashlib.sha256).hexdigest()

    def require_own_form(
        self, headers: Mapping[str, str], session: str, form: Mapping[str, str]
    ) -> None:
        """Refuse a request that does not come from a page of this console (CA3).

        Raises:
            Refused: names the reason.
        """
        site = headers.get("sec-fetch-site", "same-origin")
        origin = headers.get("origin")
        host = headers.get("host", "").lower()
        is_foreign = origin is not None and split_url(origin).netloc.lower() != host
        if site != "same-origin" or is_foreign:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "this request was sent by a page of another site, so nothing was done; use the "
                "form on the console's own page",
            )
        given = form.get(FORM_FIELD, "")
        if not hmac.compare_digest(given.encode(), self.form_token(session).encode()):
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "the form is of another session of the console, so nothing was done; open the page "
                "again and repeat the step",
            )

    def require_changes(self) -> None:
        """Refuse a change unless the console was started for changes (CA4).

        Raises:
            Refused: names the option.
        """
        if not self.allow_changes:
            raise Refused(
                HTTPStatus.FORBIDDEN,
                "this console only reads, so nothing was done; start it with --allow-changes and a "
                "token (setting console.token) to make changes here",
            )


def split_url(text: str) -> SplitResult:
    """Return the parts of a URL; those of an empty one if it is none."""
    try:
        return urlsplit(text)
    except ValueError:
        return urlsplit("")
