"""Reading comprehension: files of questions, windows of text, rows, answers and scores."""
