"""What example promises."""

import pytest
import torch
from genbench_example import example

import genbench


def test_keeps_the_contract(check_measure):
    check_measure("example").assert_passed()


def test_value_in_closed_form():
    model = torch.nn.Linear(2, 2, bias=False)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    subject = genbench.Subject.from_module(model, data=(torch.zeros(20, 2), torch.zeros(20)))
    assert example(subject) == pytest.approx((30 / 4) ** 0.5)
