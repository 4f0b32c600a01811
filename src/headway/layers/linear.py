"""torch's Linear and Embedding, which draw no first values for memory they do not have yet: a model whose
weights are about to be loaded is built in no time.

`table` is what `F.linear` multiplies with: the weight, or what stands for it where it is stored another way.
"""

from torch import Tensor, nn


class Linear(nn.Linear):
    @property
    def table(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()


class TokenTable(nn.Embedding):
    @property
    def table(self) -> Tensor:
        return self.weight

    def reset_parameters(self) -> None:
        if not self.weight.is_meta:
            super().reset_parameters()
