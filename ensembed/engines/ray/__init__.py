"""The engine for many machines. Every worker process imports this first, so it is empty; ray is imported where used."""
