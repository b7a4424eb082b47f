"""Reading comprehension: files of questions, windows of text, rows, answers and scores.

``read_questions`` → ``open_features`` → ``SquadData`` → an engine; then ``window_logits`` →
``find_answers`` → ``score``.
"""
