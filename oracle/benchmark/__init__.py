"""Codecs measured: bits and times, all in one run, beside what was published about the scheme."""

from guarded_moments.oracle.benchmark.measure import Benchmark, Setting, measure
from guarded_moments.oracle.benchmark.page import as_json, markdown
from guarded_moments.oracle.benchmark.sweep import SWEEPS, Point, sweep

__all__ = ["SWEEPS", "Benchmark", "Point", "Setting", "as_json", "markdown", "measure", "sweep"]
