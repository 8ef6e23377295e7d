"""The HTTP server of a model: OpenAI's API, search and a page. May import `search`, `paper` and all below them."""

from ensembed.support.extras import import_extra

for _module in ("starlette", "pydantic", "prometheus_client", "uvicorn"):
    import_extra(_module, "serve", "the server")

from ensembed.serve.app import create_app  # noqa: E402 - what it imports may be missing
from ensembed.serve.settings import Settings  # noqa: E402 - after the check

__all__ = ["Settings", "create_app"]
