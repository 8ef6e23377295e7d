"""API keys: from a file or the environment, never from the command line, where every user of the machine sees them."""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Sequence
from pathlib import Path

from ensembed.errors import InputError

ENVIRONMENT = "ENSEMBED_API_KEYS"
_SHORTEST = 8


def read_keys(file: Path | None) -> tuple[str, ...]:
    """The keys of a file (one a line; # begins a comment) and of the variable ENSEMBED_API_KEYS (spaces or commas).

    Raises:
        InputError: the file cannot be read or holds no key, or a key is too short or not of visible ASCII characters.
            No key is shown.
    """
    keys: list[str] = []
    if file is not None:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"the file of keys {str(file)!r} cannot be read: {type(error).__name__}") from None
        keys = [line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")]
        if not keys:
            raise InputError(f"the file of keys {str(file)!r} holds no key: write one a line")
    keys += os.environ.get(ENVIRONMENT, "").replace(",", " ").split()
    for i, key in enumerate(keys):
        if len(key) < _SHORTEST or not all("!" <= sign <= "~" for sign in key):
            raise InputError(f"key {i + 1} is not {_SHORTEST} or more visible ASCII characters without spaces")
    return tuple(dict.fromkeys(keys))


class Keys:
    """Knows keys by their hashes; a comparison takes the same time whatever was sent."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def __bool__(self) -> bool:
        return bool(self._digests)

    def allow(self, authorization: bytes | None) -> bool:
        """Whether the value of an `Authorization` header holds one of the keys."""
        scheme, _, key = (authorization or b"").partition(b" ")
        digest = _digest(key.strip())
        found = False
        for known in self._digests:  # all of them, so that the time does not tell which
            found |= hmac.compare_digest(known, digest)
        return found and scheme.lower() == b"bearer"


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
