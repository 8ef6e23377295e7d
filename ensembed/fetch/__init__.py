"""Everything that downloads: registries, the Hugging Face hub and URLs. May import `support` and `errors`."""
