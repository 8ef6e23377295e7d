"""What one would write in ten lines: FastAPI and sentence-transformers, a request at a time.

python -m benchmarks.load_peer PORT FOLDER
"""

from __future__ import annotations

import base64
import sys
from pathlib import Path
from typing import Any

from benchmarks.st_peer import open_peer


def main(port: int, folder: Path) -> None:
    """Serve until it is told to stop."""
    import uvicorn
    from fastapi import Body, FastAPI

    encode = open_peer(folder)

    def embeddings(body: dict[str, Any] = Body()) -> dict[str, Any]:  # noqa: B008 - FastAPI's own way
        vector = encode([body["input"]], 1)[0]
        data = {"object": "embedding", "index": 0, "embedding": base64.b64encode(vector.tobytes()).decode()}
        return {"object": "list", "data": [data], "model": body["model"]}

    app = FastAPI()
    app.post("/v1/embeddings")(embeddings)
    uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
