"""Text to batches, in numpy; nothing here knows of Paddle."""
