(function () {
  "use strict";
  const root = document.documentElement;
  const dark = JSON.parse(document.getElementById("dark-colours").textContent);
  const config = {
    responsive: true, displaylogo: false, scrollZoom: false,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d"],
    // without a mouse the bar would always be there, over the legend
    displayModeBar: window.matchMedia("(hover: hover)").matches ? "hover" : false,
  };
  const charts = Array.from(document.querySelectorAll(".chart")).map((box) => ({
    box, spec: JSON.parse(document.getElementById(box.id + "-spec").textContent), drawn: false, step: null,
  }));
  const PRINTED = 660;  // pixels that fit a page of paper
  let printing = false;

  // ---- light and dark
  const preferred = window.matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : preferred.matches);

  function coloured(value) {
    if (typeof value === "string") return dark[value] || value;
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
    }
    return value;
  }

  const button = document.getElementById("theme");
  function showTheme() {
    button.querySelector("span").textContent = isDark() ? "Light" : "Dark";
    charts.filter((chart) => chart.drawn).forEach(draw);
  }
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    showTheme();
  });
  preferred.addEventListener("change", showTheme);

  // ---- charts: drawn when first seen, since one that is hidden has no width
  function draw(chart) {
    const traces = chart.spec.data.map((trace, number) =>
      Object.assign({}, trace, chart.step === null ? {} : chart.spec.steps[chart.step][2][number]));
    const layout = Object.assign({}, chart.spec.layout);
    const narrow = printing ? false : chart.box.clientWidth < 430;
    if (printing) layout.width = PRINTED;
    if (narrow) {
      layout.margin = Object.assign({}, layout.margin, { l: 44, r: 8 });
      layout.font = Object.assign({}, layout.font, { size: 11 });
    }
    const shown = isDark() ? coloured({ traces, layout }) : { traces, layout };
    Plotly.react(chart.box, shown.traces, shown.layout, config);
    chart.drawn = true;
  }
  function drawIn(panel) {
    charts.filter((chart) => panel.contains(chart.box)).forEach((chart) => {
      if (!chart.drawn) draw(chart);
      else Plotly.Plots.resize(chart.box);
    });
  }

  // ---- tables that are wider than the page say so
  function showScroll() {
    document.querySelectorAll(".scroll").forEach((box) => {
      const more = box.scrollWidth - box.clientWidth - box.scrollLeft > 4;
      box.classList.toggle("more", more);
    });
  }
  document.querySelectorAll(".scroll").forEach((box) => box.addEventListener("scroll", showScroll, { passive: true }));
  window.addEventListener("resize", showScroll);
  document.querySelectorAll("details").forEach((box) => box.addEventListener("toggle", showScroll));

  // ---- sliders
  document.querySelectorAll(".slider input").forEach((input) => {
    const chart = charts.find((one) => one.box.id === input.dataset.chart);
    input.addEventListener("input", () => {
      chart.step = Number(input.value);
      const [label, sentence] = chart.spec.steps[chart.step];
      document.getElementById(chart.box.id + "-value").textContent = label;
      document.getElementById(chart.box.id + "-told").textContent = sentence;
      input.setAttribute("aria-valuetext", label);
      draw(chart);
    });
    input.setAttribute("aria-valuetext", chart.spec.steps[Number(input.value)][0]);
  });

  // ---- tabs
  const tabs = Array.from(document.querySelectorAll("[role=tab]"));
  const panels = Array.from(document.querySelectorAll(".panel"));
  let current = 0;
  function select(number, focus) {
    current = number;
    tabs.forEach((tab, at) => {
      tab.setAttribute("aria-selected", at === number ? "true" : "false");
      tab.tabIndex = at === number ? 0 : -1;
    });
    panels.forEach((panel, at) => { panel.hidden = at !== number; });
    if (focus && tabs.length) tabs[number].focus();
    drawIn(panels[number]);
    showScroll();
  }
  tabs.forEach((tab, number) => {
    tab.addEventListener("click", () => { select(number, false); window.scrollTo(0, 0); });
    tab.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowLeft: -1 };
      const ends = { Home: 0, End: tabs.length - 1 };
      if (event.key in steps) select((number + steps[event.key] + tabs.length) % tabs.length, true);
      else if (event.key in ends) select(ends[event.key], true);
      else return;
      event.preventDefault();
    });
  });
  const target = location.hash ? document.getElementById(location.hash.slice(1)) : null;
  const wanted = target ? panels.findIndex((panel) => panel.contains(target)) : -1;
  select(wanted < 0 ? 0 : wanted, false);

  // ---- paper: everything is shown, in the light colours
  window.addEventListener("beforeprint", () => {
    printing = true;
    panels.forEach((panel) => { panel.hidden = false; });
    charts.forEach(draw);
  });
  window.addEventListener("afterprint", () => {
    printing = false;
    charts.forEach((chart) => { chart.drawn = false; });
    select(current, false);
  });
  showTheme();
})();
