"""What every room needs and what knows nothing of embeddings: files, locks, progress, extras, tables, plots.

It may import `errors` only.
"""
