"""The whole build, on a copy of the real book with one small executed notebook added.

Each build runs Jupyter Book in a process of its own, as `interleave book` does; the tests share it.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml
from nbformat.v4 import new_output
from toys.booklet import CSV, ROOT, TOY, copy_of_the_book, say_it_was_made_by, toy_notebook, write_toy

from interleave.report.badges import badge_faults, shows
from interleave.report.book import BookError, build_site, check_toc, documents, staged_toc
from interleave.report.download import pack
from interleave.report.marks import MARKS, badge_html, find_mark
from interleave.report.runs import BOOK, PREVIEW, find_pages, load_runs
from interleave.report.simulated import TIMELINE
from interleave.report.site import check_site
from interleave.report.values import reported_values, trace_values


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_site_stands_alone(book: Path) -> None:
    assert check_site(book / "_build/html") == []


def test_the_toy_page_shows_what_it_holds(book: Path) -> None:
    html = (book / f"_build/html/book/pages/{TOY}.html").read_text()
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML">' in html
    assert 'There are <span class="il-value">44,048</span> tokens' in html
    assert 'alt="a white square"' in html
    assert "Nothing moves." in html
    assert '<figure class="align-default" id="figure-toy-square">' in html
    assert badge_html("measured-cpu") in html
    assert f"<strong>42 s</strong>\N{NO-BREAK SPACE}{badge_html('measured-cpu')}" in html
    assert "This page is not up to date: broken" in html
    assert "there is no notebooks/99_toy.ipynb" in html
    assert (
        html.index("<h1>A toy") < html.index("il-origin") < html.index("il-stale") < html.index("<h2>Result")
    )
    assert not any(word in html for word in ("MathJax", "thebe", "require.js"))


@pytest.mark.parametrize(
    ("becomes", "shown"), [("il-stale", True), ("il-fresh", False), ('il-stale" hidden data-x="', False)]
)
def test_a_page_that_is_out_of_date_shows_a_badge(
    book: Path, tmp_path: Path, becomes: str, shown: bool
) -> None:
    name = f"book/pages/{TOY}.html"
    html = (book / "_build/html" / name).read_text()
    assert "il-stale" in html
    (tmp_path / name).parent.mkdir(parents=True)
    (tmp_path / name).write_text(html.replace("il-stale", becomes))
    fault = f"{name}: broken, but the page carries no badge that says so"
    assert badge_faults(tmp_path, find_pages(book, BOOK)) == ([] if shown else [fault])


def test_a_page_that_quotes_one_says_which_figure_and_whether_it_is_out_of_date(
    book: Path, tmp_path: Path
) -> None:
    html = (book / "_build/html/book/index.html").read_text()
    assert (
        '<a class="reference internal" href="../book/pages/99_toy.html#figure-toy-square">figure in A toy</a>'
        in html
    )
    assert CSV in html
    box = html.index("Not all numbers on this page are up to date")
    assert html.index("<h1>") < box < html.index("A language model")
    assert (
        '<a class="reference internal" href="../book/pages/99_toy.html">A toy</a> (broken). Each says at its top'
        in html
    )
    quoting = tmp_path / "book/index.html"
    quoting.parent.mkdir(parents=True)
    for shown in (True, False):
        quoting.write_text(html if shown else html.replace("il-stale-toy", ""))
        fault = "book/index.html: quotes 99_toy (broken), but carries no badge that says so"
        assert badge_faults(tmp_path, find_pages(book, BOOK)) == ([] if shown else [fault])


def test_a_link_to_a_page_that_is_not_there_is_its_text(book: Path) -> None:
    ladder = (book / "_build/html/book/ladder.html").read_text()
    staged = (book / "book/pages/11_parity.ipynb").exists()
    assert ("11_parity.html" in ladder) == staged
    assert ("(parity)" in ladder) != staged


def test_nothing_of_a_virtual_environment_is_rendered(book: Path) -> None:
    assert not [name for name in snapshot(book / "_build/html") if "somebody" in name or "demo" in name]


def test_the_preview_takes_quick_runs_only_and_says_so(book: Path) -> None:
    """One more build: without a quick run there is no toy page, and the committed site stays."""
    before = snapshot(book / "_build/html")
    index = build_site(book, PREVIEW, say=lambda line: None)
    assert index == book / "_build/preview/index.html"
    assert not (book / f"_build/preview/book/pages/{TOY}.html").exists()
    front = (book / "_build/preview/book/index.html").read_text()
    assert "Preview: measured on this machine" in front
    assert TOY not in front
    ladder = (book / "_build/preview/book/ladder.html").read_text()
    assert "05_closed_batches" not in ladder  # a link to a page that this build lacks is text
    assert "This page awaits a run" in (book / "_build/preview/book/peers.html").read_text()
    assert snapshot(book / "_build/html") == before


def test_a_drawing_that_other_code_simulated_says_so_wherever_it_is(book: Path, tmp_path: Path) -> None:
    """One more build, of the preview; the committed site, made of today's simulations, has no such box."""
    say_it_was_made_by(book, TIMELINE, "0" * 64)
    build_site(book, PREVIEW, say=lambda line: None)
    say_it_was_made_by(book, TIMELINE, TIMELINE.code())
    preview = book / "_build/preview"
    for name, told in (("timeline", True), ("index", True), ("explorer", False)):
        html = (preview / f"book/{name}.html").read_text()
        assert shows(html, "il-stale-timeline") == told
        above = html.partition("il-play")[0]
        assert ("This drawing is not up to date" in above) == (TIMELINE.path.as_posix() in above) == told
        assert "This drawing is not up to date" not in (book / f"_build/html/book/{name}.html").read_text()
    hidden = tmp_path / "book/index.html"
    hidden.parent.mkdir()
    hidden.write_text((preview / "book/index.html").read_text().replace("il-stale-timeline", ""))
    fault = "book/index.html: draws the simulation timeline (stale), but carries no badge that says so"
    assert badge_faults(tmp_path, [], ["timeline"]) == [fault]
    assert badge_faults(preview, [], ["timeline"]) == []
    assert badge_faults(tmp_path, [], ["explorer"]) == []


