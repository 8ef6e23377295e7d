"""The paper's experiments, and some beyond them, on any ensemble."""
