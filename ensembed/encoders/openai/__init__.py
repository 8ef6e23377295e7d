"""Encoders behind OpenAI-compatible servers. May import httpx (extra `openai`) and the contract of encoders."""
