"""Mutations: statements of the query language that insert, update and delete."""
