"""Numbers of a device, found where its file has none: from published rows, or from a machine."""

from ampsim.calibration.fit import Calibration, Point, Table, calibrate, read_table_file

__all__ = ["Calibration", "Point", "Table", "calibrate", "read_table_file"]
