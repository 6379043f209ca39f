"""What an auditor reads: the facts of an audit as plain data, and one self-contained page made from them.

    audited files -> gatherer (coordinates, tensors, codes) -> facts (plain data: the JSON) -> page

Claimed: the page shows nothing that is not in the facts, and equal facts give equal bytes.
"""

from guarded_moments.oracle.report.difference import difference, require_report
from guarded_moments.oracle.report.facts import Evidence, Run, facts_of, plain
from guarded_moments.oracle.report.gathering import Gatherer
from guarded_moments.oracle.report.page import page
from guarded_moments.oracle.report.schema import report_schema

__all__ = ["Evidence", "Gatherer", "Run", "difference", "facts_of", "page", "plain", "report_schema", "require_report"]
