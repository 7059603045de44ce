"""How much speech is in each recording of a folder, with Silero VAD, on all devices at once: a Dask worker or a Ray actor a
device.

    python examples/many.py recordings/                                                 on this machine, with Dask
    python examples/many.py recordings/ --on ray                                        with Ray
    python examples/many.py recordings/ --scheduler tcp://host:8786                     on the workers of a cluster
    python examples/many.py recordings/ --on ray --scheduler host:6379

Needs: vkdml with its extra examples, for Ray also ray; pip install --no-deps silero-vad==6.2.3 (MIT). docs/many.md says more.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from logging import WARNING
from pathlib import Path
from typing import Any

import speech
import voice_activity
from installed import file_in_package

import vkdml
from vkdml.onnx import InferenceSession

Score = dict[str, Any]
RESOURCE = "vulkan"  # what Ray counts, which does not know of Vulkan's devices


def score(session: InferenceSession, name: str, data: bytes) -> Score:
    """The result for a recording. Runs in another process, on the device that the process's VKDML_DEVICE names."""
    found = voice_activity.probabilities(session, speech.read(data))
    return {"recording": name, "chunks": len(found), "speech": float((found > 0.5).mean()), "device": session.device.info.name,
            "process": os.getpid()}


def devices() -> list[int]:
    """The indices of the GPUs, or else of the default device alone."""
    gpus = [info.index for info in vkdml.Device.enumerate() if not info.is_cpu]
    return gpus or [vkdml.Device().info.index]


def with_dask(session: InferenceSession, recordings: Sequence[Path], scheduler: str | None) -> list[Score]:
    from distributed import Client

    with nullcontext(scheduler) if scheduler else dask_cluster() as cluster, Client(cluster) as client:
        for module in (speech, voice_activity):
            client.upload_file(module.__file__)
        sent = client.scatter(session, broadcast=True)  # the model's bytes; each worker makes its own session of them, once
        scores: list[Score] = client.gather(
            [client.submit(score, sent, path.name, path.read_bytes(), pure=False) for path in recordings])
        return scores


def dask_cluster() -> Any:
    """A process for each device of this machine."""
    from distributed import Nanny, Scheduler, SpecCluster

    workers = {index: {"cls": Nanny, "options": {"nthreads": 1, "env": {"VKDML_DEVICE": str(device)}, "silence_logs": WARNING}}
               for index, device in enumerate(devices())}
    scheduler = {"cls": Scheduler, "options": {"dashboard_address": None, "host": "127.0.0.1"}}
    return SpecCluster(workers, scheduler, silence_logs=WARNING)


class Scorer:
    """An actor of Ray's. What it was sent becomes a session of its own, once."""

    def __init__(self, session: InferenceSession) -> None:
        self._session = session

    def score(self, name: str, data: bytes) -> Score:
        return score(self._session, name, data)


def with_ray(session: InferenceSession, recordings: Sequence[Path], scheduler: str | None) -> list[Score]:
    """An actor takes one of Ray's resources named vulkan, of which a cluster's nodes say that they have one a device."""
    import ray
    from ray.util import ActorPool

    here = [] if scheduler else devices()
    code = {"working_dir": str(Path(__file__).parent)}  # of speech and voice_activity
    # Left to itself, Ray joins a cluster that runs or ran on this machine
    ray.init(scheduler or "local", runtime_env=code, log_to_driver=False, resources={RESOURCE: len(here)} if here else None)
    try:
        environments: list[dict[str, str]] = [{"VKDML_DEVICE": str(device)} for device in here]
        environments = environments or [{}] * int(ray.cluster_resources().get(RESOURCE, 0))
        if not environments:
            raise SystemExit(f"no node of the cluster has the resource {RESOURCE}: docs/many.md says how to start one")
        actor, sent = ray.remote(num_cpus=0, resources={RESOURCE: 1})(Scorer), ray.put(session)
        scorers = ActorPool([actor.options(runtime_env={"env_vars": variables}).remote(sent) for variables in environments])
        return list(scorers.map(lambda scorer, path: scorer.score.remote(path.name, path.read_bytes()), recordings))
    finally:
        ray.shutdown()


WITH = {"dask": with_dask, "ray": with_ray}


def main(arguments: list[str] | None = None) -> list[Score]:
    parser = argparse.ArgumentParser(description="Finds speech in recordings, on all Vulkan devices at once.")
    parser.add_argument("folder", type=Path, help="with 16-bit WAV files")
    parser.add_argument("--on", choices=WITH, default="dask", help="what passes the recordings on")
    parser.add_argument("--scheduler", metavar="ADDRESS", help="of a cluster; by default, a process for each device here")
    chosen = parser.parse_args(arguments)
    recordings = speech.wav_files(chosen.folder)
    session = InferenceSession(file_in_package(*voice_activity.MODEL).read_bytes())
    scores = WITH[chosen.on](session, recordings, chosen.scheduler)
    for found in scores:
        print(f"{found['recording']}: {found['speech']:4.0%} of {found['chunks']} chunks are speech ({found['device']})")
    return scores


if __name__ == "__main__":
    main()
