"""What a name may not do without the user's consent. A name out of a file (a saved model, an index) may be anybody's.

This is the one place that decides it: code that opens names out of files asks here first.
"""

from __future__ import annotations

from ensembed.encoders.names import flag, parse_name


def effect_needing_consent(name: str) -> str | None:
    """Return what opening an encoder of that name would do that needs the user's consent; None for most names.

    Two effects need it: running code that comes with weights, and sending sentences to a server. A server on this
    machine, or one whose key is set, needs none: setting the key was the consent.

    Raises:
        InputError: the name is malformed.

    Example:
        >>> effect_needing_consent("st:org/model?trust_remote_code=true")
        'runs code that comes with its weights'
        >>> effect_needing_consent("openai:https://example.org/v1#model")
        'sends your sentences to https://example.org/v1/embeddings'
    """
    request = parse_name(name)
    options, _ = request.take(trust_remote_code=flag)
    if options.get("trust_remote_code"):
        return "runs code that comes with its weights"
    if request.scheme == "openai":
        from ensembed.encoders.openai.api_servers import find_server

        server = find_server(request.location.partition("#")[0], request.shown)
        if not (server.nearby or server.key):
            return f"sends your sentences to {server.place}"
    return None
