"""Questions of our own and the tables that answer them. Not in the wheel: run them from a clone."""
