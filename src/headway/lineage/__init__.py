"""What came before the transformer, and the comparison: word2vec, ELMo's files, RNNs to transformers on one data set."""
