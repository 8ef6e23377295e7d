"""ParaNMT: averaged word and character-trigram vectors (Wieting and Gimpel 2018)."""
