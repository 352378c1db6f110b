"""Full-text and vector search: indexes, distances, rank fusion, embeddings."""
