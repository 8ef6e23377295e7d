"""Servers that speak OpenAI's embeddings API."""
