"""How far measured times are from the possible: fractions, and a plain word where no floor is known.

Takes rows that carry `floor_s` (see `lab.floor_columns`) in a frame; measures nothing.
"""

from __future__ import annotations

import pandas as pd

from interleave.report.printed import spoken

REACHED = "of the possible [%]"


def known(rows: pd.DataFrame) -> bool:
    """Whether any of these rows has a floor."""
    return "floor_s" in rows and bool(rows["floor_s"].notna().any())


def reached(floor_s: pd.Series, measured_s: pd.Series) -> pd.Series:
    """Per cent of the possible; missing where the floor is."""
    return 100 * floor_s.astype(float) / measured_s


def ceilings_told(rows: pd.DataFrame) -> str:
    """The ceilings behind the floors, or that nothing has measured them."""
    if not known(rows):
        return (
            "No ceilings were measured for the machine that these numbers come from (interleave machine does it), "
            "so no floor is drawn and no fraction of the possible is given."
        )
    first = rows[rows["floor_s"].notna() & rows["read_bytes_per_s"].notna()].iloc[0]
    read, gemm = float(first["read_bytes_per_s"]) / 1e9, float(first["gemm_flops_per_s"]) / 1e9
    return f"Floors: at {spoken(read, 3)} GB/s and {spoken(gemm, 3)} GFLOP/s, both measured on this machine."
