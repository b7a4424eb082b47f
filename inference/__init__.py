"""From a checkpoint to answers."""
