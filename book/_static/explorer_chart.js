/* The explorer's chart: time to the first token across, the gap up, both logarithmic; a line a policy with a
   marker a chunk budget, the chosen one ringed. Draws what it is given and decides nothing. */

"use strict";

(function () {
  const { svg, fill, seconds } = window.interleave;

  const WORST_S = 100; // waits beyond are those of a queue that grows as long as the run
  const GAPS_MS = [20, 50, 100, 200, 500, 1000, 2000, 5000, 10000];
  const R = 5;

  /* A length on the screen for a value; values beyond the range lie on its edge. */
  function logScale(low, high, from, to) {
    return (value) =>
      from + ((to - from) * Math.log(Math.min(Math.max(value, low), high) / low)) / Math.log(high / low);
  }

  const text = (name, x, y, words, anchor) =>
    svg("text", { class: name, x, y, "text-anchor": anchor || "middle", text: words });

  /* The shapes of the report's figures: a thin diamond, a square, a circle, a diamond. */
  function marker(policy, x, y, attributes) {
    const diamond = (w, h) => `M${x} ${y - h}L${x + w} ${y}L${x} ${y + h}L${x - w} ${y}Z`;
    const shapes = {
      whole: diamond(4, R + 2),
      padded: `M${x - R} ${y - R}h${2 * R}v${2 * R}h${-2 * R}Z`,
      mixed: diamond(R + 1.5, R + 1.5),
    };
    const circle = `M${x - R} ${y}a${R} ${R} 0 1 0 ${2 * R} 0a${R} ${R} 0 1 0 ${-2 * R} 0Z`;
    return svg("path", { class: `il-dot il-${policy}`, d: shapes[policy] || circle, ...attributes });
  }

  /* What is drawn: { lines: [{policy, points}], here, name, gap, gapName, limits, xLow, yLow, yHigh, pick } */
  function chart(width, drawn) {
    const height = Math.max(300, Math.min(380, width * 0.55));
    const box = { left: 46, right: width - 14, top: 30, bottom: height - 42 };
    const x = logScale(drawn.xLow, WORST_S, box.left, box.right);
    const y = logScale(drawn.yLow, drawn.yHigh, box.bottom, box.top);
    const at = (point) => [x(point.ttft_p90_s), y(point[drawn.gap])];
    const parts = [...limits(drawn, x, y, box), ...axes(drawn, x, y, box)];
    for (const line of drawn.lines) parts.push(...curve(line, at, drawn));
    parts.push(...ring(at(drawn.here), drawn.name, box));
    const label = `Time to the first token against ${drawn.gapName}, a mark a chunk budget; ${drawn.name} is ringed.`;
    const frame = { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": label };
    return svg("svg", frame, parts);
  }

  function limits(drawn, x, y, box) {
    const top = y(drawn.limits.max_gap_s);
    const right = x(drawn.limits.ttft_s);
    const area = { x: box.left, y: top, width: right - box.left, height: box.bottom - top };
    return [
      svg("rect", { class: "il-limits", ...area }),
      text("il-note", right - 5, box.bottom - 6, "within the limits", "end"),
    ];
  }

  function axes(drawn, x, y, box) {
    const parts = [];
    for (const value of [0.1, 1, 10, WORST_S]) {
      const last = value === WORST_S;
      parts.push(svg("line", { class: "il-grid", x1: x(value), x2: x(value), y1: box.top, y2: box.bottom }));
      parts.push(text("il-tick", x(value), box.bottom + 16, last ? `≥ ${value}` : value, last ? "end" : "middle"));
    }
    for (const ms of GAPS_MS.filter((ms) => ms / 1e3 >= drawn.yLow && ms / 1e3 <= drawn.yHigh)) {
      const height = y(ms / 1e3);
      parts.push(svg("line", { class: "il-grid", x1: box.left, x2: box.right, y1: height, y2: height }));
      parts.push(text("il-tick", box.left - 6, height + 4, ms.toLocaleString("en-US"), "end"));
    }
    parts.push(text("il-axis", (box.left + box.right) / 2, box.bottom + 35, "first token, 90% within (s)"));
    parts.push(text("il-axis", 0, 14, `${drawn.gapName} (ms)`, "start"));
    return parts;
  }

  function curve({ policy, points }, at, drawn) {
    const path = points.map((point) => at(point).join()).join(" ");
    const dots = points.map((point) => {
      const budget = point.chunk_budget;
      const dot = marker(policy, ...at(point), { "data-policy": policy, "data-budget": budget });
      const name = budget === null ? policy : `${policy}, ${budget} tokens`;
      dot.addEventListener("click", () => drawn.pick(policy, budget));
      return fill(dot, {}, [
        svg("title", { text: `${name}: ${seconds(point.ttft_p90_s)}, ${seconds(point[drawn.gap])}` }),
      ]);
    });
    return [svg("polyline", { class: `il-line il-${policy}`, points: path }), ...dots];
  }

  function ring([x, y], name, box) {
    const left = x > (box.left + box.right) / 2;
    return [
      svg("circle", { class: "il-ring", cx: x, cy: y, r: 11, "data-x": x.toFixed(1), "data-y": y.toFixed(1) }),
      text("il-chosen", x + (left ? -16 : 16), Math.max(y - 8, box.top + 10), name, left ? "end" : "start"),
    ];
  }

  Object.assign(window.interleave, { chart, marker });
})();
