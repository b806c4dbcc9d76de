"""JUnit: a report as the XML that CI systems read. One case per crash; one more for what was seen without any."""

from __future__ import annotations

import xml.etree.ElementTree as xml

from buoy.testing.crashtest.report import Crash, Finding, Report


def junit(report: Report) -> str:
    suite = xml.Element("testsuite", name=f"crashtest {report.workflow}", time=f"{report.real_s:.3f}")
    by_point: dict[str, list[Finding]] = {}
    for finding in report.findings:
        for point in finding.points or ("",):
            by_point.setdefault(point, []).append(finding)
    cases = [_case(suite, report, crash, by_point.pop(crash.label, [])) for crash in report.crashes]
    rest = list({finding.what: finding for found in by_point.values() for finding in found}.values())
    cases.append(_named(suite, report, "without a crash", 0.0, rest))
    suite.set("tests", str(len(cases)))
    suite.set("failures", str(sum(cases)))
    return xml.tostring(suite, encoding="unicode", xml_declaration=True)


def _case(suite: xml.Element, report: Report, crash: Crash, findings: list[Finding]) -> bool:
    return _named(suite, report, crash.label, crash.real_ms / 1000, findings)


def _named(suite: xml.Element, report: Report, name: str, took_s: float, findings: list[Finding]) -> bool:
    """Adds a case. Whether it is a failure."""
    case = xml.SubElement(suite, "testcase", classname=report.workflow, name=name, time=f"{took_s:.3f}")
    if findings:
        failure = xml.SubElement(case, "failure", type=findings[0].kind, message=findings[0].title)
        failure.text = "\n".join(f"{each.title}: {each.what}\nWhat to do: {each.advice}" for each in findings)
    return bool(findings)
