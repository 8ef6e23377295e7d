"""The experiments: what is tried on a laboratory, and what it finds."""
