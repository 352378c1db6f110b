"""Three-way merge of schemas."""
