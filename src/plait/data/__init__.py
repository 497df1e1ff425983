"""Data: text, pairs, chats and labels as batches; order, masks and noise are functions of the seed and the step."""
