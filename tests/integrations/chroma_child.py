"""Reopens a Chroma collection in another process: DATABASE, then a query; prints the result or the error."""

from __future__ import annotations

import json
import sys

import chromadb
from chromadb.config import Settings

import ensembed.integrations.chroma  # noqa: F401 - makes the function known to Chroma

client = chromadb.PersistentClient(sys.argv[1], settings=Settings(anonymized_telemetry=False))
collection = client.get_collection("sentences")
try:
    collection.add(ids=["new"], documents=["a cat sleeps"])
except ValueError as error:
    print(json.dumps({"error": str(error), "count": collection.count()}))
else:
    result = collection.query(query_texts=[sys.argv[2]], n_results=2)
    (vector,) = collection.get(ids=["new"], include=["embeddings"])["embeddings"]
    print(json.dumps({"ids": result["ids"][0], "vector": vector.tolist(), "count": collection.count()}))
