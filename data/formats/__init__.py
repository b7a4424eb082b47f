"""Readers of ready-masked pretraining files that other projects made."""
