"""Everything that downloads: package registries, the Hugging Face hub and plain URLs, checked by hash and resumable.

It may import `support` and `errors`.
"""
