"""The paper's experiments on any ensemble, their tables and the report. May import `sts` and all below it."""
