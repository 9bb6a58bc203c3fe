"""What an experiment's notebook calls: validate its parameters, get its points, show what they say.

Works alike under `interleave run`, under papermill's own command and cell by cell in JupyterLab,
from any folder of the checkout. Knows how results are shown, not what they mean.
"""

from __future__ import annotations

import base64
import io
import json
import logging
import math
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field
from html import escape
from types import ModuleType
from typing import TYPE_CHECKING, Any

from IPython.display import HTML, display
from pydantic import BaseModel

from interleave.lab.measure import Measured, collect
from interleave.lab.paths import data_dir
from interleave.lab.provenance import prediction_sha256
from interleave.lab.results import PointStore
from interleave.openmp import wait_passively
from interleave.report import progress
from interleave.report.layout import output_root, results_root
from interleave.report.marks import find_mark
from interleave.report.parameters import command_line, load_experiment, notebook_model, plain_values, validate
from interleave.report.printed import spoken, table_html
from interleave.report.readings import plain
from interleave.report.source import CAPTION_ROLE, literals

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from interleave.report.evidence import Stored

FORCE_VARIABLE = "INTERLEAVE_FORCE"
GLUE_PREFIX = "application/papermill.record/"
FIGURE_DPI = 192


def setup(experiment_name: str, namespace: MutableMapping[str, Any]) -> NotebookRun:
    """Validate the parameters that the cells above defined; returns what the notebook works with.

    namespace: the notebook's `globals()`; values that papermill's command injected as text come
    back in it with their types. Raises ParameterError for an unknown name, type or range.
    """
    wait_passively()
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # a first import talks on stderr
    experiment = load_experiment(experiment_name)
    model = notebook_model(experiment)
    given = {name: plain(namespace[name]) for name in model.model_fields if name in namespace}
    unknown = {name: namespace[name] for name in _injected_names(namespace) if name not in model.model_fields}
    chosen = validate({**given, **unknown}, model, experiment_name)
    values = plain_values(chosen)
    namespace.update(values)
    params = experiment.Params.model_validate_json(
        json.dumps({name: values[name] for name in experiment.Params.model_fields})
    )
    return NotebookRun(experiment_name, experiment, params, values["profile"], values["measure"])


