/* One panel of the step timeline: the rows of one policy over the visible time. Draws what it is given. */

"use strict";

(function () {
  const { svg } = window.interleave;

  const ROW = 15;
  const PAD = { left: 26, right: 6, top: 18, bottom: 20 };
  const SHARE = { prompt: 0.86, decode: 0.46 }; // of a row's height
  const NEAR = 90; // pixels between two ticks, at least

  const count = (value) => value.toLocaleString("en-US");
  const middle = (row) => PAD.top + ROW * (row + 0.5);

  /* Where times lie: { x: pixels of a time, left, right: the edges, time: the time under a pixel }. */
  function scaleOf(view, width) {
    const inner = width - PAD.left - PAD.right;
    return {
      x: (time) => PAD.left + ((time - view.left) / view.span) * inner,
      time: (pixels) => view.left + ((pixels - PAD.left) / inner) * view.span,
      left: PAD.left,
      right: width - PAD.right,
      perPixel: view.span / inner,
    };
  }

  const rowAt = (pixels) => Math.floor((pixels - PAD.top) / ROW);

  /* The part of a bar that is in view, as an SVG path; neighbours are told apart by a pixel between them. */
  function bar(scale, from, to, row, share) {
    const a = Math.max(scale.x(from), scale.left);
    const b = Math.min(scale.x(to), scale.right);
    if (b <= a) return "";
    const width = b - a - (b - a > 4 ? 1 : 0);
    const height = ROW * share;
    const top = middle(row) - height / 2;
    return `M${a.toFixed(1)} ${top.toFixed(1)}h${width.toFixed(1)}v${height.toFixed(1)}h${(-width).toFixed(1)}z`;
  }

  function bars(run, data, scale, view) {
    const paths = { "il-prompt": "", "il-others": "", "il-decode": "" };
    const labels = [];
    for (const [from, to, chunks, decodes] of run.steps) {
      if (to < view.left || from > view.left + view.span) continue;
      for (const [row, request, tokens] of chunks) {
        const mine = request === data.request;
        const a = Math.max(scale.x(from), scale.left);
        const b = Math.min(scale.x(to), scale.right);
        const text = count(tokens);
        paths[mine ? "il-prompt" : "il-others"] += bar(scale, from, to, row, SHARE.prompt);
        if (b - a < 6.2 * text.length + 3) continue;
        const name = mine ? "il-on" : "il-on il-on-others";
        labels.push(svg("text", { class: name, x: (a + b) / 2, y: middle(row) + 4, "text-anchor": "middle", text }));
      }
      for (const [row] of decodes) paths["il-decode"] += bar(scale, from, to, row, SHARE.decode);
    }
    const still = run.stalls.map(([row, , from, to]) => bar(scale, from, to, row, SHARE.decode)).join("");
    return [
      ...Object.entries(paths).map(([name, d]) => svg("path", { class: name, d })),
      svg("path", { class: "il-stall", fill: "url(#il-hatch)", d: still }),
      ...labels,
    ];
  }

  function axes(run, scale, view, height) {
    const least = scale.perPixel * NEAR;
    const unit = 10 ** Math.floor(Math.log10(least));
    const every = [1, 2, 5, 10].map((n) => n * unit).find((n) => n >= least);
    const parts = [];
    for (let at = Math.ceil(view.left / every) * every; at <= view.left + view.span; at += every) {
      const x = scale.x(at);
      const text = `${at < 0 ? "−" : ""}${count(Math.abs(Math.round(at)))}${at === 0 ? " ms" : ""}`;
      parts.push(svg("line", { class: "il-grid", x1: x, x2: x, y1: PAD.top, y2: height - PAD.bottom }));
      if (x > scale.right - 20) continue;
      parts.push(svg("text", { class: "il-tick", x, y: height - 6, "text-anchor": "middle", text }));
    }
    for (let row = 0; row < run.rows; row += 1) {
      const at = { x: PAD.left - 8, y: middle(row) + 4, "text-anchor": "end" };
      parts.push(svg("text", { class: "il-tick", ...at, text: String(row + 1) }));
    }
    return parts;
  }

  /* The dotted line of the long prompt, if it is in view. */
  function event(data, scale, height) {
    const x = scale.x(0);
    if (x < scale.left || x > scale.right) return [];
    const left = x > 0.6 * scale.right;
    const text = `a prompt of ${count(data.prompt_tokens)} tokens ${data.arrives ? "arrives" : "begins"}`;
    return [
      svg("line", { class: "il-event", x1: x, x2: x, y1: 4, y2: height - PAD.bottom }),
      svg("text", { class: "il-note", x: x + (left ? -5 : 5), y: 12, "text-anchor": left ? "end" : "start", text }),
    ];
  }

  /* A line at the chosen bar's time in every panel, and a frame around it in its own. */
  function cursor(run, active, scale, height) {
    if (!active) return [];
    const [from, to] = active.run.steps[active.step];
    const x = scale.x((from + to) / 2);
    if (x < scale.left || x > scale.right) return [];
    const line = svg("line", { class: "il-cursor", x1: x, x2: x, y1: PAD.top, y2: height - PAD.bottom });
    if (active.run !== run) return [line];
    const a = Math.max(scale.x(from), scale.left);
    const b = Math.min(scale.x(to), scale.right);
    const size = { width: Math.max(b - a + 1, 3), height: ROW };
    return [line, svg("rect", { class: "il-active", x: a - 1, y: PAD.top + ROW * active.row, ...size })];
  }

  function panel(run, data, view, width, active) {
    const height = PAD.top + ROW * run.rows + PAD.bottom;
    const scale = scaleOf(view, width);
    return svg("svg", { viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" }, [
      ...axes(run, scale, view, height),
      ...bars(run, data, scale, view),
      ...event(data, scale, height),
      ...cursor(run, active, scale, height),
    ]);
  }

  /* The hatching of stalls, which every panel and the key refer to. */
  function hatch() {
    const turned = { patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" };
    const line = svg("line", { class: "il-hatch", x1: 0, x2: 0, y1: 0, y2: 6 });
    const pattern = svg("pattern", { id: "il-hatch", width: 6, height: 6, ...turned }, [line]);
    return svg("svg", { width: 0, height: 0, "aria-hidden": "true" }, [svg("defs", {}, [pattern])]);
  }

  Object.assign(window.interleave, { panel, hatch, scaleOf, rowAt, count });
})();
