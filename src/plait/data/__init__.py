"""Data: text, pairs, chats and labels as batches, whose order, masking and noise are functions of the seed and the step."""
