"""The parts of the code whose promises matter most, and the tests near them."""

from __future__ import annotations

from benchmarks.mutants import domain_subjects, server_subjects

SUBJECTS = domain_subjects.SUBJECTS + server_subjects.SUBJECTS