@dataclass
class NotebookRun:
    """One execution of an experiment's notebook.

    params: the experiment's own parameters; profile: the tier that points are read from and added
    to; measure: whether missing points are measured.
    """

    name: str
    experiment: ModuleType
    params: BaseModel
    profile: str
    measure: bool
    _measured: Measured | None = field(default=None, repr=False)

    def prediction(self) -> None:
        """Show the prediction that was committed before the experiment was first run."""
        text = (data_dir() / "predictions" / f"{self.name.rpartition('.')[2]}.md").read_text(encoding="utf-8")
        date, _, body = text.partition("\n")
        quoted = "\n".join(f"> {line}".rstrip() for line in body.strip().splitlines())
        display({"text/markdown": f"**Predicted on {date.strip()}**\n\n{quoted}"}, raw=True)

    def points(self) -> pd.DataFrame:
        """Every row of every point, one line a row. Stored points are read, missing ones measured.

        Progress goes to the terminal. Raises MissingPoint when a point is missing and `measure` is
        false; an interruption keeps the points measured so far.
        """
        slug = self.name.rpartition(".")[2]
        self._measured = collect(
            self.experiment,
            self.params,
            PointStore(results_root(self.profile, output_root()), self.profile, slug),
            measure=self.measure,
            force=bool(os.environ.get(FORCE_VARIABLE)),
            prediction_sha256=prediction_sha256(slug),
            progress=_tell_progress,
            say=progress.say,
        )
        measured = {"point_keys": self._measured.keys, "provenance": self._measured.origin()}
        progress.send("measured", measured)
        return self._measured.frame

    def evidence(self) -> dict[str, Stored]:
        """The stored results of every chapter of the run list at this profile, by experiment.

        The page remembers which points it has seen, so that it is rendered again when they change.
        """
        from interleave.report.evidence import chapters, keys_of, stored_results

        found = stored_results(list(chapters()), self.profile, output_root())
        progress.send("evidence", keys_of(found))
        return found

    def figure(
        self, name: str, figure: Figure, *, alt: str, caption: str, data: pd.DataFrame | None = None
    ) -> None:
        """Show `figure`, once a cell, with what is seen in it (alt) and what it says (caption).

        caption is MyST Markdown. data: what is drawn, offered for download as CSV under the figure.
        """
        if not alt.strip() or not caption.strip():
            raise ValueError(f"figure {name!r} needs an alt text and a caption")
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=FIGURE_DPI, facecolor="white", metadata={"Software": None})
        if data is not None:
            caption += f" {_download(data, f'{self.name}-{name}.csv')}"
        display(
            {"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": alt},
            raw=True,
            metadata={
                "image/png": {"alt": alt, "caption": caption, "width": int(figure.get_figwidth() * 96)},
                "interleave": {"figure": name},
            },
        )
        display({"text/markdown": caption}, raw=True, metadata={"interleave": {"role": CAPTION_ROLE}})

    def table(self, frame: pd.DataFrame, digits: int = 3, caption: str | None = None) -> None:
        """Show a frame's columns (units in their names, six at most); floats to `digits` digits.

        caption: what it holds, for a table that does not say so itself; words in backquotes become code.
        """
        display(HTML(table_html(frame, digits, caption)))

    def glue(
        self,
        name: str,
        value: float | str,
        *,
        unit: str = "",
        digits: int = 2,
        mark: str | None = None,
        band: tuple[float, float] | None = None,
    ) -> None:
        """Record a number for prose ({glue:text}`name`) and for other pages.

        digits: significant ones; mark: where it comes from, if not from where the page's numbers do; band:
        lowest and highest of its repeats, of no use where they are equal. Raises ValueError for a number that
        is missing or not finite.
        """
        if not isinstance(value, str):
            if value is None or not math.isfinite(value):
                raise ValueError(f"number {name!r} is {value}: only a finite number can be quoted")
            value = value if isinstance(value, int) else float(value)
        text = f"{spoken(value, digits)} {unit}".strip()
        number = {"name": name, "value": value, "unit": unit, "text": text}
        if mark is not None:
            number["mark"] = find_mark(mark).name
        if band is not None and band[0] < band[1]:
            number |= {"low": float(band[0]), "high": float(band[1]), "digits": digits}
        display(
            {f"{GLUE_PREFIX}text/plain": text},
            raw=True,
            metadata={
                "scrapbook": {"name": name, "mime_prefix": GLUE_PREFIX},
                "interleave": {"number": number},
            },
        )

    def closing(self) -> None:
        """How this page was made: parameters, command, time spent measuring, machine."""
        usual = plain_values(self.experiment.Params()) | self.experiment.PROFILES.get(self.profile, {})
        changed = {
            name: value for name, value in plain_values(self.params).items() if value != plain(usual[name])
        }
        origin = self._measured.origin() if self._measured else {}
        command = command_line(self.name.rpartition(".")[2], self.profile, changed)
        seconds = origin.get("duration_s")
        rows = {
            "command": f"<code>{escape(command)}</code>",
            "measuring took": "–" if seconds is None else f"{seconds:.0f} s, begun {origin['started']}",
            "machine": f"{origin.get('device')}, threads: {origin.get('threads')}",
            "software": f"Python {origin.get('python')}, torch {origin.get('torch')}",
            "points": str(len(self._measured.keys) if self._measured else 0),
            **{
                name: f"<code>{escape(json.dumps(value))}</code>"
                for name, value in plain_values(self.params).items()
            },
        }
        body = "".join(f"<tr><th>{name}</th><td>{value}</td></tr>" for name, value in rows.items())
        display(HTML(f'<table class="il-closing">{body}</table>'))


def _tell_progress(done: int, total: int, label: str, seconds: float, seconds_left: float) -> None:
    left = f", about {seconds_left:.0f} s left" if done < total else ""
    progress.say(f"{progress.bar(done, total)}  {label:<36} {seconds:6.1f} s{left}")


def _injected_names(namespace: Mapping[str, Any]) -> set[str]:
    """Names assigned by the cells of literals just before this one: parameters, known or not."""
    names: set[str] = set()
    for code in reversed(namespace.get("In", [""])[1:-1]):
        try:
            names |= set(literals(code, ""))
        except ValueError:
            break
    return names


def _download(data: pd.DataFrame, name: str) -> str:
    content = base64.b64encode(data.to_csv(index=False).encode()).decode()
    return f'<a download="{name}" href="data:text/csv;base64,{content}">CSV</a>'
