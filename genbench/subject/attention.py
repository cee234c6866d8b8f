"""Library modules rewritten in parts that folding and path norms understand, computing the same function.

Attention as libraries write it hides its weights in one stacked tensor or in a functional call that cannot be
traced. Here its four projections are linear layers, and what is left is one call of
`scaled_dot_product_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from genbench.errors import NotApplicable

__all__ = ["Attention", "AttentionPool", "with_plain_parts"]


class Attention(nn.Module):
    """Multi-head attention of batches of tokens, (n, tokens, width) each."""

    def __init__(self, layers: Sequence[nn.Linear], heads: int, batch_first: bool) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = layers
        self.heads = heads
        self.batch_first = batch_first

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        need_weights: bool = False,
        attn_mask: Tensor | None = None,
    ) -> tuple[Tensor, None]:
        """As `torch.nn.MultiheadAttention`, without the attention weights."""
        if need_weights or attn_mask is not None:
            raise NotApplicable("attention with a mask, or whose weights are used, is not known here")
        if not self.batch_first:
            query, key, value = (tokens.transpose(0, 1) for tokens in (query, key, value))
        q, k, v = (
            layer(tokens).unflatten(-1, (self.heads, -1)).transpose(-3, -2)
            for layer, tokens in ((self.query, query), (self.key, key), (self.value, value))
        )
        mixed = scaled_dot_product_attention(q, k, v).transpose(-3, -2).flatten(-2)
        out = self.out(mixed)
        return (out if self.batch_first else out.transpose(0, 1)), None


class AttentionPool(nn.Module):
    """CLIP's pooling: the mean token asks all tokens; (n, channels, h, w) -> (n, features)."""

    def __init__(self, attention: Attention, positional_embedding: nn.Parameter) -> None:
        super().__init__()
        self.attention = attention
        self.positional_embedding = positional_embedding

    def forward(self, images: Tensor) -> Tensor:
        """Pooled features."""
        tokens = images.flatten(2).transpose(1, 2)
        tokens = torch.cat([tokens.mean(1, keepdim=True), tokens], 1) + self.positional_embedding
        pooled, _ = self.attention(tokens[:, :1], tokens, tokens)
        features: Tensor = pooled[:, 0]
        return features


def with_plain_parts(model: nn.Module) -> nn.Module:
    """`model` with the modules named above replaced, in place where it has parents; the same function."""
    replacement = _plain(model)
    if replacement is not model:
        return replacement
    for name, child in model.named_children():
        setattr(model, name, with_plain_parts(child))
    return model


def _plain(part: nn.Module) -> nn.Module:
    if isinstance(part, nn.MultiheadAttention):
        return _from_torch(part)
    home = type(part).__module__.partition(".")[0]
    if home == "open_clip" and type(part).__name__ == "AttentionPool2d":
        layers = [getattr(part, f"{name}_proj") for name in "qkvc"]
        attention = Attention(layers, int(part.num_heads), batch_first=True)  # type: ignore[arg-type]
        return AttentionPool(attention, part.positional_embedding)  # type: ignore[arg-type]
    if home == "timm" and isinstance(part, nn.BatchNorm2d) and hasattr(part, "act"):
        return nn.Sequential(_batch_norm(part), part.drop, part.act)  # type: ignore[arg-type]
    return part


def _from_torch(part: nn.MultiheadAttention) -> Attention:
    if part.in_proj_weight is None or part.bias_k is not None or part.add_zero_attn:
        raise NotApplicable("attention with keys of another width or with added tokens is not known here")
    biases = [None] * 3 if part.in_proj_bias is None else part.in_proj_bias.chunk(3)
    layers = [_linear(w, b) for w, b in zip(part.in_proj_weight.chunk(3), biases, strict=True)]
    out = _linear(part.out_proj.weight, part.out_proj.bias)
    return Attention([*layers, out], part.num_heads, part.batch_first).eval()


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.detach().clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer


def _batch_norm(part: nn.BatchNorm2d) -> nn.BatchNorm2d:
    """The batch norm of timm's batch norm with an activation in it."""
    norm = nn.BatchNorm2d(part.num_features, part.eps, affine=part.affine, device="meta")
    names = norm.state_dict().keys()
    state = {name: value for name, value in part.state_dict().items() if name in names}
    norm.load_state_dict(state, assign=True)
    return norm.eval()