def test_two_clean_builds_are_equal(book: Path, tmp_path: Path) -> None:
    """The same sources elsewhere give the same bytes, search index, drawings and the packed file included."""
    other = copy_of_the_book(tmp_path)
    build_site(other, BOOK, say=lambda line: None)
    first, second = snapshot(book / "_build/html"), snapshot(other / "_build/html")
    assert first.keys() == second.keys()
    assert [name for name in first if first[name] != second[name]] == []
    assert {"_images/timeline.png", "_images/explorer.png", "searchindex.js"} <= first.keys()
    packed = [pack(root / "_build/html").read_bytes() for root in (book, other)]
    assert packed[0] == packed[1]


def test_faults_of_prose_are_all_reported_and_the_last_site_stays(book: Path) -> None:
    before = snapshot(book / "_build/html")
    prose = book / "book/methods.md"
    good = prose.read_text()
    prose.write_text(
        good
        + "\n\n[x](gone.md) and {value}`trace.prompt_token_32` and {mark}`measured-cup` and $\\nosuch$\n\n"
        "#### Deep\n\n![](_static/logo.svg)\n"
    )
    with pytest.raises(BookError) as caught:
        build_site(book, BOOK, say=lambda line: None)
    prose.write_text(good)
    message = str(caught.value)
    assert "book/methods.md" in message
    assert "gone.md" in message
    assert "no value is called 'trace.prompt_token_32'; did you mean 'trace.prompt_tokens_32'?" in message
    assert "unknown mark 'measured-cup'; did you mean 'measured-cpu'?" in message
    assert r"cannot convert to MathML: \nosuch" in message
    assert "Non-consecutive header level" in message
    assert str(book) not in message
    assert snapshot(book / "_build/html") == before


def test_a_faulty_notebook_is_refused_before_sphinx(book: Path) -> None:
    notebook = toy_notebook()
    notebook.cells[1].outputs[0].metadata = {}
    notebook.cells[2].outputs.append(new_output("error", ename="ValueError", evalue="no"))
    write_toy(book, notebook)
    with pytest.raises(BookError) as caught:
        build_site(book, BOOK, say=lambda line: None)
    write_toy(book, toy_notebook())
    assert str(caught.value).splitlines() == [
        f"book/executed/cpu/{TOY}.ipynb: cell 2: figure without alt text "
        "(metadata mystnb.image.alt: what is seen in it)",
        f"book/executed/cpu/{TOY}.ipynb: cell 3: stored error ValueError: no",
    ]


