"""Recipes in YAML, their schema, and the one place that reads them."""
