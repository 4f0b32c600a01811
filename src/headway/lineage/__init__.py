"""What came before the transformer (word2vec, ELMo's files), and the comparison of RNNs and transformers on your data."""
