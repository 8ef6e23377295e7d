"""URLs of corpora, and how they are shown: what may be a secret is not."""

from __future__ import annotations

import re
from urllib.parse import parse_qsl, unquote, urlsplit

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(://|::)")
# In these, what comes before the @ is a container, not a user.
_CONTAINERS = ("abfs", "abfss", "wasb", "wasbs")
_USER = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/\s'\"]*)@")
# A query; a question mark without = may be part of a pattern.
_QUERY = re.compile(r"(://[^\s?'\"]*)\?[^\s'\"]*=[^\s'\")]*")
_HIDDEN = "…"
# Shorter ones are found in words.
_LEAST_SECRET = 4


def is_url(source: str) -> bool:
    """Whether this is a URL rather than a path; `simplecache::s3://…` is one too."""
    return _URL.match(source) is not None


def secrets_of(url: str) -> tuple[str, ...]:
    """What in a URL may be a secret: users, passwords and the values of queries, as written and as meant."""
    found: set[str] = set()
    for one in url.split("::"):
        try:
            split = urlsplit(one)
        except ValueError:
            continue
        if "@" in split.netloc and split.scheme not in _CONTAINERS:
            user, _, password = split.netloc.rpartition("@")[0].partition(":")
            found |= {user, password}
        if "=" in split.query:
            found |= {split.query, *(value for _, value in parse_qsl(split.query))}
            found |= {pair.partition("=")[2] for pair in split.query.split("&")}
    found |= {unquote(secret) for secret in found}
    return tuple(sorted((secret for secret in found if len(secret) >= _LEAST_SECRET), key=len, reverse=True))


def hide(text: str, secrets: tuple[str, ...] = ()) -> str:
    """A URL, or a message that may hold one, without users, passwords, queries and these secrets."""
    text = _USER.sub(lambda m: m[0] if m[1] in _CONTAINERS else f"{m[1]}://{_HIDDEN}@", text)
    text = _QUERY.sub(rf"\1?{_HIDDEN}", text)
    for secret in secrets:
        text = text.replace(secret, _HIDDEN)
    return text
