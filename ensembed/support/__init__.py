"""Tools that several rooms need and that know nothing of embeddings. May import `errors` only."""
