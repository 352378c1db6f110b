"""Bulk data on Spark: where its sessions come from, and graphs as a data source."""
