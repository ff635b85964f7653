"""Activations of the list ``resnet-50`` against the tensors that autograd keeps in ResNet-50 as torchvision builds it, to the byte."""

from __future__ import annotations

import pytest
import torch
from blocks import saved_bytes
from torch import nn
from torch.nn import functional

from ironlaw import roofline

pytestmark = pytest.mark.torch
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))  # width, blocks, stride of the first


class Bottleneck(nn.Module):
    """torchvision.models.resnet.Bottleneck: 1 x 1, 3 x 3 with the stride, 1 x 1; ReLU in place."""

    def __init__(self, inputs: int, width: int, stride: int, first: bool) -> None:
        super().__init__()
        outputs = 4 * width
        self.conv1, self.norm1 = nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = shortcut if first else nn.Identity()

    def forward(self, x):
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        out += self.shortcut(x)
        return self.relu(out)


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for width, blocks, stride in STAGES:
        for block in range(blocks):
            layers.append(Bottleneck(inputs, width, stride if block == 0 else 1, block == 0))
            inputs = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


class Loss(nn.Module):
    """Cross entropy of a network over images."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images, classes):
        return functional.cross_entropy(self.network(images), classes)


def test_resnet_50_keeps_the_outputs_of_the_list():
    model = Loss(resnet50())
    assert sum(parameter.numel() for parameter in model.parameters()) == 25_557_032
    one, two = (saved_bytes(model, torch.zeros(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long)) for batch in (1, 2))
    found = roofline(census="resnet-50", on="v100-sxm-32gb", dtype="fp32")
    target = 8  # the class of an image, in int64, which the loss keeps
    assert two - one == float(found["activations of an image of 224 x 224"]) + target
