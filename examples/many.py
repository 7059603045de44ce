"""How much speech is in each recording of a folder, with Silero VAD, on all devices at once: a Dask worker a device.

    python examples/many.py recordings/
    python examples/many.py recordings/ --scheduler tcp://host:8786      on the workers of a cluster

Needs: pip install 'vkdml[examples]'; pip install --no-deps silero-vad==6.2.3 (MIT). docs/many.md says more.
"""

from __future__ import annotations

import argparse
import os
from contextlib import nullcontext
from logging import WARNING
from pathlib import Path
from typing import Any

import speech
import voice_activity
from distributed import Client, Nanny, Scheduler, SpecCluster

import vkdml
from vkdml.demo import file_in_package
from vkdml.onnx import InferenceSession


def score(session: InferenceSession, name: str, data: bytes) -> dict[str, Any]:
    """What is told of a recording. Runs in a worker, on the device that the worker's VKDML_DEVICE names."""
    found = voice_activity.probabilities(session, speech.read(data))
    return {"recording": name, "chunks": len(found), "speech": float((found > 0.5).mean()), "device": session.device.info.name,
            "process": os.getpid()}


def devices() -> list[int]:
    """The indices of the GPUs, or else of the default device alone."""
    gpus = [info.index for info in vkdml.Device.enumerate() if not info.is_cpu]
    return gpus or [vkdml.Device().info.index]


def local_cluster() -> SpecCluster:
    """A process for each device of this machine."""
    workers = {index: {"cls": Nanny, "options": {"nthreads": 1, "env": {"VKDML_DEVICE": str(device)}, "silence_logs": WARNING}}
               for index, device in enumerate(devices())}
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "host": "127.0.0.1"}}
    return SpecCluster(workers, scheduler, silence_logs=WARNING)


def main(arguments: list[str] | None = None) -> list[dict[str, Any]]:
    parser = argparse.ArgumentParser(description="Finds speech in recordings, on all Vulkan devices at once.")
    parser.add_argument("folder", type=Path, help="with 16-bit WAV files")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster; by default, a worker for each device here")
    chosen = parser.parse_args(arguments)
    recordings = sorted(chosen.folder.glob("*.wav"))
    if not recordings:
        raise SystemExit(f"{chosen.folder}: no .wav file")
    session = InferenceSession(file_in_package("silero_vad", "6.2.3", "data/silero_vad.onnx").read_bytes())
    with nullcontext(chosen.scheduler) if chosen.scheduler else local_cluster() as cluster, Client(cluster) as client:
        for module in (speech, voice_activity):
            client.upload_file(module.__file__)
        sent = client.scatter(session, broadcast=True)  # the model's bytes; each worker makes its own session of them, once
        scores: list[dict[str, Any]] = client.gather(
            [client.submit(score, sent, path.name, path.read_bytes(), pure=False) for path in recordings])
    for found in scores:
        print(f"{found['recording']}: {found['speech']:4.0%} of {found['chunks']} chunks are speech ({found['device']})")
    return scores


if __name__ == "__main__":
    main()
