"""The one training loop and what it needs: optimizers, schedules, checkpoints, metrics."""
