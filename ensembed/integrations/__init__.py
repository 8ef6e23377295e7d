"""Integrations, one file and extra per library; only `cli` imports them. May import `search`, `paper` and all below."""
