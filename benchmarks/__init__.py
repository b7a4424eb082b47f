"""Comparisons with published figures and with peers, one command each, JSON out."""
