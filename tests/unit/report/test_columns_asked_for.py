"""Which columns `--columns` names."""

from ampsim.report.table import COLUMNS, require_columns


def test_all_beside_another_column_is_all():
    assert require_columns("all, schedule") == require_columns("all") == list(COLUMNS)
