"""The `__manifest` dataset: records, and the compare-and-swap that publishes commits."""
