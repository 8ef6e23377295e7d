"""Everything that downloads: registries, the Hugging Face hub and URLs. It may import `support` and `errors`."""
