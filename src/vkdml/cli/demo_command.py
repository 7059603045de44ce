"""The command `vkdml demo`"""

from __future__ import annotations

import argparse

from tqdm import tqdm

from .. import demo
from ..faces.directml.device import Device
from .argument_types import add_device, add_json, print_json


def add(command: argparse.ArgumentParser) -> None:
    command.add_argument("words", nargs="*", type=_word, default=demo.WORDS, metavar="WORD",
                         help="letters a to z, small or capital; by default, a few words")
    add_device(command)
    add_json(command)


def _word(text: str) -> str:
    word = text.lower()
    if not word or not set(word) <= set(demo.LETTERS):
        raise argparse.ArgumentTypeError(f"{text!r} is not a word of the letters a to z")
    return word


def run(chosen: argparse.Namespace) -> int:
    device = Device(chosen.device)
    with tqdm(total=3, delay=2, disable=None, leave=False) as bar:
        report = demo.say(chosen.words, device, bar)
    (print_json if chosen.json else demo.tell)(report)
    return 0
