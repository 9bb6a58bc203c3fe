/* What the two drawings share: building elements, and reading the data of a page. A classic script without a
   module or a request, since browsers refuse both on file://. */

"use strict";

(function () {
  const SVG = "http://www.w3.org/2000/svg";

  function fill(node, attributes, children) {
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "text") node.textContent = value;
      else if (value !== null && value !== undefined) node.setAttribute(name, value);
    }
    node.append(...(children || []).filter(Boolean));
    return node;
  }

  const el = (tag, attributes, children) => fill(document.createElement(tag), attributes, children);
  const svg = (tag, attributes, children) => fill(document.createElementNS(SVG, tag), attributes, children);

  /* A number to so many significant digits, thousands separated, without an exponent. */
  function spoken(value, digits) {
    if (value === 0) return "0";
    const decimals = Math.max(0, digits - 1 - Math.floor(Math.log10(Math.abs(value)) + 1e-12));
    const rounded = Number(value.toPrecision(digits));
    return rounded.toLocaleString("en-US", { minimumFractionDigits: decimals, maximumFractionDigits: decimals });
  }

  function seconds(value) {
    return value < 1 ? `${spoken(value * 1e3, value * 1e3 < 10 ? 2 : 3)} ms` : `${spoken(value, 3)} s`;
  }

  const badge = (mark) =>
    el("abbr", { class: `il-mark il-mark-${mark.name}`, title: mark.meaning, text: mark.label });

  /* A labelled control: the label, what is chosen in words, and the native input under both. */
  function control(id, label, input, output) {
    input.id = id;
    const said = output && fill(output, { for: id, class: "il-said" });
    return el("div", { class: "il-control" }, [el("label", { for: id, text: label }), said, input]);
  }

  /* Fill the place of a drawing and hide its still picture; a fault leaves the picture where it is. */
  function play(name, build) {
    const place = document.getElementById(`il-${name}`);
    const data = document.getElementById(`il-${name}-data`);
    if (!place || !data) return;
    build(place, JSON.parse(data.textContent));
    place.hidden = false;
    document.getElementById(`il-${name}-still`).hidden = true;
  }

  /* Call with the width of an element now and whenever it changes. */
  function onWidth(node, draw) {
    let last = 0;
    new ResizeObserver(() => {
      const width = Math.floor(node.clientWidth);
      if (width && width !== last) draw((last = width));
    }).observe(node);
  }

  window.interleave = { el, svg, fill, spoken, seconds, badge, control, play, onWidth };
})();
