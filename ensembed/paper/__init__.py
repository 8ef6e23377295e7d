"""The paper's experiments, their tables and the report, on any ensemble."""
