"""The Spark data source ``format("omnigraph")``: batch, streaming, changes."""