def test_a_stray_page_is_named(book: Path) -> None:
    stray = book / "book/notes.md"
    stray.write_text("# Notes")
    with pytest.raises(BookError, match=r"^book/notes.md is in no part of _toc.yml$"):
        build_site(book, BOOK, say=lambda line: None)
    stray.unlink()


def test_a_better_tier_comes_first(tmp_path: Path) -> None:
    root = copy_of_the_book(tmp_path)
    assert find_pages(root, BOOK)[-1].tier == "cpu"
    (root / "book/executed/gpu").mkdir(exist_ok=True)
    shutil.copy(root / f"book/executed/cpu/{TOY}.ipynb", root / "book/executed/gpu")
    assert find_pages(root, BOOK)[-1].tier == "gpu"


def test_contents_runs_and_notebooks_name_one_another() -> None:
    """Of the repository itself: every notebook is listed, every listed one exists and has a module."""
    toc = yaml.safe_load((ROOT / "_toc.yml").read_text())
    check_toc(ROOT, toc)
    runs = load_runs(ROOT)
    assert [run.notebook for run in runs] == sorted(
        path.stem for path in (ROOT / "notebooks").glob("*.ipynb")
    )
    for run in runs:
        assert (ROOT / "src/interleave/lab/experiments" / f"{run.experiment}.py").is_file()


def test_an_unmeasured_experiment_leaves_no_trace_in_the_contents() -> None:
    toc = {"root": "book/index", "parts": [{"caption": "A", "chapters": [{"file": "book/pages/01_a"}]}]}
    assert documents(staged_toc(toc, [])) == ["book/index"]
    assert staged_toc(toc, [])["parts"] == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("- {notebook: a, experiment: a}", "entry 1 lacks title"),
        ("- {notebook: a, experiment: a, title: A, titel: B}", "unknown key 'titel'; did you mean 'title'"),
        (
            "- {notebook: a, experiment: a, title: A}\n- {notebook: a, experiment: b, title: B}",
            "a second time",
        ),
        ("notebook: a", "a list of runs"),
    ],
)
def test_a_broken_run_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "book").mkdir()
    (tmp_path / "book/runs.yml").write_text(text)
    with pytest.raises(ValueError, match=message):
        load_runs(tmp_path)


def test_marks_are_four_and_known_by_name() -> None:
    assert list(MARKS) == ["measured-gpu", "measured-cpu", "simulated", "published-elsewhere"]
    with pytest.raises(ValueError, match=r"unknown mark 'measured'; did you mean 'measured-gpu'\?"):
        find_mark("measured")


def test_facts_about_the_traces_are_computed() -> None:
    """The evidence for the reconstructed workload, as it is printed."""
    facts = {name.removeprefix("trace."): value.text for name, value in trace_values().items()}
    assert facts == {
        "prompt_tokens_32": "44,048",
        "decode_tokens_32": "5,408",
        "mean_new_tokens_400": "158",
        "mean_prompt_400": "969 tokens",
        "last_arrival_s_rate2": "209.7 s",
        "pool_gib": "0.5 GiB",
        "pool_cover_32": "37%",
    }
    assert all(value.mark is None for value in trace_values().values())
    assert all(value.mark == "published-elsewhere" for value in reported_values().values())


def test_values_are_strict_json(book: Path) -> None:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    values = json.loads((book / "_build/values.json").read_text(), parse_constant=refuse)
    assert values["experiments"]["toy"] == {"tier": "cpu", "mark": "measured-cpu"}


def test_the_status_page_shows_what_was_recorded(book: Path) -> None:
    html = (book / "_build/html/book/status.html").read_text()
    for cell in ("A toy", "1.5", "0123456789", "–", "broken"):
        assert f">{cell}</" in html
    assert f"a small CPU\N{NO-BREAK SPACE}{badge_html('measured-cpu')}" in html
    assert "0123456789a" not in html
