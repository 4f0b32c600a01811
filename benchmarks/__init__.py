"""Side by side against peers, one command each; every figure is a ratio inside one run."""
