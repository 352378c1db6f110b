"""Mutations: insert, update and delete statements of the query language."""
