"""What several rooms need and what knows nothing of embeddings. This room may import `errors` only."""
