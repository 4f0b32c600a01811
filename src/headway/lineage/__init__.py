"""What came before the transformer (word2vec, ELMo's files), and RNNs and transformers compared on your data."""
