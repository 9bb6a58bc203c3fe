/* The explorer: four choices on a grid of simulated points, the numbers there beside those of whole prompts, and
   a chart of all budgets at the chosen load and mixture. */

"use strict";

(function () {
  const { el, svg, spoken, seconds, badge, control, play, onWidth, chart, marker } = window.interleave;

  const WORDS = {
    whole: "whole: prompts in one piece",
    padded: "padded: prompts in padded groups",
    chunked: "chunked: pieces, two forwards",
    mixed: "mixed: pieces, one forward",
  };
  const GAPS = { gap_max_s: "longest gap", gap_p90_s: "gap, 90% within" };
  const KEEPS_UP = 0.97;

  const rate = (value) => `${spoken(value, value < 0.1 ? 1 : value < 1 ? 2 : 3)}/s`;
  const percent = (share) => `${Math.round(100 * share)}%`;
  const METRICS = [
    ["served_rate", "served", rate],
    ["goodput", "served within the limits", rate],
    ["ttft_p50_s", "first token, half within", seconds],
    ["ttft_p90_s", "first token, 90% within", seconds],
    ["gap_p50_s", "gap between tokens, half within", seconds],
    ["gap_p90_s", "gap between tokens, 90% within", seconds],
    ["gap_max_s", "longest gap", seconds],
  ];

  play("explorer", (place, data) => {
    const { policies, chunk_budgets: budgets, loads, long_shares: shares } = data.axes;
    const points = data.rows.map((row) => Object.fromEntries(data.columns.map((name, i) => [name, row[i]])));
    const key = (...where) => where.join();
    const known = new Map(points.map((p) => [key(p.policy, p.chunk_budget, p.long_share, p.load), p]));
    const cuts = (policy) => points.some((p) => p.policy === policy && p.chunk_budget !== null);
    const chosen = { ...data.start, gap: "gap_max_s" };
    const find = (policy, budget) =>
      known.get(key(policy, cuts(policy) ? budget : null, chosen.long_share, chosen.load));

    /* The controls; `shown` brings each to what is chosen. */
    const shown = [];

    function select(id, label, name, words) {
      const options = Object.entries(words).map(([value, text]) => el("option", { value, text }));
      const input = el("select", {}, options);
      input.addEventListener("change", () => choose({ [name]: input.value }));
      shown.push(() => (input.value = chosen[name]));
      return control(id, label, input);
    }

    function slider(id, label, name, values, say) {
      const input = el("input", { type: "range", min: 0, max: values.length - 1, step: 1 });
      const output = el("output");
      input.addEventListener("input", () => choose({ [name]: values[Number(input.value)] }));
      shown.push(() => {
        input.value = values.indexOf(chosen[name]);
        output.textContent = say(chosen[name]);
        input.setAttribute("aria-valuetext", output.textContent);
        input.disabled = name === "chunk_budget" && !cuts(chosen.policy);
      });
      return control(id, label, input, output);
    }

    const named = Object.fromEntries(policies.map((policy) => [policy, WORDS[policy] || policy]));
    const budgetSaid = (value) =>
      cuts(chosen.policy) ? `${value.toLocaleString("en-US")} tokens a step` : "prompts are not cut";
    const controls = el("div", { class: "il-controls" }, [
      select("il-policy", "Policy", "policy", named),
      slider("il-budget", "Chunk budget", "chunk_budget", budgets, budgetSaid),
      slider("il-load", "Load", "load", loads, (value) => `${percent(value)} of capacity`),
      slider("il-share", "Long prompts", "long_share", shares, (value) => `${percent(value)} of requests`),
    ]);

    /* The numbers: a sentence that is read out when it changes, and a table. */
    const right = { class: "text-right" };
    const sentence = el("p", { class: "il-sentence", role: "status" });
    const mine = el("th", { scope: "col", ...right });
    const head = [
      el("th", { scope: "col", text: "at this load and mixture" }),
      mine,
      el("th", { scope: "col", text: "whole", ...right }),
    ];
    const cells = METRICS.map(() => [el("td", right), el("td", right)]);
    const lines = METRICS.map(([, text], i) => el("tr", {}, [el("th", { scope: "row", text }), ...cells[i]]));
    const table = el("table", { class: "table il-numbers" }, [
      el("thead", {}, [el("tr", {}, head)]),
      el("tbody", {}, lines),
    ]);

    function tell(name, here, whole) {
      mine.textContent = name;
      METRICS.forEach(([metric, , say], i) => {
        cells[i][0].textContent = say(here[metric]);
        cells[i][1].textContent = whole ? say(whole[metric]) : "–";
      });
      const behind = here.served_rate < KEEPS_UP * here.rate;
      sentence.textContent =
        `${name}: of ${rate(here.rate)} arriving, ${rate(here.served_rate)} are served, ${rate(here.goodput)} ` +
        `within the limits; first token within ${seconds(here.ttft_p90_s)} for 90%, longest gap ` +
        `${seconds(here.gap_max_s)}.` +
        (behind ? " It cannot keep up: the queue grows as long as the run, and first tokens with it." : "");
    }

    /* The chart, with the same axes for every choice, so that what moves is the points. */
    const frame = el("div", { class: "il-chart" });
    const ends = (name, low, high) => {
      const values = points.map((p) => p[name]);
      return [Math.min(...values) * low, Math.max(...values) * high];
    };
    const xLow = ends("ttft_p90_s", 0.8, 1)[0];
    let width = 0;

    function draw(name, here) {
      if (!width) return;
      const [yLow, yHigh] = ends(chosen.gap, 0.8, 1.3);
      const lines = policies.map((policy) => ({
        policy,
        points: (cuts(policy) ? budgets : [null]).map((budget) => find(policy, budget)).filter(Boolean),
      }));
      const pick = (policy, budget) => choose({ policy, chunk_budget: budget ?? chosen.chunk_budget });
      const drawn = { lines, here, name, gap: chosen.gap, gapName: GAPS[chosen.gap], limits: data.limits };
      frame.replaceChildren(chart(width, { ...drawn, xLow, yLow, yHigh, pick }));
    }

    function choose(change) {
      Object.assign(chosen, change);
      shown.forEach((show) => show());
      const name = cuts(chosen.policy) ? `${chosen.policy}, ${chosen.chunk_budget}` : chosen.policy;
      const here = find(chosen.policy, chosen.chunk_budget);
      tell(name, here, find("whole", null));
      draw(name, here);
    }

    const small = { viewBox: "-8 -8 16 16", width: 16, height: 16, "aria-hidden": "true" };
    const keys = policies.map((policy) => el("span", {}, [svg("svg", small, [marker(policy, 0, 0)]), ` ${policy}`]));
    const above = el("div", { class: "il-head" }, [
      el("p", { class: "il-legend" }, keys),
      select("il-gap", "Chart of", "gap", GAPS),
    ]);
    const origin = el("p", {}, ["All of these numbers: ", badge(data.mark)]);
    place.append(controls, sentence, above, frame, table, origin);
    choose({});
    onWidth(frame, (now) => {
      width = now;
      choose({});
    });
  });
})();
