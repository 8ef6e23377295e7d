"""The address of an embedding server, and the key that may be sent to it.

Anybody may have written a saved model, which names its servers. So a key is sent only to the host that its environment
variable spells: `ENSEMBED_API_KEY_API_MISTRAL_AI` to api.mistral.ai, `OPENAI_API_KEY` to api.openai.com. Letters
are capitals, a dot is `_` and any other character `__`, so that api-mistral.ai has another variable. A port may
follow: `…_LOCALHOST_8000` comes before `…_LOCALHOST`. Over http, a key is sent to another machine only where the
variable names the port.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, urlsplit

from ensembed.corpora.corpus import shorten
from ensembed.errors import InputError
from ensembed.support.version import __version__

EXAMPLE = "openai:https://api.openai.com/v1#text-embedding-3-small"

_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"(?=.{1,253}$)([a-z0-9_-]{1,63}\.)*[a-z0-9_-]{1,63}\.?|[0-9a-f.]*:[0-9a-f:.]+")
_SECRET = re.compile("key|token|secret|auth|sig|pass|code|credential", re.IGNORECASE)  # parameters that look like a key


@dataclass(frozen=True)
class Server:
    """Where requests are sent, and with which key.

    Attributes:
        url: the address of requests.
        variable: the environment variable that holds, or would hold, the key.
        key: the key, or ""; it must not be shown anywhere.
        header: the HTTP header of the key.
        nearby: whether it is on this machine, where no proxy can find it.
    """

    url: str
    variable: str
    key: str = field(default="", repr=False)
    header: str = "Authorization"
    nearby: bool = False

    @property
    def place(self) -> str:
        """The URL for messages, without its query."""
        return self.url.partition("?")[0]

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        result = {"Content-Type": "application/json", "Accept-Encoding": "gzip"}
        result["User-Agent"] = f"ensembed/{__version__}"
        if self.key:
            result[self.header] = f"Bearer {self.key}" if self.header == "Authorization" else self.key
        return result

    def show(self, value: object, limit: int = 80) -> str:
        """Return what the server sent (text, or parsed JSON), first without any part of the key, then shortened."""
        text = value if isinstance(value, str) else json.dumps(value)
        for key in (self.key, quote(self.key, safe=""), json.dumps(self.key)[1:-1]):
            text = text.replace(key, "***") if key else text
        if isinstance(value, str):
            return shorten(text, limit)
        return text if len(text) <= limit else text[: limit - 3] + "..."


def find_server(url: str, name: str) -> Server:
    """Return the server at a base URL, with its key from the environment; a URL that holds a secret is refused."""
    if "@" in url:  # anywhere: a password may hold what ends the host's part of a URL
        host = re.split("[/?:]", url.rpartition("@")[2])[0].lower()
        way_out = f"set the variable {_variables('https', host, None)[-1]} to a key instead"
        what = "holds a user or a password, which would be saved in models"
        raise InputError(f"an openai: encoder's URL for {host} {what}; {way_out}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise InputError(f"encoder {name!r}: {shorten(url)} is not a URL: {error}") from None
    host = parts.hostname or ""
    for parameter, _ in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(parameter):
            way_out = f"set the variable {_variables(parts.scheme, host, port)[-1]} to it instead"
            what = f"has a parameter {parameter!r}: a key would be saved in models"
            raise InputError(f"an openai: encoder's URL for {host} {what}; {way_out}")
    if parts.scheme not in _PORTS or not _HOST.fullmatch(host) or not url.isprintable():
        raise InputError(f"encoder {name!r}: {shorten(url)} is not http(s)://HOST/PATH, as in {EXAMPLE}")
    variables = _variables(parts.scheme, host, port)
    variable = next((variable for variable in variables if os.environ.get(variable, "").strip()), variables[-1])
    key = os.environ.get(variable, "").strip()
    if not re.fullmatch(r"[!-~]*", key):  # HTTP can carry no others; libraries would show the key in their errors
        raise InputError(f"the key in the variable {variable} holds spaces or characters that are not ASCII")
    header = "api-key" if host.endswith(".openai.azure.com") else "Authorization"
    path = (parts.path.rstrip("/") or "/v1").removesuffix("/embeddings") + "/embeddings"
    return Server(parts._replace(path=path, fragment="").geturl(), variable, key, header, _is_nearby(host))


def _variables(scheme: str, host: str, port: int | None) -> list[str]:
    """Return the variables that may hold the key for a host, the first set one counts; the last is the suggestion."""
    spelled = re.sub("[^A-Z0-9_]", "__", host.replace("_", "-").replace(".", "_").upper())
    whole = f"ENSEMBED_API_KEY_{spelled}"
    with_port = f"{whole}_{port or _PORTS.get(scheme, '')}"
    if scheme != "https" and not _is_nearby(host):
        return [with_port]
    # Only on its own port: everybody who uses OpenAI's library has this variable set.
    openai = ["OPENAI_API_KEY"] if (scheme, host, port or 443) == ("https", "api.openai.com", 443) else []
    return [with_port, whole, *openai]


def _is_nearby(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
