// The pages of txtopo: the list of topologies, one topology with its timeline, one state.
//
// Without a framework and without a build step. All text of a run goes into the page as text,
// never as HTML. What is kept is bounded: a thousand txids, a hundred failures, an hour of samples.
"use strict";

(() => {
  const TXIDS_MAX = 1000;
  const FAILURES_MAX = 100;
  const ENDED = new Set(["stopped", "failed", "killed"]);
  const MOODS = {
    running: "good", failed: "bad", killed: "bad", "leadership lost": "bad", restarting: "bad",
    deactivated: "rest", standby: "rest", stopped: "rest", stopping: "rest",
  };
  const find = (selector) => document.querySelector(selector);
  const known = (value) => typeof value === "number" && Number.isFinite(value);

  // ---------------------------------------------------------------- numbers and times as text

  const THIN = "\u202f";

  function number(value, digits = 0) {
    if (!known(value)) return "–";
    const [whole, part] = Math.abs(value).toFixed(digits).split(".");
    const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN);
    return (value < 0 ? "−" : "") + grouped + (part ? `.${part}` : "");
  }

  // How far a run is behind: records, or else the units that its spouts know.
  function lagText(run) {
    if (known(run.lag_records)) return number(run.lag_records);
    const units = Object.entries(run.lag || {}).filter(([, count]) => known(count));
    return units.map(([unit, count]) => `${number(count)} ${unit}`).join(", ") || "–";
  }

  const rate = (value) => number(value, known(value) && value > 0 && value < 10 ? 1 : 0);

  function duration(seconds) {
    if (!known(seconds)) return "–";
    const s = Math.max(0, seconds);
    if (s < 0.00095) return `${number(s * 1e6)}${THIN}µs`;
    if (s < 0.00995) return `${(s * 1e3).toFixed(1)}${THIN}ms`;
    if (s < 0.9995) return `${number(s * 1e3)}${THIN}ms`;
    if (s < 9.95) return `${s.toFixed(1)}${THIN}s`;
    return span(s);
  }

  function span(seconds) {
    const s = Math.max(0, Math.round(seconds));
    if (s < 60) return `${s}${THIN}s`;
    if (s < 3600) return `${Math.floor(s / 60)}${THIN}min${s < 600 && s % 60 ? ` ${s % 60}${THIN}s` : ""}`;
    if (s < 86400) return `${Math.floor(s / 3600)}${THIN}h${Math.floor(s / 60) % 60 ? ` ${Math.floor(s / 60) % 60}${THIN}min` : ""}`;
    return `${number(Math.floor(s / 86400))}${THIN}d${Math.floor(s / 3600) % 24 ? ` ${Math.floor(s / 3600) % 24}${THIN}h` : ""}`;
  }

  const ago = (at_s) => known(at_s) ? (clock.now() - at_s < 1 ? "now" : `${span(clock.now() - at_s)} ago`) : "–";

  function clockTime(at_s, step_s = 1) {
    if (!known(at_s) || Math.abs(at_s) > 8.6e12) return "–";
    const digits = step_s >= 1 ? 0 : step_s >= 0.1 ? 1 : step_s >= 0.01 ? 2 : 3;
    const date = new Date(Math.round(at_s * 1e4) / 10);
    const two = (n) => String(n).padStart(2, "0");
    const fraction = digits ? `.${String(date.getMilliseconds()).padStart(3, "0").slice(0, digits)}` : "";
    return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}${fraction}`;
  }

  function dateTime(at_s) {
    if (!known(at_s) || Math.abs(at_s) > 8.6e12) return "–";
    const date = new Date(at_s * 1000);
    const two = (n) => String(n).padStart(2, "0");
    return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clockTime(at_s)}`;
  }

  const plural = (count, one, many) => `${number(count)} ${count === 1 ? one : many}`;
  const asText = (value) => value === null || value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);

  // The server's clock. The browser's own only measures what has passed since the last answer.
  const clock = {
    at_s: Date.now() / 1000, since_ms: performance.now(),
    now() { return this.at_s + (performance.now() - this.since_ms) / 1000; },
    set(at_s) { if (known(at_s)) { this.at_s = at_s; this.since_ms = performance.now(); } },
    // An answer cannot come from the future, so the clock is behind if it seems to.
    atLeast(at_s) { if (known(at_s) && at_s > this.now()) this.set(at_s); },
  };

  // ---------------------------------------------------------------- elements

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
    }
    made.append(...children);
    return made;
  }

  function svg(name, attributes = {}) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // Touches the page only where the text has changed.
  function say(node, text) {
    if (node && node.textContent !== text) node.textContent = text;
  }

  function show(node, shown) {
    if (node && node.hidden === shown) node.hidden = !shown;
  }

  function link(cell, text, href) {
    let anchor = cell.firstElementChild;
    if (!anchor || anchor.tagName !== "A") {
      anchor = element("a");
      cell.replaceChildren(anchor);
    }
    say(anchor, text);
    if (anchor.getAttribute("href") !== href) anchor.setAttribute("href", href);
  }

  // Fills a table, and reuses its rows. A column has name, cell(item) that gives text or, with
  // fill(td, item), does what it likes.
  function fill(table, columns, items) {
    const head = table.tHead, body = table.tBodies[0];
    const names = columns.map((column) => column.name).join();
    if (table.columns !== names) {
      table.columns = names;
      head.replaceChildren();
      body.replaceChildren();
      const row = head.insertRow();
      for (const column of columns) {
        row.append(element("th", { scope: "col", class: column.number ? "number" : null }, column.name));
      }
    }
    while (body.rows.length > items.length) body.deleteRow(-1);
    items.forEach((item, index) => {
      let row = body.rows[index];
      if (!row) {
        row = body.insertRow();
        for (const column of columns) {
          row.append(element("td", { class: [column.number && "number", column.class].filter(Boolean).join(" ") || null }));
        }
      }
      columns.forEach((column, at) => {
        if (column.fill) column.fill(row.cells[at], item);
        else say(row.cells[at], column.cell(item));
      });
    });
  }

  // Fills a list of figures: pairs of a name and what it is, and whether it is bad.
  function showPairs(list, pairs) {
    while (list.children.length > pairs.length) list.lastElementChild.remove();
    pairs.forEach(([name, value, unit, bad], index) => {
      let pair = list.children[index];
      if (!pair) {
        pair = element("div", {}, element("dt"), element("dd", {}, element("span"), element("small")));
        list.append(pair);
      }
      say(pair.firstChild, name);
      say(pair.lastChild.firstChild, value);
      say(pair.lastChild.lastChild, unit ? ` ${unit}` : "");
      pair.lastChild.classList.toggle("bad", Boolean(bad));
    });
  }

  function sayStatus(node, status) {
    say(node, status || "unknown");
    const mood = MOODS[status] || "rest";
    if (node.dataset.mood !== mood) node.dataset.mood = mood;
  }

  function notice(text, calm = false) {
    const node = find("#notice");
    say(node, text || "");
    node.classList.toggle("calm", calm);
    show(node, Boolean(text));
  }

  function connection(state, text) {
    const node = find("#connection");
    if (node.dataset.state !== state) node.dataset.state = state;
    say(node, text);
  }

  // ---------------------------------------------------------------- asking the server

  class Refused extends Error {
    constructor(status, message) {
      super(message);
      this.status = status;
    }
  }

  async function ask(path, options = {}) {
    const answer = await fetch(path, { cache: "no-store", credentials: "same-origin", ...options });
    const text = await answer.text();
    let body = {};
    try {
      body = JSON.parse(text);
    } catch {
      body = { error: text.slice(0, 200) || answer.statusText };
    }
    if (answer.status === 401) {
      location.assign("/login");
    }
    if (!answer.ok) throw new Refused(answer.status, body.error || `the server answered ${answer.status}`);
    return { body, date_s: Date.parse(answer.headers.get("date")) / 1000 };
  }

  const under = (id) => `/api/v1/topologies/${encodeURIComponent(id)}`;
  const pageOf = (id) => `/topologies/${encodeURIComponent(id)}`;
  const pageOfState = (id, state) => `${pageOf(id)}/states/${encodeURIComponent(state)}`;

  // Calls work() now and then again after seconds, as long as the page can be seen.
  function repeat(seconds, work) {
    let timer = null;
    const turn = async () => {
      clearTimeout(timer);
      if (document.hidden) return;
      try {
        await work();
      } finally {
        timer = setTimeout(turn, seconds * 1000);
      }
    };
    document.addEventListener("visibilitychange", () => { if (!document.hidden) turn(); });
    turn();
  }

  // ---------------------------------------------------------------- the ring of txids

  class Ring {
    constructor() { this.clear(); }

    clear() {
      this.rows = new Map();
      this.order = [];
    }

    put(row) {
      if (!row || !known(row.txid)) return;
      const { order, rows } = this;
      const attempts = (Array.isArray(row.attempts) ? row.attempts : []).filter((a) => a && typeof a === "object");
      if (!rows.has(row.txid)) {
        let at = order.length;
        while (at > 0 && order[at - 1] > row.txid) at -= 1;
        order.splice(at, 0, row.txid);
      }
      const first = attempts[0];
      if (first && known(row.plan_s) && known(first.planned_at_s)) {
        attempts[0] = { ...first, planned_at_s: first.planned_at_s - Math.max(0, row.plan_s) };
      }
      rows.set(row.txid, { txid: row.txid, rows: row.rows, plan_s: row.plan_s, group: row.group, attempts });
      while (order.length > TXIDS_MAX) rows.delete(order.shift());
    }

    // The rows, newest first.
    newest() {
      const found = [];
      for (let at = this.order.length - 1; at >= 0; at -= 1) found.push(this.rows.get(this.order[at]));
      return found;
    }
  }

  const STAMPS = ["planned_at_s", "processing_at_s", "processed_at_s", "committing_at_s"];
  const ENDS = new Set(["committed", "failed", "abandoned"]);

  // The phases of an attempt: [number of the phase, from, to], with times that never go back.
  function phases(attempt, next, now_s) {
    const times = STAMPS.map((name) => attempt[name]);
    const given = [...times, attempt.ended_at_s].filter(known);
    if (!given.length) return null;
    let end = attempt.ended_at_s;
    if (!known(end)) {
      const later = next && STAMPS.map((name) => next[name]).find(known);
      end = known(later) ? later : ENDS.has(attempt.phase) ? Math.max(...given) : Math.max(now_s, ...given);
    }
    const parts = [];
    let from = null, phase = 0;
    times.forEach((at, index) => {
      if (!known(at)) return;
      if (from !== null) {
        at = Math.max(at, from);
        parts.push([phase, from, at]);
      }
      from = at;
      phase = index;
    });
    if (from === null) from = end;
    end = Math.max(end, from);
    parts.push([phase, from, end]);
    return { parts, from: parts[0][1], to: end };
  }

  // ---------------------------------------------------------------- the timeline

  const ROW = 20;
  const AXIS = 22;
  const STEPS = [1, 2, 5];

  function niceAtLeast(value) {
    const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-6)));
    for (const step of STEPS) if (step * power >= value * 0.999999) return step * power;
    return 10 * power;
  }

  class Timeline {
    constructor() {
      this.scroll = find("#timeline");
      this.canvas = this.scroll.querySelector("canvas");
      this.space = this.scroll.querySelector(".timeline-rows");
      this.labels = this.scroll.querySelector(".timeline-labels");
      this.details = find("#timeline-details");
      this.ring = new Ring();
      this.frozen = null; // what is shown while paused: {rows, now_s}
      this.chosen = null; // {txid, attempt}
      this.pointed = null;
      this.byStart = false;
      this.span_s = null;
      this.ended_s = null; // the time at which the run was last heard of
      this.wanted = null; // txid of the address, until it is there
      this.stats = { frames: 0, rows: 0, shapes: 0, taken: 0, last_ms: 0, worst_ms: 0 };
      this.listen();
      this.colours();
    }

    listen() {
      const redraw = () => this.draw();
      new ResizeObserver(redraw).observe(this.scroll);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { this.colours(); redraw(); });
      this.scroll.addEventListener("scroll", () => {
        if (this.scroll.scrollTop > ROW && !this.frozen) this.pause();
        redraw();
      }, { passive: true });
      this.scroll.addEventListener("pointermove", (event) => this.point(event));
      this.scroll.addEventListener("pointerleave", () => { this.pointed = null; redraw(); });
      this.scroll.addEventListener("click", (event) => {
        this.point(event);
        if (this.pointed) this.choose(this.pointed.txid, this.pointed.attempt);
      });
      this.scroll.addEventListener("keydown", (event) => this.key(event));
      find("#follow").addEventListener("click", () => this.frozen ? this.follow() : this.pause());
      find("#by-clock").addEventListener("click", () => this.align(false));
      find("#by-start").addEventListener("click", () => this.align(true));
      find("#span").addEventListener("change", (event) => {
        this.span_s = Number(event.target.value) || null;
        redraw();
      });
      addEventListener("hashchange", () => this.go());
      // A link to the txid that the address names already changes nothing.
      document.addEventListener("click", (event) => {
        if (event.target.closest?.("a[href^='#']")?.hash === location.hash) this.go();
      });
      this.go();
    }

    // -------- what is shown

    rows() { return this.frozen ? this.frozen.rows : this.ring.newest(); }

    now() { return this.frozen ? this.frozen.now_s : this.ended_s ?? clock.now(); }

    pause() {
      this.frozen = { rows: this.ring.newest(), now_s: this.ended_s ?? clock.now() };
      this.sayFollow();
    }

    follow() {
      this.frozen = null;
      this.chosen = null;
      this.wanted = null;
      this.scroll.scrollTop = 0;
      this.sayFollow();
      this.draw();
    }

    sayFollow() {
      const button = find("#follow");
      button.setAttribute("aria-pressed", String(!this.frozen));
      say(button, this.frozen ? "Follow" : "Following");
      button.title = this.frozen ? "Continue with the newest txids" : "Pause: keep what is shown now";
      this.draw();
    }

    align(byStart) {
      this.byStart = byStart;
      find("#by-clock").setAttribute("aria-pressed", String(!byStart));
      find("#by-start").setAttribute("aria-pressed", String(byStart));
      this.draw();
    }

    // Goes to the txid of the address, as #81204.
    go() {
      const match = /^#(\d{1,15})$/.exec(location.hash);
      if (!match) return;
      this.wanted = Number(match[1]);
      this.reach();
    }

    reach() {
      if (this.wanted === null || !this.ring.order.length) return;
      let index = this.rows().findIndex((row) => row.txid === this.wanted);
      if (index < 0 && this.frozen && this.ring.rows.has(this.wanted)) {
        this.frozen = null; // it came after the pause
        index = this.rows().findIndex((row) => row.txid === this.wanted);
      }
      if (index < 0) {
        const oldest = this.ring.order[0];
        if (this.wanted < oldest) {
          notice(`txid ${number(this.wanted)} is no longer among the last ${number(TXIDS_MAX)}; the oldest here is ${number(oldest)}`, true);
          this.wanted = null;
        }
        return;
      }
      if (!this.frozen) this.pause();
      const txid = this.wanted;
      this.wanted = null;
      show(find("#timeline-section"), true);
      this.choose(txid, null);
      this.scroll.scrollTop = (index + 0.5) * ROW - (this.scroll.clientHeight - AXIS) / 2;
      find("#timeline-section").scrollIntoView({ block: "nearest" });
    }

    stretch(rows) {
      const tall = `${AXIS + rows.length * ROW}px`;
      if (this.space.style.height !== tall) this.space.style.height = tall;
    }

    choose(txid, attempt) {
      const rows = this.rows();
      this.stretch(rows); // so that it can be scrolled to
      const index = rows.findIndex((row) => row.txid === txid);
      if (index < 0) return;
      const count = rows[index].attempts.length;
      this.chosen = { txid, attempt: attempt === null ? count - 1 : Math.max(0, Math.min(count - 1, attempt)) };
      const top = index * ROW, view = this.scroll.clientHeight - AXIS;
      if (top < this.scroll.scrollTop) this.scroll.scrollTop = top;
      else if (top + ROW > this.scroll.scrollTop + view) this.scroll.scrollTop = top + ROW - view;
      this.draw();
    }

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const moves = { ArrowUp: -1, ArrowDown: 1, PageUp: -20, PageDown: 20, Home: -Infinity, End: Infinity };
      const sides = { ArrowLeft: -1, ArrowRight: 1 };
      if (event.key === "Escape") {
        this.chosen = null;
        this.draw();
      } else if (event.key === " ") {
        if (this.frozen) this.follow();
        else this.pause();
      } else if (event.key in moves || event.key in sides) {
        if (!this.frozen) this.pause();
        const rows = this.rows();
        if (rows.length) {
          const at = this.chosen ? rows.findIndex((row) => row.txid === this.chosen.txid) : -1;
          if (at < 0) {
            this.choose(rows[event.key === "End" ? rows.length - 1 : 0].txid, null);
          } else if (event.key in sides) {
            this.choose(this.chosen.txid, this.chosen.attempt + sides[event.key]);
          } else {
            this.choose(rows[Math.max(0, Math.min(rows.length - 1, at + moves[event.key]))].txid, null);
          }
        }
      } else {
        return;
      }
      event.preventDefault();
    }

    point(event) {
      const box = this.scroll.getBoundingClientRect();
      const x = event.clientX - box.left, y = event.clientY - box.top;
      const row = y < AXIS ? null : this.rows()[Math.floor((y - AXIS + this.scroll.scrollTop) / ROW)];
      let pointed = null;
      if (row && this.scale) {
        const at_s = this.scale.time(x, row, this);
        let attempt = row.attempts.length - 1;
        while (attempt > 0 && startOf(row.attempts[attempt]) > at_s) attempt -= 1;
        pointed = { txid: row.txid, attempt };
      }
      if (pointed?.txid !== this.pointed?.txid || pointed?.attempt !== this.pointed?.attempt) {
        this.pointed = pointed;
        this.draw();
      }
    }

    // -------- drawing: once a frame, and only if something has changed

    draw() {
      if (this.drawing) return;
      this.drawing = true;
      requestAnimationFrame(() => {
        this.drawing = false;
        const start_ms = performance.now();
        this.paint();
        const taken_ms = performance.now() - start_ms;
        this.stats.frames += 1;
        this.stats.last_ms = taken_ms;
        this.stats.worst_ms = Math.max(this.stats.worst_ms, taken_ms);
      });
    }

    colours() {
      const style = getComputedStyle(document.documentElement);
      const colour = (name) => style.getPropertyValue(`--${name}`).trim();
      this.colour = {};
      for (const name of ["raised", "ink", "dim", "rule", "soft", "planned", "processing", "waiting",
        "committing", "committing-soft", "committed", "failed", "failed-soft", "abandoned"]) {
        this.colour[name] = colour(name);
      }
      this.face = colour("face") || "sans-serif";
      this.hatch = this.pattern();
    }

    pattern() {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 6;
      const pen = tile.getContext("2d");
      pen.fillStyle = this.colour["committing-soft"];
      pen.fillRect(0, 0, 6, 6);
      pen.strokeStyle = this.colour.committing;
      pen.lineWidth = 1.6;
      pen.beginPath();
      for (const x of [-6, 0, 6]) {
        pen.moveTo(x - 1, 7);
        pen.lineTo(x + 7, -1);
      }
      pen.stroke();
      return this.canvas.getContext("2d").createPattern(tile, "repeat");
    }

    size() {
      const width = this.scroll.clientWidth, height = this.scroll.clientHeight;
      const ratio = Math.min(devicePixelRatio || 1, 3);
      if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
        this.canvas.width = Math.round(width * ratio);
        this.canvas.height = Math.round(height * ratio);
        // Not an inline style in HTML: the policy allows what a script sets.
        this.canvas.style.width = `${width}px`;
        this.canvas.style.height = `${height}px`;
        this.hatch = this.pattern();
      }
      const pen = this.canvas.getContext("2d");
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return { pen, width, height, narrow: width < 560 };
    }

    paint() {
      const { pen, width, height, narrow } = this.size();
      if (!width) return;
      const rows = this.rows(), now_s = this.now();
      this.stretch(rows);
      const top = this.scroll.scrollTop;
      const first = Math.max(0, Math.floor(top / ROW));
      const seen = rows.slice(first, first + Math.ceil((height - AXIS) / ROW) + 1);
      const left = narrow ? 60 : 78, right = width - (narrow ? 92 : 272);
      const drawn = seen.map((row, index) => ({
        row, y: AXIS + (first + index) * ROW - top,
        spans: row.attempts.map((attempt, at) => phases(attempt, row.attempts[at + 1], now_s)),
      }));
      this.scale = this.byStart ? startScale(drawn, left, right, this.span_s) : clockScale(drawn, left, right, this.span_s);
      this.stats.shapes = 0;
      pen.clearRect(0, 0, width, height);
      this.paintRows(pen, drawn, width);
      this.paintGrid(pen, left, right, height);
      pen.save();
      pen.beginPath();
      pen.rect(left, AXIS, right - left + 4, height - AXIS);
      pen.clip();
      for (const each of drawn) this.paintBars(pen, each);
      if (!this.byStart) this.paintTaken(pen, drawn, rows);
      pen.restore();
      for (const each of drawn) this.paintOutcome(pen, each, right + 12, width - 8, now_s, narrow);
      this.paintAxis(pen, left, right, width);
      this.placeLabels(seen, first);
      this.sayDetails(rows, now_s);
      this.stats.rows = seen.length;
    }

    paintRows(pen, drawn, width) {
      const { chosen, pointed, colour } = this;
      for (const { row, y } of drawn) {
        if (row.txid === chosen?.txid || row.txid === pointed?.txid) {
          pen.globalAlpha = row.txid === chosen?.txid ? 1 : 0.7;
          pen.fillStyle = colour.soft;
          pen.fillRect(74, y, width, ROW);
          pen.globalAlpha = 1;
        }
      }
    }

    paintGrid(pen, left, right, height) {
      pen.strokeStyle = this.colour.rule;
      pen.lineWidth = 1;
      pen.beginPath();
      for (const [x] of this.scale.ticks) {
        pen.moveTo(Math.round(x) + 0.5, AXIS);
        pen.lineTo(Math.round(x) + 0.5, height);
      }
      pen.stroke();
    }

    paintAxis(pen, left, right, width) {
      const { colour } = this;
      pen.fillStyle = colour.raised;
      pen.fillRect(0, 0, width, AXIS);
      pen.strokeStyle = colour.rule;
      pen.beginPath();
      pen.moveTo(0, AXIS - 0.5);
      pen.lineTo(width, AXIS - 0.5);
      pen.stroke();
      pen.font = `11px ${this.face}`;
      pen.textBaseline = "middle";
      pen.fillStyle = colour.dim;
      pen.textAlign = "right";
      pen.fillText("txid", left - 12, AXIS / 2);
      pen.textAlign = "left";
      let free = left;
      for (const [x, text] of this.scale.ticks) {
        const wide = pen.measureText(text).width;
        const at = Math.max(left, x - wide / 2);
        if (at < free || at + wide > right + 12) continue;
        pen.fillText(text, at, AXIS / 2);
        free = at + wide + 14;
      }
      pen.fillText("outcome", right + 12, AXIS / 2);
    }

    paintBars(pen, { row, y, spans }) {
      const base_s = this.scale.base(row);
      row.attempts.forEach((attempt, at) => {
        const span = spans[at];
        if (!span) return;
        pen.globalAlpha = attempt.phase === "abandoned" ? 0.8 : 1;
        for (const [phase, from_s, to_s] of span.parts) {
          const x = this.scale.x(from_s - base_s);
          this.paintPhase(pen, phase, x, Math.max(1.5, this.scale.x(to_s - base_s) - x), y, attempt.phase);
        }
        pen.globalAlpha = 1;
        const end = this.scale.x(span.to - base_s);
        this.paintEnd(pen, attempt.phase, end, y);
        if (this.isMarked(row.txid, at)) {
          const from = this.scale.x(span.from - base_s);
          pen.strokeStyle = this.colour.ink;
          pen.lineWidth = 1.5;
          pen.strokeRect(from - 3, y + 1.5, Math.max(6, end - from + 12), ROW - 3);
        }
      });
    }

    isMarked(txid, at) {
      const marked = this.pointed || this.chosen;
      return marked?.txid === txid && marked.attempt === at;
    }

    paintPhase(pen, phase, x, wide, y, outcome) {
      const { colour } = this;
      this.stats.shapes += 1;
      if (phase === 2) {
        pen.strokeStyle = colour.waiting;
        pen.lineWidth = 2;
        pen.setLineDash([2, 3]);
        pen.beginPath();
        pen.moveTo(x, y + ROW / 2);
        pen.lineTo(x + wide, y + ROW / 2);
        pen.stroke();
        pen.setLineDash([]);
      } else if (outcome === "abandoned") {
        pen.strokeStyle = colour[phase === 0 ? "planned" : phase === 1 ? "processing" : "committing"];
        pen.lineWidth = 1;
        pen.setLineDash([3, 2]);
        const thin = phase === 0;
        pen.strokeRect(x + 0.5, y + (thin ? 8.5 : 5.5), Math.max(1, wide - 1), thin ? 3 : 9);
        pen.setLineDash([]);
      } else if (phase === 0) {
        pen.fillStyle = colour.planned;
        pen.fillRect(x, y + 8.5, wide, 3);
      } else if (phase === 1) {
        pen.fillStyle = colour.processing;
        pen.fillRect(x, y + 5, wide, 10);
      } else {
        pen.fillStyle = this.hatch;
        pen.fillRect(x, y + 5, wide, 10);
        pen.strokeStyle = colour.committing;
        pen.lineWidth = 1;
        if (wide > 3) pen.strokeRect(x + 0.5, y + 5.5, wide - 1, 9);
      }
    }

    paintEnd(pen, phase, x, y) {
      const { colour } = this;
      const middle = y + ROW / 2;
      if (phase === "committed") {
        pen.fillStyle = colour.committed;
        pen.fillRect(x, y + 3, 3, ROW - 6);
      } else if (phase === "failed") {
        pen.strokeStyle = colour.failed;
        pen.lineWidth = 2.2;
        pen.beginPath();
        pen.moveTo(x - 4, middle - 4.5);
        pen.lineTo(x + 5, middle + 4.5);
        pen.moveTo(x + 5, middle - 4.5);
        pen.lineTo(x - 4, middle + 4.5);
        pen.stroke();
      } else if (phase === "abandoned") {
        pen.strokeStyle = colour.failed;
        pen.lineWidth = 1.5;
        pen.beginPath();
        pen.moveTo(x + 0.5, middle - 5);
        pen.lineTo(x + 0.5, middle + 5);
        pen.stroke();
      }
    }

    // A failure of t takes t+1 … with it: a line from t up to those that it took.
    paintTaken(pen, drawn, rows) {
      const lines = new Map();
      for (const { row, y, spans } of drawn) {
        row.attempts.forEach((attempt, at) => {
          if (attempt.phase !== "abandoned" || !known(attempt.abandoned_with) || !spans[at]) return;
          const x = Math.round(this.scale.x(spans[at].to - this.scale.base(row)));
          const key = `${attempt.abandoned_with} ${Math.round(x / 3)}`;
          const line = lines.get(key) || { x, from: y, to: y, txid: attempt.abandoned_with };
          line.from = Math.min(line.from, y);
          line.to = Math.max(line.to, y);
          lines.set(key, line);
        });
      }
      this.stats.taken = lines.size;
      pen.strokeStyle = this.colour.failed;
      pen.lineWidth = 1.5;
      for (const { x, from, to, txid } of lines.values()) {
        const failed = drawn.find(({ row }) => row.txid === txid);
        const below = failed ? failed.y : txid < drawn[drawn.length - 1].row.txid ? this.scroll.clientHeight : to;
        pen.beginPath();
        pen.moveTo(x + 0.5, from + ROW / 2);
        pen.lineTo(x + 0.5, below + (failed ? ROW / 2 - 5 : 0));
        pen.stroke();
        pen.beginPath();
        pen.moveTo(x - 3, from + ROW / 2 + 3);
        pen.lineTo(x + 0.5, from + ROW / 2 - 3);
        pen.lineTo(x + 4, from + ROW / 2 + 3);
        pen.stroke();
        this.stats.shapes += 1;
      }
    }

    paintOutcome(pen, { row, y, spans }, x, end, now_s, narrow) {
      const [text, kind] = outcome(row, spans, narrow);
      pen.font = `${kind === "failed" ? "600 " : ""}${narrow ? 11 : 12}px ${this.face}`;
      pen.fillStyle = this.colour[kind === "failed" ? "failed" : kind === "committed" ? "ink" : "dim"];
      pen.textBaseline = "middle";
      pen.textAlign = "left";
      pen.fillText(fitted(pen, text, end - x), x, y + ROW / 2 + 0.5);
    }

    // The txids are links. As many are kept as rows can be seen.
    placeLabels(seen, first) {
      const { labels } = this;
      while (labels.children.length > seen.length) labels.lastElementChild.remove();
      while (labels.children.length < seen.length) labels.append(element("a", { tabindex: "-1" }));
      seen.forEach((row, index) => {
        const label = labels.children[index];
        const top = `${AXIS + (first + index) * ROW}px`;
        if (label.style.top !== top) label.style.top = top;
        if (label.txid !== row.txid) {
          label.txid = row.txid;
          label.textContent = number(row.txid);
          label.setAttribute("href", `#${row.txid}`);
        }
        const last = row.attempts[row.attempts.length - 1];
        const state = row.attempts.some((attempt) => attempt.phase === "failed") && last?.phase !== "committed" ? "failed" : last?.phase || "";
        if (label.dataset.state !== state) label.dataset.state = state;
        if ((row.txid === this.chosen?.txid) !== label.hasAttribute("aria-current")) label.toggleAttribute("aria-current");
      });
    }

    sayDetails(rows, now_s) {
      const marked = this.pointed || this.chosen;
      const row = marked && rows.find((each) => each.txid === marked.txid);
      const parts = row ? detailsOf(row, marked.attempt, now_s) : null;
      const text = parts ? JSON.stringify(parts) : "";
      if (text === this.said) return;
      this.said = text;
      this.details.setAttribute("aria-live", this.pointed ? "off" : "polite");
      this.details.replaceChildren(...(parts || [[null, "Point at a row, or choose one with the arrow keys, for its details. Space pauses."]]).map(([name, value, kind]) => {
        if (kind === "title") return element("b", {}, value);
        const part = element("span", { class: kind || null });
        if (name) part.append(element("i", {}, name));
        part.append(value);
        return part;
      }));
      this.details.classList.toggle("note", !parts);
    }
  }

  const startOf = (attempt) => STAMPS.map((name) => attempt[name]).find(known) ?? attempt.ended_at_s ?? Infinity;

  function scaleOf(from, to, left, right, base, label) {
    const wide = Math.max(10, right - left);
    const step = niceAtLeast(((to - from) / wide) * 90);
    const ticks = [];
    for (let at = Math.ceil(from / step); at * step <= to && ticks.length < 50; at += 1) {
      ticks.push([left + ((at * step - from) / (to - from)) * wide, label(at * step, step)]);
    }
    return {
      ticks, base,
      x: (at) => left + ((at - from) / (to - from)) * wide,
      time: (x, row) => base(row) + from + ((x - left) / wide) * (to - from),
    };
  }

  // All rows on one clock. The span that shows all is rounded up, so that it changes seldom. Times
  // are counted from a moment nearby: the step of a tick is small beside seconds since 1970.
  function clockScale(drawn, left, right, span_s) {
    let from = Infinity, to = -Infinity;
    for (const { spans } of drawn) {
      for (const span of spans) {
        if (!span) continue;
        from = Math.min(from, span.from);
        to = Math.max(to, span.to);
      }
    }
    if (!(to >= from)) [from, to] = [0, 1];
    const all = span_s || fine(Math.max(to - from, 0.001) * 1.02);
    const origin = Math.floor(to);
    return scaleOf(to - all - origin, to - origin, left, right, () => origin, (at, step) => clockTime(origin + at, step));
  }

  // Each row from the start of its own plan.
  function startScale(drawn, left, right, span_s) {
    const first = (row) => row.attempts.length ? Math.min(...row.attempts.map(startOf)) : 0;
    let most = 0.001;
    for (const { row, spans } of drawn) {
      for (const span of spans) if (span) most = Math.max(most, span.to - first(row));
    }
    return scaleOf(0, span_s || fine(most), left, right, first, (at) => at ? duration(at) : "0");
  }

  // Rounds up to about two digits.
  function fine(value) {
    const power = 10 ** Math.floor(Math.log10(value));
    return (Math.ceil((value / power) * 5) / 5) * power;
  }

  function fitted(pen, text, wide) {
    if (pen.measureText(text).width <= wide) return text;
    let low = 0, high = Math.min(text.length, 200);
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (pen.measureText(`${text.slice(0, middle)}…`).width <= wide) low = middle;
      else high = middle - 1;
    }
    return `${text.slice(0, low).trimEnd()}…`;
  }

  const lengthOf = (span, phase) => {
    const parts = span ? span.parts.filter(([each]) => each === phase) : [];
    return parts.length ? parts.reduce((sum, [, from, to]) => sum + to - from, 0) : null;
  };

  function outcome(row, spans, narrow) {
    const last = row.attempts.length - 1;
    if (last < 0) return ["–", "unknown"];
    const attempt = row.attempts[last], span = spans[last];
    const failures = row.attempts.filter((each) => each.phase === "failed").length;
    const again = last ? (narrow ? ` ×${last + 1}` : ` · ${last + 1} attempts`) : "";
    switch (attempt.phase) {
      case "committed": {
        const took = duration(lengthOf(span, 3));
        if (narrow) return [`✓ ${took}${again}`, "committed"];
        return [`committed ${took}${known(row.rows) ? ` · ${plural(row.rows, "row", "rows")}` : ""}${again}`, "committed"];
      }
      case "failed": {
        const failure = attempt.failure || {};
        if (narrow) return [`✕ ${failure.component || failure.cause || "failed"}`, "failed"];
        return [`failed${failure.component ? ` in ${failure.component}` : ""}: ${failure.cause || "cause unknown"}`, "failed"];
      }
      case "abandoned":
        if (!known(attempt.abandoned_with)) return [narrow ? "abandoned" : "abandoned: the term has ended", "abandoned"];
        return [narrow ? `↑ ${number(attempt.abandoned_with)}` : `abandoned with ${number(attempt.abandoned_with)}`, "abandoned"];
      default: {
        const name = (narrow ? { planned: "plan", processing: "runs", processed: "waits", committing: "commits" } : { processed: "waits" })[attempt.phase] || asText(attempt.phase);
        const phase = span ? span.parts[span.parts.length - 1] : null;
        return [`${name}${phase ? ` ${duration(phase[2] - phase[1])}` : ""}${failures && !narrow ? ` · ${plural(failures, "failure", "failures")} before` : again}`, "open"];
      }
    }
  }

  function detailsOf(row, at, now_s) {
    const attempt = row.attempts[at];
    const parts = [[null, `txid ${number(row.txid)}`, "title"]];
    if (!attempt) return [...parts, [null, "no attempt is known"]];
    const span = phases(attempt, row.attempts[at + 1], now_s);
    parts.push([null, `attempt ${asText(attempt.attempt)} of epoch ${asText(attempt.epoch)} (${at + 1} of ${row.attempts.length} shown)`]);
    parts.push([null, attempt.phase === "abandoned" && known(attempt.abandoned_with) ? `abandoned: the failure of ${number(attempt.abandoned_with)} took it along` : asText(attempt.phase)]);
    if (known(row.rows)) parts.push(["rows", number(row.rows)]);
    if (at === 0 && known(row.plan_s)) parts.push(["plan", duration(row.plan_s)]);
    if (span) parts.push(["at", dateTime(span.from)]);
    ["planned", "processing", "waited", "commit"].forEach((name, phase) => {
      const took = lengthOf(span, phase);
      if (took !== null) parts.push([name, duration(took)]);
    });
    if (span) parts.push(["in all", duration(span.to - span.from)]);
    if (attempt.phase === "committed" && Array.isArray(row.group) && row.group[0] < row.group[1]) parts.push(["written together", `${number(row.group[0])} to ${number(row.group[1])}`]);
    if (attempt.job) parts.push(["job", asText(attempt.job)]);
    const failure = attempt.failure;
    if (failure) {
      const times = known(failure.failures) ? `, ${plural(failure.failures, "failure", "failures")} in a row` : "";
      parts.push([`${asText(failure.kind)}${failure.component ? ` in ${failure.component}` : ""}${times}:`, asText(failure.cause), "cause"]);
    }
    return parts;
  }

  // ---------------------------------------------------------------- the last hour

  const MINUTES = 60;

  const LATENCIES = ["plan", "process", "wait", "commit"];

  function charts(kind) {
    const plain = kind === "at-least-once"
      ? [["rows_per_second", "tuples/s", rate], ["acked_per_second", "acked/s", rate], ["pending", "pending", number]]
      : [["rows_per_second", "rows/s", rate], ["lag_records", "lag", number]];
    const list = plain.map(([field, title, text]) => ({ title, text, lines: [[field, "line"]] }));
    if (kind !== "at-least-once") {
      for (const name of LATENCIES) {
        list.push({ title: name, text: duration, log: true, lines: [[`${name}_p50_s`, "p50"], [`${name}_p99_s`, "p99"]] });
      }
    }
    return list;
  }

  class Charts {
    constructor(node) {
      this.node = node;
      this.samples = [];
      this.cursor = null;
      node.addEventListener("pointermove", (event) => {
        const plot = event.target.closest?.("svg");
        if (!plot) return;
        const box = plot.getBoundingClientRect();
        this.cursor = Math.max(0, Math.min(1, (event.clientX - box.left) / box.width));
        this.paint();
      });
      node.addEventListener("pointerleave", () => { this.cursor = null; this.paint(); });
    }

    set(samples, kind) {
      this.samples = (Array.isArray(samples) ? samples : []).filter((s) => s && known(s.at_s)).slice(-400);
      this.kind = kind;
      this.paint();
    }

    paint() {
      const list = this.samples.length ? charts(this.kind) : [];
      while (this.node.children.length > list.length) this.node.lastElementChild.remove();
      while (this.node.children.length < list.length) {
        this.node.append(element("figure", { class: "chart" }, element("figcaption", {}, element("b"), element("span")), element("div", { class: "chart-plot" }), element("div", { class: "chart-times" }, element("span"), element("span", {}, "now"))));
      }
      const last = this.samples[this.samples.length - 1];
      const to = last ? last.at_s : 0;
      // A run that is young gets the whole width: an hour, or what there is of it.
      const length = this.samples.length ? Math.min(MINUTES * 60, Math.max(60, to - this.samples[0].at_s)) : MINUTES * 60;
      const latencies = this.samples.flatMap((s) => LATENCIES.flatMap((name) => [s[`${name}_p50_s`], s[`${name}_p99_s`]])).filter((v) => known(v) && v > 0);
      const decades = latencies.length ? [Math.floor(Math.log10(Math.min(...latencies))), Math.ceil(Math.log10(Math.max(...latencies)) + 1e-9)] : [-3, 0];
      if (decades[1] <= decades[0]) decades[1] = decades[0] + 1;
      const cursor_s = this.cursor === null ? null : to - length * (1 - this.cursor);
      list.forEach((chart, index) => this.paintOne(this.node.children[index], chart, { to, from: to - length, length, decades, cursor_s }));
    }

    paintOne(node, chart, { to, from, length, decades, cursor_s }) {
      const inside = this.samples.filter((s) => s.at_s >= from);
      const at = cursor_s === null ? inside[inside.length - 1] : inside.reduce((best, s) => !best || Math.abs(s.at_s - cursor_s) < Math.abs(best.at_s - cursor_s) ? s : best, null);
      say(node.querySelector("b"), chart.title);
      const values = chart.lines.map(([field]) => at ? chart.text(at[field]) : "–");
      const reading = (chart.log ? `p50 ${values[0]} · p99 ${values[1]}` : values[0]) + (cursor_s === null || !at ? "" : ` at ${clockTime(at.at_s)}`);
      say(node.querySelector("figcaption span"), reading);
      say(node.querySelector(".chart-times span"), `${span(length)} ago`);
      const most = niceAtLeast(Math.max(1, ...inside.map((s) => s[chart.lines[0][0]]).filter(known)));
      const height = (value) => chart.log
        ? 100 - ((Math.log10(Math.max(value, 10 ** decades[0])) - decades[0]) / (decades[1] - decades[0])) * 100
        : 100 - (value / most) * 100;
      const marks = chart.log ? Array.from({ length: decades[1] - decades[0] + 1 }, (_, n) => 10 ** (decades[0] + n)) : [0, most];
      const plot = svg("svg", { viewBox: "0 0 300 100", preserveAspectRatio: "none", role: "img", "aria-label": `${chart.title}: ${reading}` });
      const labels = [];
      for (const mark of marks) {
        const y = height(mark);
        plot.append(svg("line", { class: "grid", x1: 0, x2: 300, y1: y, y2: y }));
        if (mark > 0 && (marks.length < 5 || Math.round(Math.log10(mark)) % 2 === 0)) labels.push([chart.text(mark), y]);
      }
      const x = (s) => ((s.at_s - from) / length) * 300;
      for (const [field, style] of chart.lines) this.line(plot, inside, field, style, x, height);
      if (cursor_s !== null && at) plot.append(svg("line", { class: "cursor", x1: x(at), x2: x(at), y1: 0, y2: 100 }));
      const holder = node.querySelector(".chart-plot");
      holder.replaceChildren(plot, ...labels.map(([text, y]) => {
        const label = element("span", { "aria-hidden": "true" }, text);
        label.style.top = `${(y / 100) * 84 - 6}px`;
        return label;
      }));
    }

    line(plot, samples, field, style, x, height) {
      let path = "", open = false, start = 0, at = 0, area = "";
      for (const sample of samples) {
        const value = sample[field];
        if (!known(value)) {
          open = false;
          continue;
        }
        at = x(sample);
        const point = `${at.toFixed(1)} ${height(Math.max(0, value)).toFixed(1)}`;
        if (!open) start = at;
        path += open ? `L${point}` : `M${point}h.01`; // a single sample is a dot
        area += open ? `L${point}` : `${area ? "V100Z" : ""}M${start.toFixed(1)} 100L${point}`;
        open = true;
      }
      if (!path) return;
      if (style === "line") plot.append(svg("path", { class: "area", d: `${area}V100Z` }));
      plot.append(svg("path", { class: style, d: path }));
    }
  }

  // ---------------------------------------------------------------- one topology

  class TopologyPage {
    constructor(id) {
      this.id = id;
      this.figures = {};
      this.failures = new Map();
      this.timeline = new Timeline();
      this.charts = new Charts(find("#history"));
      this.source = null;
      this.timer = null;
      this.delay_s = 1;
      this.lost_s = null;
      this.tableAt_ms = -Infinity;
      document.addEventListener("visibilitychange", () => document.hidden ? this.close() : this.connect());
      addEventListener("pagehide", () => this.close());
      addEventListener("pageshow", (event) => { if (event.persisted) this.connect(); });
      setInterval(() => this.tick(), 1000);
      this.listenCommands();
      listenLookUp(id, () => find("#look-up").elements.state.value);
      find("#timeline-table").addEventListener("toggle", () => this.render());
      this.connect();
    }

    // -------- the connection. A page that cannot be seen has none: a browser opens only six to a
    // host, and a tab that is open for hours costs nothing.

    close() {
      clearTimeout(this.timer);
      this.source?.close();
      this.source = null;
      this.attempt = null;
    }

    async connect() {
      this.close();
      if (document.hidden) return;
      const attempt = this.attempt = {};
      try {
        const { body, date_s } = await ask(under(this.id));
        if (attempt !== this.attempt) return;
        clock.set(Math.max(date_s || 0, body.updated_at_s || 0) || undefined);
        this.heard(body);
        this.listen();
      } catch (error) {
        if (attempt === this.attempt) this.gone(error);
      }
    }

    listen() {
      let first = true;
      const source = this.source = new EventSource(`${under(this.id)}/events`);
      source.addEventListener("change", (event) => {
        if (source !== this.source) return;
        const change = JSON.parse(event.data);
        if (first) { // everything comes again, perhaps from another run of it
          first = false;
          this.timeline.ring.clear();
          this.failures.clear();
          if (this.wasLost && this.isWhole) this.askGraph();
          this.wasLost = false;
        }
        this.changed(change);
      });
      source.addEventListener("end", () => { if (source === this.source) source.onerror(); });
      source.addEventListener("away", (event) => {
        if (source === this.source) this.gone(new Refused(503, asText(JSON.parse(event.data).error)), true);
      });
      source.onerror = () => {
        if (source !== this.source) return;
        this.close();
        this.timer = setTimeout(() => this.connect(), first ? 1000 : 0);
      };
    }

    changed({ figures, txids, failures }) {
      for (const row of txids || []) this.timeline.ring.put(row);
      for (const failure of failures || []) {
        if (!failure) continue;
        const { at_s, kind, component, task, txid, attempt } = failure;
        this.failures.set(JSON.stringify([at_s, kind, component, task, txid, attempt]), failure);
      }
      while (this.failures.size > FAILURES_MAX) this.failures.delete(this.failures.keys().next().value);
      clock.atLeast(figures?.updated_at_s);
      this.heard(figures);
      this.timeline.reach();
    }

    heard(figures) {
      if (figures && typeof figures === "object") this.figures = { ...this.figures, ...figures };
      // The page of an ensemble knows the summary only, that of the run itself all.
      this.isWhole = "components" in this.figures;
      if (this.isWhole && !this.asks) {
        this.asks = true;
        this.askGraph();
        repeat(10, () => this.askHistory());
      }
      this.lost_s = null;
      this.delay_s = 1;
      // A run that is killed finishes first what is in flight.
      const finishes = this.figures.leader || Object.keys(this.figures.phases || {}).length > 0;
      const ended = ENDED.has(this.figures.status) && !(this.figures.status === "killed" && finishes);
      this.timeline.ended_s = ended ? this.figures.updated_at_s ?? clock.now() : null;
      if (ended) notice(`The run has ended: ${this.figures.status}${this.figures.last_failure && this.figures.status !== "stopped" ? `; ${this.figures.last_failure.cause}` : ""}. These are its last figures.`, this.figures.status === "stopped");
      else if (this.ended || this.told) notice("");
      this.ended = ended;
      this.told = false;
      connection(ended ? "ended" : "live", ended ? "ended" : "live");
      this.render();
    }

    gone(error, listens = false) {
      if (this.lost_s === null) {
        this.lost_s = clock.now();
        this.wasLost = true;
        this.timeline.ended_s ??= this.lost_s;
      }
      this.why = error instanceof Refused ? error.message : "the server does not answer";
      if (!listens) {
        this.timer = setTimeout(() => this.connect(), this.delay_s * 1000);
        this.delay_s = Math.min(10, this.delay_s * 2);
      }
      this.sayGone();
    }

    sayGone() {
      if (this.lost_s === null) return;
      this.told = true;
      connection("lost", "run gone");
      notice(`No answer from the run since ${clockTime(this.lost_s)}, ${span(clock.now() - this.lost_s)} ago (${this.why}). These are its last figures; the page tries again by itself.`);
    }

    // -------- what is shown: once a frame at most

    render() {
      if (this.rendering) return;
      this.rendering = true;
      requestAnimationFrame(() => {
        this.rendering = false;
        this.renderHead();
        this.renderTables();
        this.timeline.draw();
      });
    }

    tick() {
      if (document.hidden) return;
      this.sayGone();
      this.render();
    }

    renderHead() {
      const { figures } = this;
      sayStatus(find("#status"), this.lost_s === null ? figures.status : "gone");
      const trees = figures.trees;
      const commit = figures.latency?.commit;
      const failure = figures.last_failure;
      const failed = known(figures.failures_total) ? figures.failures_total : null;
      const pairs = [];
      if (figures.kind !== "at-least-once") pairs.push(["last committed txid", number(figures.txid)]);
      pairs.push([figures.kind === "at-least-once" ? "tuples a second" : "rows a second", rate(figures.rows_per_second)]);
      if (figures.kind !== "at-least-once") pairs.push(["behind", lagText(figures)], ["commit, p99", duration(commit?.p99_s)]);
      if (failed !== null) pairs.push(["failures", number(failed), failure ? `last ${ago(failure.at_s)}` : "", failed > 0]);
      if (known(figures.rows_total)) pairs.push([figures.kind === "at-least-once" ? "tuples since the start" : "rows since the start", number(figures.rows_total)]);
      showPairs(find("#figures"), pairs);
      const leader = figures.leader || figures.process || {};
      const standbys = Array.isArray(figures.standbys) ? figures.standbys.length : figures.standbys;
      const meta = [
        known(figures.epoch) && `epoch ${number(figures.epoch)}`,
        leader.host && `leader ${leader.host}:${leader.pid}`,
        known(standbys) && plural(standbys, "standby", "standbys"),
        known(figures.started_at_s) && `since ${span(clock.now() - figures.started_at_s)}`,
        figures.desired && figures.desired.status !== figures.status && `asked to be ${figures.desired.status}`,
        figures.operation && `an operation has not ended: ${asText(figures.operation.verb ?? figures.operation)}`,
        figures.restarts > 0 && plural(figures.restarts, "restart", "restarts"),
        known(figures.adopted) && `adopted txid ${number(figures.adopted)}`,
        ...Object.entries(figures.phases || {}).filter(([, count]) => count > 0).map(([name, count]) => `${number(count)} ${name.toLowerCase()}`),
      ].filter(Boolean);
      say(find("#meta"), meta.join(" · "));
      const limits = figures.status === "running" && this.lost_s === null ? limitsOf(figures.pace, figures.phases) : [];
      say(find("#pace"), limits.join(" · "));
      show(find("#pace"), limits.length > 0);
      show(find("#timeline-section"), figures.kind !== "at-least-once" && this.timeline.ring.order.length > 0);
      show(find("#trees-section"), Boolean(trees));
      show(find("#whole"), this.isWhole);
      show(find("#summary"), "topology" in figures && !this.isWhole);
      const page = /^https?:\/\//.test(figures.page || "") ? `${figures.page}${pageOf(this.id)}` : null;
      if (page) link(find("#page"), page, page);
      else say(find("#page"), "it has none now; Config(page=Page()) starts one with the run");
      say(find("#summary-failure"), failure ? `Last failure, ${ago(failure.at_s)}${known(failure.txid) ? `, txid ${number(failure.txid)}` : ""}${failure.component ? ` in ${failure.component}` : ""}: ${asText(failure.cause)}` : "");
    }

    renderTables() {
      const { figures } = this;
      this.renderTimelineTable();
      if (figures.trees) this.renderTrees(figures.trees);
      const failures = [...this.failures.values()].sort((a, b) => (b.at_s || 0) - (a.at_s || 0));
      fill(find("#failures"), FAILURE_COLUMNS, failures);
      say(find("#failures-note"), !failures.length ? "none so far" : failures.length < FAILURES_MAX ? "" : `the last ${FAILURES_MAX}`);
      show(find("#failures").parentElement, failures.length > 0);
      const partitions = Array.isArray(figures.partitions) ? figures.partitions.filter(Boolean).slice(0, 100) : [];
      const most = Math.max(1, ...partitions.map((p) => p.lag_records).filter(known));
      fill(find("#partitions"), partitionColumns(most, partitions), partitions);
      const more = (figures.partitions_total || 0) - partitions.length;
      say(find("#partitions-note"), !partitions.length ? "none are known: not every spout knows its lag" : more > 0 ? `the ${partitions.length} with the largest lag; ${number(more)} more` : plural(partitions.length, "partition", "partitions"));
      show(find("#partitions").parentElement, partitions.length > 0);
      const states = Array.isArray(figures.states) ? figures.states.filter(Boolean) : [];
      this.renderStates(states);
      const components = Array.isArray(figures.components) ? figures.components.filter(Boolean) : [];
      this.renderCommits(components, states, figures.zookeeper);
      fill(find("#components"), COMPONENT_COLUMNS, components);
      this.renderRates(components);
    }

    // A component has a row for each of its states; only the first of them has what it computes.
    renderCommits(components, states, zookeeper) {
      const rows = components.flatMap((each) => {
        const own = states.filter((s) => s.component === each.component && s.commit);
        if (!own.length) return each.commit ? [{ ...each, computes: each.commit }] : [];
        return own.map((s, at) => at ? { state: s } : { ...each, computes: each.commit, state: s });
      });
      show(find("#commits-section"), rows.length > 0);
      fill(find("#commits"), COMMIT_COLUMNS, rows);
      const advance = zookeeper ? `; a write to ZooKeeper took ${duration(zookeeper.p50_s)}, p99 ${duration(zookeeper.p99_s)}` : "";
      say(find("#commits-note"), `of the last 100 commits; states that share a transaction have its time${advance}`);
    }

    renderTimelineTable() {
      if (!find("#timeline-table").open || performance.now() - this.tableAt_ms < 2000) return;
      this.tableAt_ms = performance.now();
      const now_s = this.timeline.now();
      fill(find("#timeline-table table"), TXID_COLUMNS, this.timeline.rows().slice(0, 50).map((row) => ({
        row, spans: row.attempts.map((attempt, at) => phases(attempt, row.attempts[at + 1], now_s)),
      })));
    }

    renderTrees(trees) {
      showPairs(find("#trees"), [
        ["pending", number(trees.pending)], ["acked", number(trees.acked)], ["acked a second", rate(trees.acked_per_second)],
        ["failed", number(trees.failed), "", trees.failed > 0], ["timed out", number(trees.timed_out), "", trees.timed_out > 0],
        ["replays", number(trees.replays)], ["backlog", number(trees.backlog)],
        ["emit to ack, p50", duration(trees.latency_p50_s)], ["p99", duration(trees.latency_p99_s)],
        ["slots lost", number(trees.slots_lost), "", trees.slots_lost > 0],
        ["lost with them", number(trees.trees_lost), "", trees.trees_lost > 0],
      ]);
      fill(find("#bolts"), BOLT_COLUMNS, Array.isArray(trees.bolts) ? trees.bolts.filter(Boolean) : []);
      const ackers = Array.isArray(trees.ackers) ? trees.ackers.filter(Boolean) : [];
      fill(find("#ackers"), ACKER_COLUMNS, ackers.slice(0, ACKERS_MAX));
      say(find("#ackers-note"), !ackers.length ? "none: at most once" : ackers.length > ACKERS_MAX ? `the first ${ACKERS_MAX} of ${number(ackers.length)}` : "");
      show(find("#ackers").parentElement, ackers.length > 0);
    }

    renderStates(states) {
      fill(find("#states"), stateColumns(this.id), states);
      say(find("#states-note"), states.length ? "" : "none");
      show(find("#states").parentElement, states.length > 0);
      const form = find("#look-up");
      show(form, states.length > 0);
      const choice = form.elements.state;
      const names = states.map((s) => s.state).join("\n");
      if (this.stateNames !== names) {
        this.stateNames = names;
        choice.replaceChildren(...states.map((s) => element("option", { value: s.state }, s.state)));
      }
    }

    // -------- the graph

    async askGraph() {
      try {
        const { body } = await ask(`${under(this.id)}/graph`);
        this.graph = drawing(body.svg);
        find("#graph").replaceChildren(...(this.graph ? [this.graph] : []));
        say(find("#graph-note"), this.graph ? "" : "no drawing");
        this.render();
      } catch (error) {
        if (error instanceof Refused) say(find("#graph-note"), error.message);
      }
    }

    // Tuples a second go into the title and beside the name of each component of the drawing.
    renderRates(components) {
      if (!this.graph) return;
      for (const each of components) {
        const node = [...this.graph.querySelectorAll("[data-component]")].find((n) => n.dataset.component === each.component);
        if (!node) continue;
        let text = node.querySelector("text.rate");
        if (!text) {
          const box = node.getBBox();
          text = svg("text", { class: "rate", x: box.x + box.width / 2, y: box.y + box.height + 14, "text-anchor": "middle" });
          node.append(text);
        }
        say(text, known(each.tuples_per_second) && each.tuples_total !== 0 ? `${rate(each.tuples_per_second)}/s` : "");
      }
    }

    async askHistory() {
      if (this.lost_s !== null) return;
      try {
        const { body } = await ask(`${under(this.id)}/history`);
        this.charts.set(body.history, this.figures.kind);
        say(find("#history-note"), this.charts.samples.length ? "one sample each ten seconds; the four phases share one scale, of powers of ten; p50 solid, p99 dashed" : "no sample yet: there is one each ten seconds");
        if (this.charts.kind === "at-least-once") say(find("#history-note"), "one sample each ten seconds");
      } catch (error) {
        if (error instanceof Refused) say(find("#history-note"), error.message);
      }
    }

    // -------- commands

    listenCommands() {
      for (const button of document.querySelectorAll("#commands button")) {
        button.addEventListener("click", () => this.confirm(button.dataset.verb));
      }
    }

    confirm(verb) {
      const dialog = find("#confirm");
      const what = {
        activate: `${this.id} emits batches again.`,
        deactivate: `${this.id} emits no more batches until it is activated. Those in flight end.`,
        kill: `${this.id} emits no more batches, waits for those in flight, and ends. It does not start again until it is activated.`,
      }[verb];
      say(find("#confirm-title"), `${verb[0].toUpperCase()}${verb.slice(1)} ${this.id}?`);
      say(dialog.querySelector("p"), what);
      const field = dialog.querySelector("label");
      show(field, verb === "kill");
      field.querySelector("input").disabled = verb !== "kill";
      const button = dialog.querySelector("button[value=do]");
      say(button, `${verb[0].toUpperCase()}${verb.slice(1)}`);
      button.classList.toggle("danger", verb === "kill");
      dialog.returnValue = "";
      dialog.onclose = () => { if (dialog.returnValue === "do") this.command(verb, field.querySelector("input").valueAsNumber); };
      dialog.showModal();
      dialog.querySelector("button[value=cancel]").focus();
    }

    async command(verb, wait_s) {
      notice(`${verb}: asked, waits for the leader…`, true);
      const buttons = document.querySelectorAll("#commands button");
      buttons.forEach((button) => { button.disabled = true; });
      try {
        const { body } = await ask(`${under(this.id)}/commands`, {
          method: "POST", headers: { "Content-Type": "application/json" },
          body: JSON.stringify(verb === "kill" && known(wait_s) ? { verb, wait_s } : { verb }),
        });
        const answer = body.answer || body;
        notice(answer.refused ? `${verb}: refused; ${answer.refused}` : `${verb}: done; the leader of epoch ${asText(answer.epoch)} answered ${asText(answer.status)}`, !answer.refused);
      } catch (error) {
        notice(`${verb}: ${error.message}`);
      } finally {
        buttons.forEach((button) => { button.disabled = false; });
      }
    }
  }

  // What limits batches now, in words.
  function limitsOf(pace, phases) {
    if (!pace || typeof pace !== "object") return [];
    const of = (name) => `${name} ${number(pace.settings[name], Number.isInteger(pace.settings[name]) ? 0 : 2)}`;
    const names = Object.keys(pace.settings || {});
    const by = names.includes(pace.limited_by) ? pace.limited_by : null;
    const until = by === "min_batch_rows" ? `, or for ${of("max_batch_delay_s")}` : "";
    const flight = Object.values(phases || {}).reduce((sum, count) => sum + count, 0);
    const full_s = known(pace.window_full_at_s) ? clock.now() - pace.window_full_at_s : 0;
    return [
      names.length && !by && `not limited now (${names.map(of).join(", ")})`,
      by && pace.rows_max === 0 && `waits for ${of(by)}${until}`,
      by && pace.rows_max !== 0 && `limited by ${of(by)}${known(pace.rows_max) ? `: last batch up to ${plural(pace.rows_max, "row", "rows")}` : ""}`,
      `${number(flight)} of ${plural(pace.window_txids, "batch", "batches")} in flight`,
      full_s >= 1 && `window of max_spout_pending full for ${span(full_s)}`,
      ...Object.entries(pace.held_back || {}).map(([name, told]) => `${name}: ${asText(told)}`),
    ].filter(Boolean);
  }

  // The drawing of the server, without anything that could act.
  function drawing(text) {
    if (typeof text !== "string" || !text) return null;
    const root = new DOMParser().parseFromString(text, "image/svg+xml").documentElement;
    if (root.nodeName !== "svg") return null;
    for (const node of [root, ...root.querySelectorAll("*")]) {
      if (["script", "foreignObject", "style", "image", "iframe", "animate", "set"].includes(node.localName)) {
        node.remove();
        continue;
      }
      for (const { name, value } of [...node.attributes]) {
        const refers = name === "href" || name === "xlink:href";
        if (name.startsWith("on") || name === "style" || (refers && !value.startsWith("#"))) node.removeAttribute(name);
      }
    }
    return document.importNode(root, true);
  }

  const FAILURE_COLUMNS = [
    { name: "when", class: "whole", fill: (td, f) => { say(td, ago(f.at_s)); const at = dateTime(f.at_s); if (td.title !== at) td.title = at; } },
    { name: "txid", number: true, fill: (td, f) => known(f.txid) ? link(td, number(f.txid), `#${f.txid}`) : say(td, known(f.task) ? `task ${f.task}` : "–") },
    { name: "attempt", number: true, cell: (f) => asText(f.attempt) },
    { name: "component", cell: (f) => asText(f.component) },
    { name: "kind", cell: (f) => asText(f.kind) },
    { name: "cause", class: "cause", cell: (f) => asText(f.cause) },
    { name: "batches", number: true, cell: (f) => number(f.batches) },
    { name: "failures", number: true, cell: (f) => number(f.failures) },
    { name: "tried again", cell: (f) => known(f.txid) ? (known(f.pause_s) ? (f.pause_s > 0 ? `after ${duration(f.pause_s)}` : "at once") : "no") : "–" },
  ];

  const isLoss = (p) => p.lost !== null && p.lost !== undefined && p.lost !== 0 && p.lost !== "";
  const partitionColumns = (most, partitions) => [
    { name: "partition", class: "mono whole", cell: (p) => asText(p.partition) },
    { name: "behind", number: true, cell: (p) => number(p.lag_records) },
    { name: "", fill: (td, p) => meter(td, known(p.lag_records) ? p.lag_records / most : 0) },
    { name: "records/s", number: true, cell: (p) => rate(p.rate), shown: partitions.some((p) => known(p.rate)) },
    { name: "lost", class: "cause", cell: (p) => isLoss(p) ? asText(p.lost) : "", shown: partitions.some(isLoss) },
  ].filter((column) => column.shown !== false);

  function meter(td, share) {
    let rect = td.querySelector("rect");
    if (!rect) {
      const picture = svg("svg", { class: "meter", viewBox: "0 0 80 8", "aria-hidden": "true" });
      rect = svg("rect", { height: 8, rx: 1 });
      picture.append(rect);
      td.append(picture);
    }
    rect.setAttribute("width", (Math.max(0, Math.min(1, share)) * 80).toFixed(1));
  }

  const stateColumns = (id) => [
    { name: "state", fill: (td, s) => link(td, asText(s.state), pageOfState(id, asText(s.state))) },
    { name: "kind", cell: (s) => asText(s.kind) },
    { name: "table", cell: (s) => asText(s.table) },
    { name: "where", class: "url mono", cell: (s) => asText(s.url) },
  ];

  const COMPONENT_COLUMNS = [
    { name: "component", cell: (c) => asText(c.component) },
    { name: "tuples/s", number: true, cell: (c) => rate(c.tuples_per_second) },
    { name: "tuples since the start", number: true, cell: (c) => number(c.tuples_total) },
  ];

  const COMMIT_COLUMNS = [
    { name: "component", cell: (c) => c.component === undefined ? "" : asText(c.component) },
    ...[["reads and computes, p50", "p50_s"], ["p99", "p99_s"]].map(([name, key]) => ({
      name, number: true, cell: (c) => c.component === undefined ? "" : duration(c.computes?.[key]),
    })),
    { name: "state", cell: (c) => c.state ? asText(c.state.state) : "–" },
    ...[["writes, p50", "p50_s"], ["p99", "p99_s"]].map(([name, key]) => ({
      name, number: true, cell: (c) => duration(c.state?.commit?.[key]),
    })),
  ];

  const BOLT_COLUMNS = [
    { name: "bolt", cell: (b) => asText(b.component) },
    ...["executed", "emitted", "acked", "failed"].map((name) => ({ name, number: true, cell: (b) => number(b[name]) })),
  ];

  const ACKERS_MAX = 100;
  const ACKER_COLUMNS = ["acker", "slot", "trees", "completed", "failed", "timed out"].map((name) => ({
    name, number: true, cell: (a) => number(a[name === "acker" ? "number" : name.replace(" ", "_")]),
  }));

  const TXID_COLUMNS = [
    { name: "txid", number: true, fill: (td, { row }) => link(td, number(row.txid), `#${row.txid}`) },
    { name: "attempts", number: true, cell: ({ row }) => number(row.attempts.length) },
    { name: "outcome", class: "cause", cell: ({ row, spans }) => outcome(row, spans, false)[0] },
    ...["planned", "processing", "waiting", "commit"].map((name, phase) => ({
      name, number: true, cell: ({ spans }) => duration(lengthOf(spans[spans.length - 1], phase)),
    })),
  ];

  // ---------------------------------------------------------------- keys of a state

  function listenLookUp(id, stateOf) {
    const form = find("#look-up"), answer = find("#looked-up");
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      const key = form.elements.key.value;
      try {
        const { body } = await ask(`${under(id)}/states/${encodeURIComponent(stateOf())}?key=${encodeURIComponent(key)}`);
        const row = Array.isArray(body.rows) ? body.rows[0] : null;
        say(answer, row ? `${asText(row.key)}  →  ${asText(row.value)}` : `${key} is not in the state`);
      } catch (error) {
        say(answer, error.message);
      }
      show(answer, true);
    });
  }

  // ---------------------------------------------------------------- the list

  class ListPage {
    constructor() {
      this.items = [];
      this.order = { column: LIST_COLUMNS[0], down: false };
      const head = element("tr");
      this.heads = LIST_COLUMNS.map((column) => {
        const button = element("button", { type: "button" }, column.name);
        button.addEventListener("click", () => {
          this.order = { column, down: this.order.column === column ? !this.order.down : Boolean(column.number) };
          this.render();
        });
        const cell = element("th", { scope: "col", class: column.number ? "number" : null }, button);
        head.append(cell);
        return cell;
      });
      find("#topologies").tHead.append(head);
      find("#topologies").columns = LIST_COLUMNS.map((column) => column.name).join();
      find("#filter").addEventListener("input", () => this.render());
      repeat(2, () => this.ask());
    }

    async ask() {
      try {
        const { body, date_s } = await ask("/api/v1/topologies");
        this.items = (Array.isArray(body.topologies) ? body.topologies : []).filter((t) => t && typeof t === "object");
        clock.set(Math.max(date_s || 0, ...this.items.map((t) => t.updated_at_s).filter((at) => known(at) && at < (date_s || 0) + 2)) || undefined);
        this.lost_s = null;
        notice("");
        connection("live", "live");
        this.asked = true;
      } catch (error) {
        this.lost_s ??= clock.now();
        connection("lost", "no answer");
        notice(`No answer since ${clockTime(this.lost_s)}, ${span(clock.now() - this.lost_s)} ago (${error instanceof Refused ? error.message : "the server does not answer"}). The page tries again by itself.`);
      }
      this.render();
    }

    render() {
      const { column, down } = this.order;
      const words = find("#filter").value.toLowerCase().split(/\s+/).filter(Boolean);
      const text = (t) => LIST_COLUMNS.map((each) => each.cell(t)).join(" ").toLowerCase();
      const items = words.length ? this.items.filter((t) => { const all = text(t); return words.every((word) => all.includes(word)); }) : [...this.items];
      items.sort((a, b) => {
        const x = column.value(a), y = column.value(b);
        if (x === y || (x ?? null) === (y ?? null)) return String(a.topology).localeCompare(String(b.topology));
        if (x === null || x === undefined) return 1;
        if (y === null || y === undefined) return -1;
        return (x < y ? -1 : 1) * (down ? -1 : 1);
      });
      this.heads.forEach((head, at) => {
        if (LIST_COLUMNS[at] === column) head.setAttribute("aria-sort", down ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      });
      fill(find("#topologies"), LIST_COLUMNS, items);
      say(find("#count"), this.asked ? (items.length === this.items.length ? plural(items.length, "topology", "topologies") : `${number(items.length)} of ${number(this.items.length)}`) : "");
      say(find("#none"), this.items.length ? "No topology matches the filter." : "There is no topology yet. One appears here as soon as it has started.");
      show(find("#none"), Boolean(this.asked) && !items.length);
    }
  }

  const processOf = (t) => t.leader || t.process;
  const LIST_COLUMNS = [
    { name: "topology", value: (t) => String(t.topology), cell: (t) => asText(t.topology), fill: (td, t) => link(td, asText(t.topology), pageOf(asText(t.topology))) },
    { name: "status", value: (t) => t.status, cell: (t) => t.status || "unknown", fill: (td, t) => {
      if (!td.firstElementChild) td.append(element("span", { class: "status" }));
      sayStatus(td.firstElementChild, t.status);
    } },
    { name: "leader", value: (t) => processOf(t)?.host, cell: (t) => processOf(t)?.host ? `${processOf(t).host}:${processOf(t).pid}` : "–" },
    { name: "standbys", number: true, value: (t) => t.standbys?.length, cell: (t) => number(t.standbys?.length) },
    { name: "txid", number: true, value: (t) => t.txid, cell: (t) => number(t.txid) },
    { name: "rows/s", number: true, value: (t) => t.rows_per_second, cell: (t) => rate(t.rows_per_second) },
    { name: "lag", number: true, value: (t) => t.lag_records, cell: lagText },
    { name: "since", number: true, value: (t) => known(t.started_at_s) ? -t.started_at_s : null, cell: (t) => known(t.started_at_s) ? span(clock.now() - t.started_at_s) : "–" },
    { name: "last failure", class: "cause", value: (t) => t.last_failure?.at_s, cell: (t) => t.last_failure ? `${ago(t.last_failure.at_s)}${t.last_failure.component ? ` in ${t.last_failure.component}` : ""}: ${asText(t.last_failure.cause)}` : "–" },
  ];

  // ---------------------------------------------------------------- which page this is

  const { page: name, topology } = document.body.dataset;
  if (name === "topologies") window.page = new ListPage();
  else if (name === "topology") window.page = new TopologyPage(topology);
})();
