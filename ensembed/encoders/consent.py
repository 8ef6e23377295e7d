"""Names that a saved model may not open on its own: it may come from a stranger."""

from __future__ import annotations

from ensembed.encoders.names import flag, parse_name


def needs_consent(name: str) -> str | None:
    """What opening an encoder of that name would do that its user has to want; None for most.

    A server may be asked if it is on this machine or if its key is set, which says that it is known.

    Raises:
        InputError: the name is malformed.

    Example:
        >>> needs_consent("st:org/model?trust_remote_code=true")
        'runs code that comes with its weights'
        >>> needs_consent("openai:https://example.org/v1#model")
        'sends your sentences to https://example.org/v1/embeddings'
    """
    request = parse_name(name)
    asked, _ = request.take(trust_remote_code=flag)
    if asked.get("trust_remote_code"):
        return "runs code that comes with its weights"
    if request.scheme == "openai":
        from ensembed.encoders.openai.api_servers import find_server

        server = find_server(request.location.partition("#")[0], request.shown)
        if not (server.nearby or server.key):
            return f"sends your sentences to {server.place}"
    return None
