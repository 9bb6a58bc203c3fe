/* The step timeline: rows of the engine down, time across, a panel a policy. Pan and zoom by sliders or dragging;
   the pointer or the arrow keys walk over the bars, and a line of text says what each one is. In brief (`data-brief`)
   it is a picture. */

"use strict";

(function () {
  const { el, svg, spoken, badge, control, play, onWidth, panel, hatch, scaleOf, rowAt, count } = window.interleave;

  const TITLES = {
    whole: "the prompt in one piece; nobody else moves meanwhile",
    chunked: "pieces of it, with everybody's next tokens in a second forward",
    mixed: "pieces of it, with everybody's next tokens in the same forward",
  };
  const HINT = "Point at a bar, or move into a panel with Tab and walk over its bars with the arrow keys.";
  const MOVES = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
  const ZOOMS = [8, 4, 2, 1, 0.5, 0.25]; // the visible time, in multiples of what is shown at first
  const PAN_STEPS = 400;
  const LEAD = 0.15; // of the visible time, before the moment that the slider names

  const ms = (value) => `${value < 0 ? "−" : ""}${spoken(Math.abs(value), Math.abs(value) < 10 ? 2 : 3)} ms`;
  const clamp = (value, low, high) => Math.max(low, Math.min(value, high));

  /* Adds to a run what each step carries by row, and how far every prompt had come before it. */
  function indexed(run) {
    const done = {};
    const carried = run.steps.map(([, , chunks, decodes]) => {
      const rows = {};
      for (const [row, request, tokens] of chunks) {
        rows[row] = { request, tokens, from: done[request] || 0 };
        done[request] = rows[row].from + tokens;
      }
      for (const [row, request] of decodes) rows[row] = { request };
      return rows;
    });
    return { ...run, carried };
  }

  /* What one row does in one step, in words. */
  function inWords({ run, step, row }, prompts) {
    const [from, to, chunks, decodes] = run.steps[step];
    const piece = run.carried[step][row];
    const stall = run.stalls.find(([lane, , a, b]) => lane === row && a < to && b > from);
    const tokens = chunks.reduce((sum, [, , some]) => sum + some, 0);
    const carries = [tokens && `${count(tokens)} prompt tokens`, decodes.length && `${decodes.length} next tokens`];
    let what = `row ${row + 1} has no part in it`;
    if (piece && piece.tokens) {
      const range = `${count(piece.from + 1)} to ${count(piece.from + piece.tokens)}`;
      what = `request ${piece.request} reads prompt tokens ${range} of ${count(prompts[piece.request])}`;
    } else if (piece) what = `request ${piece.request} writes 1 token`;
    else if (stall) what = `request ${stall[1]} stands still: ${ms(stall[4])} between two of its tokens`;
    return (
      `${run.policy}, step ${step + 1}: ${what}. The step takes ${ms(to - from)}, from ${ms(from)} to ${ms(to)}, ` +
      `for ${carries.filter(Boolean).join(" and ")}.`
    );
  }

  play("timeline", (place, data) => {
    const brief = "brief" in place.dataset;
    const runs = data.policies.map(indexed);
    const first = Math.min(...runs.map((run) => run.steps[0][0]));
    const last = Math.max(...runs.map((run) => run.steps[run.steps.length - 1][1]));
    const start = { left: data.window[0], span: data.window[1] - data.window[0] };
    const view = { ...start };
    const hidden = new Set();
    let active = null;
    let width = 0;

    /* Which policies are shown, and which time. */
    const policies = el("fieldset", { class: "il-radios" }, [el("legend", { text: "Policy" })]);
    for (const name of ["all", ...runs.map((run) => run.policy)]) {
      const input = el("input", { type: "radio", name: "il-shown", value: name, id: `il-shown-${name}` });
      input.checked = name === "all";
      input.addEventListener("change", () => {
        hidden.clear();
        if (name !== "all") runs.filter((run) => run.policy !== name).forEach((run) => hidden.add(run));
        draw();
      });
      policies.append(el("label", { for: input.id }, [input, ` ${name}`]));
    }
    const pan = el("input", { type: "range", min: 0, max: PAN_STEPS, step: 1 });
    const zoom = el("input", { type: "range", min: 0, max: ZOOMS.length - 1, step: 1 });
    const panSaid = el("output");
    const zoomSaid = el("output");
    const back = el("button", { type: "button", class: "il-button", text: "Back to the long prompt" });
    pan.addEventListener("input", () =>
      look(first + ((last - first) * Number(pan.value)) / PAN_STEPS - LEAD * view.span));
    zoom.addEventListener("input", () => {
      const pivot = active ? active.run.steps[active.step][0] : view.left + LEAD * view.span;
      const share = clamp((pivot - view.left) / view.span, 0, 1);
      view.span = ZOOMS[Number(zoom.value)] * start.span;
      look(pivot - share * view.span);
    });
    back.addEventListener("click", () => {
      view.span = start.span;
      active = null;
      readout.textContent = HINT;
      look(start.left);
    });

    function look(left) {
      view.left = clamp(left, first - LEAD * view.span, last - (1 - LEAD) * view.span);
      draw();
    }

    function tellView() {
      pan.value = Math.round(((view.left + LEAD * view.span - first) / (last - first)) * PAN_STEPS);
      zoom.value = ZOOMS.findIndex((times) => Math.abs(times * start.span - view.span) < 1e-6);
      panSaid.textContent = `from ${ms(view.left)}`;
      zoomSaid.textContent = `${ms(view.span)} across`;
      pan.setAttribute("aria-valuetext", panSaid.textContent);
      zoom.setAttribute("aria-valuetext", zoomSaid.textContent);
    }

    /* The panels, and walking over their bars. */
    const readout = el("p", { class: "il-sentence il-readout", role: "status", text: HINT });
    const panels = runs.map((run) => {
      const label = `Steps under ${run.policy}: left and right arrows walk over steps, up and down over rows`;
      const alive = { tabindex: 0, role: "application", "aria-label": label };
      const lanes = el("div", { class: "il-lanes", ...(brief ? {} : alive) });
      const title = el("p", { class: "il-title" }, [el("strong", { text: run.policy }), `: ${TITLES[run.policy]}`]);
      if (!brief) listen(lanes, run);
      return { run, lanes, box: el("div", { class: "il-panel" }, [title, lanes]) };
    });

    function draw() {
      if (!width) return;
      tellView();
      for (const { run, lanes, box } of panels) {
        box.hidden = hidden.has(run);
        if (!box.hidden) lanes.replaceChildren(panel(run, data, view, width, active));
      }
    }

    function point(where) {
      if (!where || (active && ["run", "step", "row"].every((name) => active[name] === where[name]))) return;
      active = where;
      readout.textContent = inWords(active, data.prompts);
      draw();
    }

    function under(event, lanes, run) {
      const box = lanes.getBoundingClientRect();
      const time = scaleOf(view, width).time(event.clientX - box.left);
      const row = rowAt(event.clientY - box.top);
      const step = run.steps.findIndex(([from, to]) => from <= time && time < to);
      return step >= 0 && row >= 0 && row < run.rows ? { run, step, row } : null;
    }

    function listen(lanes, run) {
      let held = null;
      lanes.addEventListener("pointerdown", (event) => {
        held = { x: event.clientX, left: view.left };
        point(under(event, lanes, run));
      });
      lanes.addEventListener("pointermove", (event) => {
        if (!event.buttons) held = null;
        if (held) look(held.left - (event.clientX - held.x) * scaleOf(view, width).perPixel);
        else point(under(event, lanes, run));
      });
      lanes.addEventListener("focus", () => {
        if (!active || active.run !== run) point(entry(run));
      });
      lanes.addEventListener("keydown", (event) => {
        if (!MOVES[event.key] || event.ctrlKey || event.altKey || event.metaKey) return;
        event.preventDefault();
        walk(run, ...MOVES[event.key]);
      });
    }

    /* Where the keyboard enters a panel: the moment and row of the panel that it left, or the long prompt. */
    function entry(run) {
      if (active) {
        const moment = active.run.steps[active.step][0];
        const step = run.steps.findIndex(([, to]) => to > moment);
        return { run, step: step < 0 ? run.steps.length - 1 : step, row: Math.min(active.row, run.rows - 1) };
      }
      const mine = ([, request]) => request === data.request;
      const step = run.steps.findIndex(([, , chunks]) => chunks.some(mine));
      return { run, step, row: run.steps[step][2].find(mine)[0] };
    }

    function walk(run, steps, rows) {
      const now = active && active.run === run ? active : entry(run);
      const step = clamp(now.step + steps, 0, run.steps.length - 1);
      point({ run, step, row: clamp(now.row + rows, 0, run.rows - 1) });
      const [from, to] = run.steps[step];
      if (from < view.left || to > view.left + view.span) look(from - 0.5 * view.span);
    }

    const keyOf = (name, text) => {
      const box = { class: name, x: 0.5, y: 0.5, width: 17, height: 9 };
      if (name === "il-stall") box.fill = "url(#il-hatch)";
      const small = { viewBox: "0 0 18 10", width: 18, height: 10, "aria-hidden": "true" };
      return el("span", {}, [svg("svg", small, [svg("rect", box)]), ` ${text}`]);
    };
    const legend = el("p", { class: "il-legend" }, [
      keyOf("il-prompt", "the long prompt is read"),
      keyOf("il-others", "another prompt"),
      keyOf("il-decode", "one token of an answer"),
      keyOf("il-stall", "an answer stands still"),
    ]);
    const finding = el("p", {}, [`${data.caption} `, badge(data.mark)]);
    const stack = el("div", brief ? { role: "img", "aria-label": data.alt } : {}, panels.map(({ box }) => box));
    const controls = el("div", { class: "il-controls" }, [
      control("il-pan", "Time", pan, panSaid),
      control("il-zoom", "Zoom", zoom, zoomSaid),
      back,
    ]);
    if (brief) place.append(hatch(), legend, stack, finding);
    else place.append(hatch(), finding, policies, legend, stack, readout, controls);
    onWidth(stack, (now) => {
      width = now;
      draw();
    });
  });
})();
