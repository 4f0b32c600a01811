"""The detector shape (DETR, Carion et al. 2020): an encoder over the feature map of an image, and a decoder whose
queries each find one object, or none. All queries are computed at once; they attend to each other, so that no object is
found twice.

With anchors, queries are boxes: learned ones, or the best of the boxes that a head proposes for every vector of the
encoder; every layer corrects them. Loss and matching are the task's.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from headway.layers import masks
from headway.layers.boxes import BoxPrior, overlaps, to_corners
from headway.layers.embedded import Embedded
from headway.layers.feature_map import sine_vectors
from headway.layers.linear import Linear, TokenTable
from headway.layers.masks import NO_MASK, Mask
from headway.layers.positions import positions_of
from headway.models.config import AnchorConfig, DetectorConfig, HeadConfig, ObjectDecoderConfig
from headway.models.encoder import Encoder
from headway.models.heads import MLP, DetectHead
from headway.models.outputs import DetectionOutput, Detections
from headway.models.protocol import Inputs, Model, Part
from headway.models.stack import Stack

EDGE = 1e-3  # boxes that are queries stay this far from 0 and 1, where the inverse sigmoid ends
SCALE, TEMPERATURE = 40 * torch.pi, 10_000.0  # of the sinusoids of a box
CHOSEN_FROM = 4  # proposals, for each query, that the queries are chosen from
SAME_OBJECT = 0.6  # overlap from which two proposals are of one object
REACH = 3.5  # a proposal's side is at most e^3.5 times the first one


@dataclass(frozen=True)
class Denoising:
    """Targets with noise, as further queries of a training batch. Queries of one group attend to each other only."""

    boxes: Tensor  # (batch, n, 4)
    labels: Tensor  # (batch, n)
    groups: Tensor  # (batch, n), from 1; -1: padding


class Detector(Model):
    def __init__(self, config: DetectorConfig):
        super().__init__()
        self.config = config
        self.encoder = Encoder(config.encoder)
        self.decoder = ObjectDecoder(config.decoder)

    @property
    def parts(self) -> list[Part]:
        return [Part("encoder", "encoder.", self.encoder), Part("decoder", "decoder.", self.decoder)]

    @property
    def inputs(self) -> Inputs:
        return self.encoder.inputs

    @property
    def image_channels(self) -> int | None:
        return self.encoder.image_channels

    @property
    def head_config(self) -> HeadConfig:
        return self.config.decoder.head

    @property
    def vocab_size(self) -> None:
        return None

    @property
    def token_table(self) -> None:
        return None

    def forward(
        self,
        inputs: Tensor,  # images (batch, channel, height, width)
        *,
        padding_mask: Tensor | None = None,  # (batch, height, width), nonzero = not padding
        denoising_boxes: Tensor | None = None,  # as in Denoising
        denoising_labels: Tensor | None = None,
        denoising_groups: Tensor | None = None,
    ) -> DetectionOutput:
        source = self.encoder.embed(inputs, padding_mask=padding_mask)
        memory = self.encoder.stack(source)
        denoising = None
        if denoising_boxes is not None and denoising_labels is not None and denoising_groups is not None:
            denoising = Denoising(denoising_boxes, denoising_labels, denoising_groups)
        return self.decoder(memory, source, denoising=denoising)


class ObjectDecoder(nn.Module):
    def __init__(self, config: ObjectDecoderConfig):
        super().__init__()
        self.config, anchors = config, config.anchors
        width, heads = config.stack.block.width, config.stack.block.attention.heads
        self.stack = Stack(config.stack)
        self.head = DetectHead(width, config.head)
        learned = anchors is None or not anchors.proposals
        self.queries = TokenTable(config.queries, width) if learned else None
        self.anchors = None if anchors is None else Anchors(config.queries, width, anchors, labels=config.head.labels)
        with_prior = anchors is not None and anchors.prior
        self.priors = nn.ModuleList(BoxPrior(heads) for _ in range(config.stack.layers)) if with_prior else None
        self.proposals = DetectHead(width, config.head) if anchors is not None and anchors.proposals else None
        self.content = Linear(width, width) if self.proposals is not None else None

    def forward(self, memory: Tensor, source: Embedded, *, denoising: Denoising | None = None) -> DetectionOutput:
        """`memory` is the encoder's output (batch, length, width) for `source`."""
        x, boxes, proposals = self.first_queries(memory, source)
        count, mask = x.shape[1], None
        if denoising is not None:
            assert self.anchors is not None and boxes is not None
            x = torch.cat([x, self.anchors.label_vectors(denoising.labels)], dim=1)
            boxes = torch.cat([boxes, denoising.boxes], dim=1).clamp(EDGE, 1 - EDGE)
            mask = group_mask(count, denoising.groups)
        contexts = self.stack.contexts(
            positions_of(x.shape[1], device=x.device),
            dtype=x.dtype,
            mask=mask,
            memory=memory,
            memory_mask=NO_MASK if source.padding_mask is None else masks.padding(source.padding_mask),
            memory_positions=source.query_key_positions,
        )
        found = []
        for number, block in enumerate(self.stack.blocks):
            context = replace(contexts[number], query_key_positions=self.query_positions(boxes))
            if self.priors is not None and boxes is not None and source.grid is not None:
                context = replace(context, memory_bias=self.priors[number](boxes, source.grid))
            x = block(x, context)
            hidden = self.stack.finish(x, None)
            result = self.detect(hidden, boxes)
            found.append(result)
            if boxes is not None and self.config.anchors is not None and self.config.anchors.refine:
                boxes = result.boxes.detach().clamp(EDGE, 1 - EDGE)
        own = [Detections(each.logits[:, :count], each.boxes[:, :count]) for each in found]
        noised = [Detections(each.logits[:, count:], each.boxes[:, count:]) for each in found]
        return DetectionOutput(
            hidden[:, :count],
            logits=own[-1].logits,
            memory=memory,
            boxes=own[-1].boxes,
            auxiliary=own[:-1],
            proposals=proposals,
            denoised=noised if denoising is not None else [],
        )

    def first_queries(self, memory: Tensor, source: Embedded) -> tuple[Tensor, Tensor | None, Detections | None]:
        """Vectors (batch, query, width), their boxes if they are anchors, and the proposals they are chosen from."""
        if self.anchors is None:  # DETR: zeros, with learned positions
            assert self.queries is not None
            return torch.zeros_like(self.queries.weight).expand(len(memory), -1, -1), None, None
        if self.proposals is None or self.content is None:
            assert self.queries is not None
            boxes = self.anchors.boxes()[None].expand(len(memory), -1, -1)
            return self.queries.weight.expand(len(memory), -1, -1), boxes, None
        proposals = self.propose(memory, source)
        scores = proposals.logits.detach().amax(-1)  # (batch, length)
        if source.padding_mask is not None:
            scores = scores.masked_fill(~source.padding_mask, -torch.inf)
        best = distinct(scores, proposals.boxes.detach(), self.config.queries)[..., None]  # (batch, query, 1)
        boxes = proposals.boxes.detach().gather(1, best.expand(-1, -1, 4)).clamp(EDGE, 1 - EDGE)
        chosen = memory.detach().gather(1, best.expand(-1, -1, memory.shape[-1]))
        return self.content(chosen), boxes, proposals

    def propose(self, memory: Tensor, source: Embedded) -> Detections:
        """A class and a box for every vector of the encoder: from its own place, so far left, up, right and down."""
        assert self.proposals is not None and self.config.anchors is not None and source.grid is not None
        reach = self.proposals.boxes(memory).clamp(-REACH, REACH).exp() * (self.config.anchors.size / 2)
        centre = source.grid.centres()  # (batch or 1, length, 2)
        low, high = centre - reach[..., :2], centre + reach[..., 2:]
        return Detections(self.proposals.classes(memory), torch.cat([(low + high) / 2, high - low], dim=-1))

    def query_positions(self, boxes: Tensor | None) -> Tensor:
        """(batch or 1, query, width)"""
        if self.anchors is not None and boxes is not None:
            return self.anchors.positions(boxes)
        assert self.queries is not None
        return self.queries.weight[None]

    def detect(self, hidden: Tensor, boxes: Tensor | None) -> Detections:
        change = self.head.boxes(hidden)
        found = change if boxes is None else boxes.logit() + change
        return Detections(self.head.classes(hidden), found.sigmoid())


