// Charts of the page of metrics. The samples come with the stream of the page, at first all, then new ones.
"use strict";
(() => {
  const KEPT_S = 3600;
  const COLORS = 6;
  const HEIGHT = 150;
  const SIZES = ["B", "KiB", "MiB", "GiB", "TiB"];
  const known = { protocol: { times: [], charts: {} }, brokers: { times: [], charts: {} } };
  const plots = new Map();
  const windowOf = () => Number(document.getElementById("window").value);

  // The axis begins with the first sample, and shows a minute at least.
  const startOf = (range) => Math.max(range.end - windowOf(), Math.min(range.first, range.end - 60));
  const utc = (seconds) => new Date(seconds * 1000).toISOString().slice(11, 19);

  function text(value, unit) {
    if (value === null || value === undefined) return "–";
    if (unit === "seconds") {
      if (value !== 0 && Math.abs(value) < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
      return value < 120 ? `${Number(value.toPrecision(3))} s` : `${Math.round(value / 60)} min`;
    }
    if (unit.startsWith("bytes")) {
      let size = value, at = 0;
      while (size >= 1024 && at < SIZES.length - 1) { size /= 1024; at += 1; }
      return `${Number(size.toPrecision(3))} ${SIZES[at]}${unit === "bytes_rate" ? "/s" : ""}`;
    }
    const number = Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
    return unit === "rate" ? `${number}/s` : number;
  }

  // Add new samples: each series of each chart has a value or null for each time.
  function merge(source, fresh) {
    const old = known[source];
    const before = old.times.length;
    old.times.push(...fresh.times);
    for (const [name, rows] of Object.entries(fresh.charts)) {
      const chart = (old.charts[name] ??= new Map());
      for (const [label, values] of Object.entries(rows)) {
        if (!chart.has(label)) chart.set(label, new Array(before).fill(null));
        chart.get(label).push(...values);
      }
      for (const values of chart.values()) {
        while (values.length < old.times.length) values.push(null);
      }
    }
    const first = old.times.findIndex((time) => time >= (old.times.at(-1) ?? 0) - KEPT_S);
    if (first <= 0) return;
    old.times.splice(0, first);
    for (const chart of Object.values(old.charts)) {
      for (const [label, values] of chart) {
        values.splice(0, first);
        if (values.every((value) => value === null)) chart.delete(label);
      }
    }
  }

  function draw(figure) {
    const { source, chart: name, unit } = figure.dataset;
    const { times, charts } = known[source];
    const series = charts[name] ?? new Map();
    const labels = [...series.keys()].sort();
    const style = getComputedStyle(document.documentElement);
    const color = (token) => style.getPropertyValue(token).trim();
    const stroke = (at) => resolved(`var(--series-${(at % COLORS) + 1})`, figure);
    const end = times.at(-1) ?? Date.now() / 1000;
    const key = JSON.stringify([labels, document.documentElement.dataset.theme, figure.clientWidth, windowOf()]);
    let plot = plots.get(figure);
    const rows = [times, ...labels.map((label) => series.get(label))];
    if (plot && plot.key === key) {
      plot.range.first = times[0] ?? end;
      plot.range.end = end;
      plot.chart.setData(rows);
    } else {
      plot?.chart.destroy();
      const range = { first: times[0] ?? end, end };
      const muted = resolved("var(--muted)", figure), line = resolved("var(--line)", figure);
      const font = `11px ${color("--sans")}`;
      const axis = { stroke: muted, font, grid: { stroke: line, width: 1 }, ticks: { show: false } };
      const chart = new uPlot({
        width: figure.querySelector(".plot").clientWidth, height: HEIGHT, legend: { show: false },
        cursor: { y: false, points: { size: 5 } },
        scales: { x: { range: () => [startOf(range), range.end] },
          y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
        axes: [{ ...axis, space: 70, values: (_, ticks) => ticks.map(utc) }, { ...axis, size: 66, values: (_, ticks) => ticks.map((value) => text(value, unit)) }],
        series: [{}, ...labels.map((label, at) => ({ label, stroke: stroke(at), width: 1.5, points: { show: false },
          dash: at >= COLORS ? [5, 3] : undefined }))],
        hooks: { setCursor: [() => legend(figure, labels, stroke, series, chart?.cursor.idx ?? null, unit)] },
      }, rows, figure.querySelector(".plot"));
      plot = { key, chart, range };
      plots.set(figure, plot);
    }
    legend(figure, labels, stroke, series, plot.chart.cursor.idx ?? null, unit);
  }

  // Names of series are texts of clients: they are set as text only.
  function legend(figure, labels, stroke, series, at, unit) {
    const box = figure.querySelector(".legend");
    box.replaceChildren(...labels.map((label, number) => {
      const values = series.get(label) ?? [];
      const item = document.createElement("span");
      const mark = document.createElement("i");
      mark.style.background = stroke(number);
      const value = document.createElement("b");
      value.textContent = text(at === null ? values.at(-1) : values[at], unit);
      item.append(mark, `${label} `, value);
      return item;
    }));
    if (!labels.length) box.textContent = "no values";
  }

  // A canvas needs a color without light-dark().
  function resolved(value, figure) {
    const probe = document.createElement("span");
    probe.style.color = value;
    figure.append(probe);
    const found = getComputedStyle(probe).color;
    probe.remove();
    return found;
  }

  const figures = () => document.querySelectorAll("figure.chart");
  const drawAll = () => figures().forEach(draw);
  document.addEventListener("samples", ({ detail: fresh }) => {
    if (fresh.whole) Object.values(known).forEach((each) => Object.assign(each, { times: [], charts: {} }));
    merge("protocol", fresh.protocol);
    merge("brokers", fresh.brokers);
    drawAll();
  });
  document.addEventListener("themechange", drawAll);
  document.getElementById("window").addEventListener("change", drawAll);
  addEventListener("resize", drawAll);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    plots.forEach((plot) => plot.chart.destroy());
    plots.clear();
    drawAll();
  });
})();
