"""The policies page from tiny weights: the shipped notebook, run for real, and its tables from made-up runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from toys.outputs import shown_on

from interleave.report.figures import policies as tell
from interleave.report.figures import policy_plots as draw
from interleave.report.figures import regime_map as regimes
from interleave.report.layout import find_notebook
from interleave.report.runner import run_notebook

ORDERS = ("decode_first", "prefill_first")


def test_the_notebook_becomes_a_page_with_other_choices(out: Path) -> None:
    chosen: dict[str, Any] = {
        "model": "tiny",
        "policies": ["mixed"],
        "orders": ["decode_first"],
        "traces": ["uniform"],
        "loads": [0.5],
        "token_budgets": [64, 512],
        "map_shares": [],
        "map_loads": [0.5],
        "map_requests": 20,
        "num_requests": 8,
        "other_requests": 6,
        "max_rows": 3,
        "ttft_limits": [10.0],
        "gap_limits": [3.0],
        "ride_rows": 2,
        "ride_chunks": [4],
        "repeats": 1,
    }
    result = run_notebook(find_notebook("policies"), overrides=chosen, say=lambda _: None)
    shown = shown_on(result.path)
    assert "not run" in shown  # predictions about policies and loads that were left out stay open
    assert {"step_grows", "fit_error", "fit_steps"} == set(result.provenance["numbers"])


def request(
    policy: str, order: str, budget: int, load: float, gap: float, ttft: float, **more: Any
) -> list[dict[str, Any]]:
    """A run of two requests, one of them long."""
    facts = {
        "trace": "long",
        "share": 0.35,
        "policy": policy,
        "order": order,
        "token_budget": budget,
        "load": load,
    }
    rate = {
        "rate": 1.0,
        "served_rate": 1.0,
        "output_rate": 3.0,
        "gap_p50_s": gap / 2,
        "worst_gap_s": gap,
    }
    return [
        {"kind": "request", **facts, **rate, "prompt_tokens": 96 if long else 2, "long": long,
         "ttft_s": ttft * (2 if long else 1), "tpot_s": 0.1, "max_gap_s": gap} | more
        for long in (False, True)
    ]  # fmt: skip


def points() -> pd.DataFrame:
    rows: list[dict[str, Any]] = []
    for policy, gap, ttft in (("whole", 1.0, 1.0), ("chunked", 0.5, 1.2), ("mixed", 0.4, 1.1)):
        for order, slower in (("decode_first", 1.0), ("prefill_first", 1.5)):
            for load in (0.6, 0.9):
                rows += request(policy, order, 512, load, gap * slower, ttft / slower)
    for budget, gap, served in ((64, 0.2, 0.5), (512, 0.4, 0.9), (8192, 1.0, 1.5)):
        for load in (0.6, 0.9, 2.25):
            if (budget, load) not in ((512, 0.6), (512, 0.9)):
                rows += request("mixed", "decode_first", budget, load, gap, 1.0, served_rate=served)
    for form, seconds in (("decode", 0.1), ("chunk", 0.5), ("two", 0.6), ("one", 0.54)):
        rows += [{"kind": "step", "rows": 32, "chunk": 512, "repeat": n, "form": form, "step_s": seconds * noise} for n, noise in enumerate((1.0, 0.9, 3.0))]  # fmt: skip
    for policy, within in (("whole", (0.2, 0.8)), ("mixed", (0.5, 0.9))):
        for pair, share in enumerate(within):
            facts = {
                "trace": "long",
                "share": 0.35,
                "policy": policy,
                "order": tell.USUAL_ORDER[policy],
                "token_budget": 512,
                "load": 0.9,
            }
            rows.append({"kind": "limits", **facts, "pair": pair, "base_s": 0.1, "ttft_limit_s": 1.0, "gap_limit_s": 0.3 + pair, "within": share, "goodput": share})  # fmt: skip
    for kind, shares in (("cell", (0.0, 0.35)), ("twin", (0.35,))):
        for share in shares:
            for policy, gap in (("whole", 1.5), ("mixed", 0.45 if share else 1.4)):
                latencies = {
                    "max_gap_s": gap,
                    "worst_gap_s": 2 * gap,
                    "ttft_short_s": 1.0,
                    "ttft_long_s": 2.0 if share else None,
                }
                rows.append({"kind": kind, "share": share, "load": 0.9, "policy": policy, **latencies})
    return pd.DataFrame(rows)


def test_runs_are_medians_over_their_own_requests() -> None:
    line = (
        tell.compared(tell.runs(points()), "long", 0.9)
        .set_index(["policy", "order"])
        .loc[("whole", "prefill_first")]
    )
    assert line["max_gap_s"] == pytest.approx(1.5)
    assert line["ttft_long_s"] == pytest.approx(2 / 1.5)
    assert line["ttft_short_s"] == pytest.approx(1 / 1.5)


def test_policies_are_compared_at_one_budget_and_budgets_under_one_policy() -> None:
    table = tell.runs(points())
    assert len(tell.compared(table, "long", 0.9)) == 6
    assert tell.compared(table, "uniform", 0.9).empty
    assert list(tell.budgets(table)["token_budget"]) == [64] * 3 + [512] * 3 + [8192] * 3


def test_steps_are_set_against_the_decodes_alone() -> None:
    (line,) = tell.ride_table(points()).to_dict("records")
    assert (line["chunk"], line["decodes alone [ms]"]) == (512, pytest.approx(100))
    assert line["step grows"] == pytest.approx(5.4)


def test_the_range_of_what_a_chunk_adds_is_what_single_steps_could_give() -> None:
    steps = [
        {"kind": "step", "chunk": chunk, "form": form, "step_s": step_s}
        for chunk, factor in ((64, 1.0), (512, 10.0))
        for form, times in (("one", (0.2, 0.3)), ("decode", (0.1, 0.05)), ("two", (9.0, 9.0)))
        for step_s in (time * (factor if form == "one" else 1.0) for time in times)
    ]
    assert tell.ride_band(pd.DataFrame(steps), 512) == pytest.approx((20.0, 60.0))


def test_chapter_ten_was_past_capacity_at_every_budget() -> None:
    loads = tell.chapter_loads()
    assert loads.keys() == {64, 512, 8192}
    assert loads[8192] == pytest.approx(8 / (170.7 / 48))
    assert min(loads.values()) > 2


def test_chapter_ten_is_set_beside_ours_as_ratios() -> None:
    table = tell.chapter_table(tell.runs(points())).set_index(["quantity", "budget"])
    line = table.loc[("ITL p50", 64)]
    assert (line["published"].text, line["published"].mark) == ("2.08", "published-elsewhere")
    assert line["ours, 0.6 x"] == pytest.approx(0.2)


def test_ratios_and_boxes_of_the_map() -> None:
    found = regimes.ratios(regimes.simulated_cells(points())).set_index("share")
    assert found.loc[0.35, "max_gap_s"] == pytest.approx(0.3)
    assert pd.isna(found.loc[0.0, "ttft_long_s"])
    measured = regimes.ratios(regimes.measured_latencies(points()))
    assert dict(measured.set_index("load")["max_gap_s"]) == pytest.approx({0.6: 0.4 / 1.5, 0.9: 0.4 / 1.5})
    both = regimes.agreement(measured, points()).set_index("latency")
    assert both.loc["Longest gap, median request", "simulated"] == pytest.approx(0.3)
    shown = regimes.agreement_table(measured, points())
    assert list(shown["measured"]) == list(both["measured"])
    assert {(one.text, one.mark) for one in shown["simulated"]} >= {("0.300", "simulated")}


def test_a_box_holds_the_cell_the_simulated_trace_and_the_measured_one() -> None:
    """Traces of few requests have another ratio than the cell; without their simulation there is a dash."""
    rows = points()
    rows.loc[(rows["kind"] == "twin") & (rows["policy"] == "mixed"), "max_gap_s"] = 0.6

    def first_panel(rows: pd.DataFrame) -> list[str]:
        texts = regimes.map_figure(rows).axes[0].texts
        assert [text.get_text() for text in texts if text.get_fontweight() == "bold"] == ["0.27"]
        return [text.get_text() for text in texts]

    assert first_panel(rows) == ["0.93", "0.30", "0.40", "0.27"]
    assert first_panel(rows[rows["kind"] != "twin"]) == ["0.93", "0.30", "–", "0.27"]
    drawn = regimes.drawn(rows)
    assert list(drawn[drawn["load"] == 0.9]["of"]) == ["cell", "cell", "trace, simulated", "trace, measured"]


def test_verdicts_say_held_missed_or_not_run() -> None:
    found = tell.verdicts(points()).set_index("no.")
    assert found.loc["7", "measured"] == pytest.approx(3)
    assert found.loc["2", "measured"] == pytest.approx(0.4)
    assert dict(found["verdict"]) == {
        "1": "held",
        "2": "held",
        "3a": "held",
        "3b": "not run",
        "4a": "held",
        "4b": "held",
        "5": "held",
        "6": "held",
        "7": "held",
        "8": "held",
        "9a": "held",
        "9b": "held",
        "10a": "held",
        "10b": "held",
        "11": "missed",
    }
    alone = points()
    alone = alone[(alone["policy"] != "mixed") | (alone["kind"] == "cell")]
    open_ones = tell.verdicts(alone).set_index("no.")["verdict"]
    assert set(open_ones[["4a", "6", "7", "8", "9a", "10b", "11"]]) == {"not run"}


def test_figures_show_every_policy_in_either_order() -> None:
    figure = draw.policies_figure(tell.runs(points()), ["long"], 0.9, 0.6)
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == [
        f"{policy}, {word} first"
        for policy in ("whole", "chunked", "mixed")
        for word in ("decodes", "prompts")
    ]
    lines = draw.budget_figure(tell.runs(points())).axes[0].get_lines()
    assert [line.get_label() for line in lines] == ["T = 64", "T = 512", "T = 8,192"]
    assert len(draw.ride_figure(points()).axes[0].get_lines()) == 4
