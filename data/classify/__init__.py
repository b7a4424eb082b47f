"""Classification: tables of texts and labels, tokens, rows and metrics."""
