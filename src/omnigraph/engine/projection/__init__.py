"""Projection: grouping, ordering, distinct, skip and limit over matched rows."""
