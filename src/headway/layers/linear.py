"""Room: layers. torch's Linear and Embedding, which draw no first values for memory they do not have yet: a model whose
weights are about to be loaded is built in no time."""

from torch import nn


class Linear(nn.Linear):
    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class TokenTable(nn.Embedding):
    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
