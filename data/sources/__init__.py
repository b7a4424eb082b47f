"""Formats of raw text: how each is cut into documents, and how a document is read."""
