"""Numbers without sentences: row-aligned matrices, moments, eigenproblems, and their GPU versions.

It may import `support` and `errors`.
"""
