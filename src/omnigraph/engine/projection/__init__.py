"""Projection: grouping, ordering, distinct and limit over matched rows."""
