"""Everything that downloads: package registries, the Hugging Face hub and plain URLs.

One catalogue (`catalog.json`) pins encoders and data sets by their hashes. Downloads are checked, resumed and moved
into place atomically; archives are read, never run. This room may import `support` and `errors`.
"""