class Anchors(nn.Module):
    """What queries that are boxes need: their positions from the boxes, vectors for the labels of noised targets, and
    learned boxes if there are no proposals."""

    def __init__(self, count: int, width: int, config: AnchorConfig, *, labels: int):
        super().__init__()
        self.width = width
        self.position = MLP(width, width, layers=2)
        self.join = Linear(2 * width, width)
        self.labels = TokenTable(labels, width) if config.denoising else None
        self.learned = None if config.proposals else nn.Parameter(_spread(count, config.size))

    def positions(self, boxes: Tensor) -> Tensor:  # (batch, query, 4) → (batch, query, width)
        sines = sine_vectors(boxes, self.width // 2, scale=SCALE, temperature=TEMPERATURE).flatten(-2)
        return self.position(self.join(sines))

    def boxes(self) -> Tensor:  # (query, 4)
        assert self.learned is not None
        return self.learned.sigmoid()

    def label_vectors(self, labels: Tensor) -> Tensor:
        assert self.labels is not None
        return self.labels(labels)


def distinct(scores: Tensor, boxes: Tensor, count: int) -> Tensor:
    """Indices (batch, count) of the best proposals, of scores (batch, n) and boxes (batch, n, 4). Those that overlap a
    better one are taken last: an object has several good proposals, and should not have several queries."""
    top = scores.topk(min(CHOSEN_FROM * count, scores.shape[1]), dim=1)  # the best first
    corners = to_corners(boxes.gather(1, top.indices[..., None].expand(-1, -1, 4)))  # (batch, m, 4)
    iou = overlaps(corners[:, :, None], corners[:, None])[0]  # (batch, m, m)
    repeated = (iou.triu(1) > SAME_OBJECT).any(1)  # (batch, m)
    rank = torch.arange(iou.shape[1], device=iou.device) + repeated * iou.shape[1]
    return top.indices.gather(1, rank.topk(min(count, iou.shape[1]), dim=1, largest=False).indices)


def _spread(count: int, size: float) -> Tensor:
    """Inverse sigmoids of boxes whose centres cover the picture evenly (the R2 sequence)."""
    steps = torch.arange(1, count + 1)[:, None] * torch.tensor([0.7548776662466927, 0.5698402909980532])
    return torch.cat([steps % 1.0, torch.full((count, 2), size)], dim=-1).clamp(EDGE, 1 - EDGE).logit()


def group_mask(count: int, groups: Tensor) -> Mask:
    """Queries of one group attend to each other only; the first `count` are group 0. `groups` is (batch, n)."""
    group = torch.cat([groups.new_zeros(len(groups), count), groups], dim=1)
    return Mask((group[:, :, None] == group[:, None, :])[:, None])  # (batch, 1, query, query)
