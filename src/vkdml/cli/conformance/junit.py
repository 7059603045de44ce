"""JUnit's XML, which services that run tests can show: a suite for each device."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, tostring

from .report import first_line
from .suite import Run

_NOT_IN_XML = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")


def of(runs: Sequence[Run]) -> bytes:
    suites = Element("testsuites", name="vkdml conformance")
    for run in runs:
        _add(suites, run)
    return tostring(suites, "utf-8", xml_declaration=True)


def _add(suites: Element, run: Run) -> None:
    errors = int(bool(run.ended))
    suite = SubElement(suites, "testsuite", name=f"{run.device['index']}: {run.device['name']} ({run.device['driver']})",
                       tests=str(len(run.tests) + errors), failures=str(len(run.failed)), errors=str(errors),
                       skipped=str(len(run.skipped)), time=f"{run.seconds:.3f}")
    for test in run.tests:
        place, _, name = test["test"].partition("::")
        case = SubElement(suite, "testcase", classname=place.removesuffix(".py").replace("/", "."), name=name,
                          time=f"{test.get('seconds', 0):.3f}")
        if test in run.failed:
            _say(case, "failure", first_line(test), test.get("failure", ""))
        elif test["outcome"] == "skipped":
            _say(case, "skipped", first_line(test))
    if run.ended:
        _say(SubElement(suite, "testcase", classname="vkdml.conformance", name="the process"), "error", run.ended, run.output)


def _say(case: Element, what: str, message: str, text: str = "") -> None:
    said = SubElement(case, what, message=_NOT_IN_XML.sub("?", message))
    said.text = _NOT_IN_XML.sub("?", text)
