"""Every kind of flag has a label, by which it is also found."""

from __future__ import annotations

from gonogo.reports.flag_labels import LABELS, kind_of
from gonogo_service.kit.database.states import FlagKind


def test_every_kind_has_a_label_that_names_it() -> None:
    assert list(LABELS) == list(FlagKind)
    for kind, label in LABELS.items():
        assert kind_of(kind) == kind_of(label) == kind_of(label.lower()) == kind
    assert kind_of("flakey") == "flakey"
