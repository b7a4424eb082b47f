"""BERT and ERNIE for one device. They know nothing of devices, loops or files."""
