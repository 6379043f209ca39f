"""Test vectors: questions with their answers, for backends that no Python can call."""

from guarded_moments.oracle.conformance.vectors.answers import read_answers
from guarded_moments.oracle.conformance.vectors.check import Wrong, check
from guarded_moments.oracle.conformance.vectors.files import read_vectors, write_vectors
from guarded_moments.oracle.conformance.vectors.generate import generate
from guarded_moments.oracle.conformance.vectors.group import KINDS, Group, VectorError

__all__ = [
    "KINDS",
    "Group",
    "VectorError",
    "Wrong",
    "check",
    "generate",
    "read_answers",
    "read_vectors",
    "write_vectors",
]
