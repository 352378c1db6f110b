"""Lance tables: detached versions, fragments, index segments."""
