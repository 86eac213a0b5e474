r"""Several terms of one parameter, and the norms of their sum.

In: the terms of every use of a parameter in a pass.  Out: the same in as few terms as possible;
squared norms of each example's gradient.
Rounding: sums of products are computed in double precision.  A squared norm in which nearly
everything cancels even so is computed again from the row itself; so no norm is too small by more
than the rounding errors that rows have too.
Terms of one kind are joined into one.  An `Outer` and a `Gather`, as of an embedding that is tied
to the head of a language model, have the inner product

    <sum_s l_s r_s^T, sum_t e_{k_t} v_t^T> = sum_st l_s[k_t] <r_s, v_t>.

All other mixtures become rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mmcc.training._ghost_terms import Gather, Outer, Rows, Shape, Term, in_double
from mmcc.training._lengths import squared_lengths

DOUBT = 1e-6
"""A squared norm below this fraction of what it would be without cancellation is computed again.

A sum of n products is accurate to n 2^-53 of that, and so the norm to 1e-4, even with 10^6 of them.
In single precision equal numbers are all rounded the same way: 5e4 of them, most of which
cancelled, have given norms that were 13 % too small.
"""


def joined(terms: Sequence[Term]) -> list[Term]:
    """The same gradients, as terms of different kinds that cannot be joined further."""
    kinds: dict[type[Term], list[Term]] = {}
    for term in terms:
        kinds.setdefault(type(term), []).append(term)
    for alike in kinds.values():
        if len(alike) > 1 and isinstance(alike[0], Outer) and not _all_fit(alike):
            return [_all_rows(terms)]
    found = [alike[0].join(alike[1:]) if len(alike) > 1 else alike[0] for alike in kinds.values()]
    if len(found) == 1:
        return found
    found.sort(key=lambda term: isinstance(term, Gather))
    outer, gather = found[0], found[-1]
    tied = len(found) == 2 and isinstance(outer, Outer) and isinstance(gather, Gather)
    if tied and _sides(outer) == (1, *gather.shape):
        return found
    return [_all_rows(found)]


def _sides(outer: Term) -> Shape:
    assert isinstance(outer, Outer)
    return outer.left.shape[1], outer.left.shape[3], outer.right.shape[3]


def _all_fit(outers: Sequence[Term]) -> bool:
    return len({_sides(outer) for outer in outers}) == 1


def _all_rows(terms: Sequence[Term]) -> Rows:
    first, *others = (term.rows() for term in terms)
    return first.join(others)


def squared_norms(terms: Sequence[Term]) -> Tensor:
    """The squared norm of the sum of joined terms, for each example."""
    alone = len(terms) == 1
    found = terms[0].squares(alone=alone)
    if alone and terms[0].exact:
        return found
    for place, term in enumerate(terms[1:], start=1):
        found = found + term.squares(alone=False)
        for earlier in terms[:place]:
            found = found + 2 * _inner(earlier, term)
    first, *others = (term.sizes() for term in terms)
    sizes = sum(others, start=first)
    found = found.to(sizes.device, sizes.dtype)
    doubtful = found < DOUBT * sizes.square()
    if doubtful.any():
        alive = torch.stack([term.alive() for term in terms]).any(dim=0)
        found = found.masked_fill(doubtful & ~alive, 0.0)
        for member in (doubtful & alive).nonzero().flatten().tolist():
            first, *others = (term.row(member) for term in terms)
            row = sum(others, start=first)
            found[member] = squared_lengths(row.reshape(1, -1), row.dtype)[0]
    return found


def _inner(outer: Term, gather: Term) -> Tensor:
    """The inner products of two terms, for each example."""
    assert isinstance(outer, Outer)
    assert isinstance(gather, Gather)
    left, right = outer.left[:, 0], outer.right[:, 0]
    index = gather.index[:, None].expand(-1, left.shape[1], -1)
    at_places = in_double(left.gather(2, index))
    products = in_double(right) @ in_double(gather.values).mT
    return (at_places * products).sum(dim=(1, 2))
