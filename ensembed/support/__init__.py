"""What several rooms need and what knows nothing of embeddings: files, locks, progress, extras, tables, plots.

This room may import `errors` only.
"""
