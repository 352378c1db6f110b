"""Full-text and vector search: indexes, distances, ranking, embeddings."""
