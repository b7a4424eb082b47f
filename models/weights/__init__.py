"""Weights in other formats: Hugging Face, PaddleNLP, Google's TensorFlow checkpoints."""
