"""The values that a graph returns, and the arguments that name its states."""
