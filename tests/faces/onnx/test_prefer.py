"""Sessions that packages make, after `prefer`: whatever they name, onnxruntime's own class is used, and the device runs the nodes."""

import json
import os
import pickle
import subprocess
import sys
import threading

import numpy as np
import onnxruntime
import pytest
from onnxruntime import InferenceSession  # as packages have it: before

import vkdml.onnx
from tests.faces.onnx.support import B, I, T, alone, model, weights
from tests.faces.onnx.test_provider import LENGTHS, NAME, SMALL, quiet, together

pytestmark = pytest.mark.device

CPU, AZURE, CUDA = "CPUExecutionProvider", "AzureExecutionProvider", "CUDAExecutionProvider"
BOTH = [NAME, CPU]
X = {"x": np.random.default_rng(0).standard_normal((T, B, I)).astype(np.float32)}
DATA = model(SMALL, weights()).SerializeToString()


def chosen(*names, policy=None):
    options = quiet()
    devices = {one.ep_name: one for one in onnxruntime.get_ep_devices()}
    for name in names:
        options.add_provider_for_devices([devices[name]], {})
    if policy:
        options.set_provider_selection_policy(policy)
    return options


def on_device(session):
    return len(vkdml.onnx.InferenceSession.assignment(session).on("device"))
