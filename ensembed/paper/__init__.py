"""The paper's experiments, their tables and the report, on any ensemble.

It may import `sts`, `models` and everything below them.
"""
