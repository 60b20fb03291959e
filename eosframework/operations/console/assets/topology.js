"use strict";
// Draws the topology: elkjs finds the places (in a worker), this draws, zooms, folds and explains.
(() => {
  const frame = document.getElementById("canvas");
  if (!frame) return;
  const data = JSON.parse(document.getElementById("topology-data").textContent);
  const svg = document.getElementById("graph");
  const panel = document.getElementById("panel");
  const NAMESPACE = "http://www.w3.org/2000/svg";
  const READABLE = 0.74; // below this scale, text of 13 px is smaller than 10 px
  const LARGEST = 1.15;
  const TRIES = 6;
  const MANY = 120; // boxes that no window shows in a readable size
  const pen = document.createElement("canvas").getContext("2d");
  const nodes = new Map(data.nodes.map((node) => [node.id, node]));
  const elk = new ELK({ workerUrl: frame.dataset.worker });
  let folded = null; // names of folded sub-topologies; null: as the window needs it
  let figures = { topics: {}, edges: [], parts: {}, late: {}, dead: {} };
  let drawn = { width: 1, height: 1 };
  let scale = 1;
  let selected = null;

  const make = (name, attributes = {}, ...children) => {
    const element = document.createElementNS(NAMESPACE, name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const html = (name, text = "", attributes = {}, ...children) => {
    const element = document.createElement(name);
    if (text) element.textContent = text;
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.append(...children);
    return element;
  };
  const width = (text, size) => {
    pen.font = `${size}px system-ui, sans-serif`;
    return pen.measureText(text).width;
  };
  const cut = (text, most = 32) =>
    text.length <= most ? text : `${text.slice(0, most / 2)}…${text.slice(1 - most / 2)}`;
  const number = (value) => value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 1 : 0 });
  const counted = (count, what) => `${number(count)} ${what}${count === 1 ? "" : "s"}`;
  const level = (lag) => (!lag ? 0 : lag <= 1000 ? 1 : lag <= 10000 ? 2 : 3);

  // ---- What is shown, as boxes and edges between them

  const inside = (part) => data.nodes.filter((node) => node.part === part);
  const end = (id, folds) => {
    const part = nodes.get(id).part;
    return part !== null && folds.has(part) ? `part:${part}` : id;
  };
  const edgesOf = (folds) => {
    const found = new Map();
    for (const [number, edge] of data.edges.entries()) {
      const [source, target] = [end(edge.source, folds), end(edge.target, folds)];
      if (source === target && source.startsWith("part:")) continue;
      const key = JSON.stringify([source, target, edge.topic, edge.label]);
      if (!found.has(key)) found.set(key, { ...edge, source, target, id: `e${found.size}`, number });
    }
    return [...found.values()];
  };
  const boxOf = (node) => {
    const about = node.kind === "topic" ? "12,345.6/s · lag 12,345" : cut(node.about);
    const wide = Math.max(width(cut(node.label), 13), width(about, 11)) + 24;
    return { id: node.id, width: Math.ceil(wide), height: 40 };
  };
  const partOf = (name, folds, direction) => {
    const id = `part:${name}`;
    if (folds.has(name)) {
      const wide = Math.max(width(cut(name), 13) * 1.1 + 26, width("12 steps · 30 tasks · lag 1,234", 11));
      return { id, width: Math.ceil(wide) + 24, height: 44 };
    }
    const title = width(cut(name, 60), 13) * 1.1 + 26;
    const least = Math.ceil(Math.max(title, width("30 tasks · lag 12,345", 11))) + 30;
    return {
      id,
      children: inside(name).map(boxOf),
      layoutOptions: {
        "elk.padding": "[top=52,left=10,bottom=10,right=10]",
        "elk.nodeSize.constraints": "MINIMUM_SIZE",
        // elkjs turns the sizes of a frame around when it lays out downwards.
        "elk.nodeSize.minimum": direction === "DOWN" ? `(60,${least})` : `(${least},60)`,
      },
    };
  };
  const componentsOf = (ids, edges) => {
    const root = new Map(ids.map((id) => [id, id]));
    const find = (id) => {
      while (root.get(id) !== id) id = root.get(id);
      return id;
    };
    const owner = (id) => {
      const part = nodes.get(id)?.part;
      return part == null ? id : `part:${part}`;
    };
    for (const edge of edges) root.set(find(owner(edge.source)), find(owner(edge.target)));
    return ids.map((id) => [id, find(id)]);
  };
  const options = (direction) => ({
    "elk.algorithm": "layered",
    "elk.direction": direction,
    "elk.hierarchyHandling": "INCLUDE_CHILDREN",
    "elk.edgeRouting": "ORTHOGONAL",
    "elk.spacing.nodeNode": "14",
    "elk.spacing.edgeNode": "12",
    "elk.spacing.edgeEdge": "8",
    "elk.layered.spacing.nodeNodeBetweenLayers": "34",
    "elk.layered.spacing.edgeNodeBetweenLayers": "14",
    "elk.layered.nodePlacement.strategy": "NETWORK_SIMPLEX",
    "elk.layered.considerModelOrder.strategy": "PREFER_EDGES",
    "elk.padding": "[top=6,left=6,bottom=6,right=6]",
  });
  const graphOf = (folds, direction, ratio) => {
    const edges = edgesOf(folds);
    const alone = data.nodes.filter((node) => node.part === null);
    const boxes = [...data.parts.map((name) => partOf(name, folds, direction)), ...alone.map(boxOf)];
    const groups = new Map();
    for (const [id, group] of componentsOf(boxes.map((box) => box.id), edges)) {
      if (!groups.has(group)) groups.set(group, new Set());
      groups.get(group).add(id);
    }
    const owner = (id) => {
      const part = nodes.get(id)?.part;
      return part == null ? id : `part:${part}`;
    };
    const children = [...groups.values()].map((ids, number) => ({
      id: `group:${number}`,
      layoutOptions: options(direction),
      children: boxes.filter((box) => ids.has(box.id)),
      edges: edges.filter((edge) => ids.has(owner(edge.source))).map((edge) => ({
        id: edge.id,
        sources: [edge.source],
        targets: [edge.target],
        labels: edge.label
          ? [{ text: cut(edge.label, 22), width: width(cut(edge.label, 22), 11) + 4, height: 13 }]
          : [],
      })),
    }));
    const packing = {
      "elk.algorithm": "rectpacking",
      "elk.aspectRatio": String(ratio),
      "elk.spacing.nodeNode": "14",
      "elk.padding": "[top=2,left=2,bottom=2,right=2]",
    };
    const coordinates = { "elk.json.edgeCoords": "ROOT", "elk.json.shapeCoords": "ROOT" };
    return [{ id: "root", layoutOptions: { ...packing, ...coordinates }, children }, edges];
  };

  // ---- Layout: the direction, and the folds if nobody has chosen, that the window shows largest

  // A narrow window shows the width, and its page scrolls; another one shows everything.
  const isNarrow = () => matchMedia("(max-width: 800px)").matches;
  const fit = (layout) => Math.min(
    frame.clientWidth / layout.width,
    isNarrow() ? LARGEST : frame.clientHeight / layout.height,
    LARGEST,
  );
  const laidOut = async (folds) => {
    const ratio = isNarrow() ? 0.2 : frame.clientWidth / frame.clientHeight;
    const tried = await Promise.all(
      ["RIGHT", "DOWN"].map(async (direction) => {
        const [graph, edges] = graphOf(folds, direction, ratio);
        return [await elk.layout(graph), edges];
      }),
    );
    return fit(tried[0][0]) >= fit(tried[1][0]) ? tried[0] : tried[1];
  };
  let turns = 0;
  const arrange = () => place().catch((error) => {
    frame.replaceChildren(html("p", `The graph cannot be drawn (${error.message ?? error}); it is below, as text.`));
  });
  const place = async () => {
    const turn = (turns += 1);
    const all = new Set(data.parts);
    // The panel takes a part of the same window: it must not fold what one is looking at.
    const window_ = `${innerWidth}x${innerHeight}`;
    const isSame = window_ === drawn.window;
    const isLarge = data.nodes.length > MANY && data.parts.length > 1;
    let folds = folded ?? (isSame ? drawn.folds : isLarge ? all : new Set());
    let [layout, edges] = await laidOut(folds);
    if (folded === null && !isSame && fit(layout) < READABLE && data.parts.length > 1) {
      const [smaller, fewer] = isLarge ? [layout, edges] : await laidOut(all);
      if (fit(smaller) > fit(layout)) [layout, edges, folds] = [smaller, fewer, all];
      // The largest that stay readable are unfolded again; each try takes a layout.
      const bySize = data.parts.toSorted((a, b) => inside(b).length - inside(a).length);
      for (const part of fit(layout) < READABLE ? [] : bySize.slice(0, TRIES)) {
        const less = new Set([...folds].filter((name) => name !== part));
        const [larger, more] = await laidOut(less);
        if (fit(larger) >= READABLE) [layout, edges, folds] = [larger, more, less];
      }
    }
    if (turn !== turns) return; // another fold or another window since then
    drawn = { width: layout.width, height: layout.height, folds, window: window_ };
    draw(layout, edges, folds);
    show(Math.max(fit(layout), READABLE));
  };
  const show = (wanted) => {
    scale = Math.min(Math.max(wanted, 0.2), 3);
    svg.setAttribute("width", Math.floor(drawn.width * scale));
    svg.setAttribute("height", Math.floor(drawn.height * scale));
    frame.dataset.scale = scale.toFixed(3);
  };
  const zoom = (factor, x = frame.clientWidth / 2, y = frame.clientHeight / 2) => {
    const before = scale;
    const [left, top] = [frame.scrollLeft + x, frame.scrollTop + y];
    show(scale * factor);
    frame.scrollTo((left * scale) / before - x, (top * scale) / before - y);
  };

  // ---- Drawing

  const path = (section, radius = 6) => {
    const points = [section.startPoint, ...(section.bendPoints ?? []), section.endPoint];
    let text = `M${points[0].x},${points[0].y}`;
    for (let n = 1; n < points.length - 1; n += 1) {
      const [a, b, c] = points.slice(n - 1, n + 2);
      const near = (from) => {
        const far = Math.hypot(from.x - b.x, from.y - b.y);
        const part = Math.min(radius, far / 2) / (far || 1);
        return `${b.x + (from.x - b.x) * part},${b.y + (from.y - b.y) * part}`;
      };
      text += ` L${near(a)} Q${b.x},${b.y} ${near(c)}`;
    }
    const last = points.at(-1);
    return `${text} L${last.x},${last.y}`;
  };
  const act = (element, action) => {
    element.addEventListener("click", (event) => {
      event.stopPropagation();
      action();
    });
    element.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      action();
    });
  };
  const text = (x, y, content, style, full = "") => {
    const element = make("text", { x, y, class: style }, content);
    if (full && full !== content) element.append(make("title", {}, full));
    return element;
  };
  const toggle = (name, x, y, isFolded) => {
    const button = make("g", {
      class: "fold", tabindex: 0, role: "button", "aria-expanded": String(!isFolded),
      "aria-label": `${isFolded ? "Unfold" : "Fold"} ${name}`, "data-key": `fold:${name}`,
    });
    button.append(
      make("rect", { x, y, width: 16, height: 16, rx: 4 }),
      make("path", { d: `M${x + 4},${y + 8} h8${isFolded ? ` M${x + 8},${y + 4} v8` : ""}` }),
    );
    act(button, () => {
      folded = new Set(drawn.folds);
      if (!folded.delete(name)) folded.add(name);
      remember();
      arrange();
    });
    return button;
  };
  const addBadges = (group, box, badges) => {
    for (const badge of badges) {
      const pill = make("g", { class: `badge ${badge.kind}` });
      pill.badge = badge;
      pill.append(make("rect", { rx: 7 }), make("text", { y: box.y + 1 }), make("title", {}, badge.text));
      group.append(pill);
    }
    group.dataset.right = box.x + box.width - 14;
    group.dataset.top = box.y;
  };
  const drawPart = (box, isFolded) => {
    const name = box.id.slice(5);
    const group = make("g", {
      class: isFolded ? "node part folded" : "node part", tabindex: 0, role: "button",
      "data-key": box.id, "data-part": name,
    });
    const { x, y, width: wide, height } = box;
    group.append(make("rect", { x, y, width: wide, height, rx: 8, class: "frame" }));
    if (isFolded) addBadges(group, box, ["dead", "late"].map((kind) => ({ kind, text: kind })));
    act(group, () => select(box.id));
    // Edges pass below the texts of a frame, so these are drawn later.
    const head = make("g", { class: isFolded ? "part-head folded" : "part-head", "data-part": name },
      text(x + 34, y + 20, cut(name, isFolded ? 32 : 60), "label", name),
      make("text", { x: x + 12, y: y + 37, class: "figures" }),
      toggle(name, x + 10, y + 8, isFolded));
    return [group, head];
  };
  const drawNode = (box) => {
    const node = nodes.get(box.id);
    const { x, y, width: wide, height } = box;
    const round = node.kind === "topic" ? height / 2 : 5;
    const group = make("g", {
      class: `node ${node.kind}`, tabindex: 0, role: "button", "data-key": box.id,
    });
    group.append(
      make("rect", { x, y, width: wide, height, rx: round, class: "shape" }),
      text(x + wide / 2, y + 17, cut(node.label), "label middle", node.name),
      text(x + wide / 2, y + 32, cut(node.about), "figures middle", node.about),
    );
    addBadges(group, box, node.badges);
    act(group, () => select(box.id));
    return group;
  };
  const draw = (layout, edges, folds) => {
    const focus = document.activeElement?.dataset?.key;
    const shapes = new Map();
    const lines = new Map();
    const visit = (box) => {
      shapes.set(box.id, box);
      (box.edges ?? []).forEach((edge) => lines.set(edge.id, edge));
      (box.children ?? []).forEach(visit);
    };
    visit(layout);
    const frames = [];
    const boxes = [];
    for (const box of shapes.values()) {
      if (box.id.startsWith("part:")) {
        const isFolded = folds.has(box.id.slice(5));
        const [group, head] = drawPart(box, isFolded);
        (isFolded ? boxes : frames).push(group);
        boxes.push(head);
      } else if (nodes.has(box.id)) boxes.push(drawNode(box));
    }
    const paths = [];
    const labels = [];
    for (const edge of edges) {
      const line = lines.get(edge.id);
      for (const section of line?.sections ?? []) {
        const about = [edge.topic, edge.label].filter(Boolean).join(": ");
        const attributes = { d: path(section), class: `edge${edge.is_side ? " side" : ""}` };
        if (edge.topic) attributes["data-topic"] = edge.topic;
        else Object.assign(attributes, { "data-number": edge.number, "data-label": edge.label });
        if (edge.is_read) attributes["data-read"] = "";
        paths.push(make("path", { ...attributes, "marker-end": "url(#head)" }, make("title", {}, about)));
      }
      for (const label of line?.labels ?? [])
        labels.push(text(label.x + label.width / 2, label.y + 10, label.text, "edge-label", edge.label));
    }
    const head = make("marker", {
      id: "head", viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 11, markerHeight: 11,
      markerUnits: "userSpaceOnUse", orient: "auto",
    }, make("path", { d: "M0,0 L8,4 L0,8 z", class: "head" }));
    svg.setAttribute("viewBox", `0 0 ${layout.width} ${layout.height}`);
    svg.replaceChildren(make("defs", {}, head), ...frames, ...paths, ...labels, ...boxes);
    mark();
    refresh();
    if (focus) svg.querySelector(`[data-key="${CSS.escape(focus)}"]`)?.focus({ preventScroll: true });
  };

  // ---- Figures: throughput as the width of an edge, lag as its colour

  const breadth = (rate) => (1.5 + Math.min(Math.log10(1 + rate), 5)).toFixed(2);
  const rateText = (rate) => (rate === null ? "" : `${number(rate)}/s`);
  // What a step gets and sends: all of its edges, or one of those that pass the same records.
  const stepText = (node) => {
    const all = (end) => data.edges.flatMap((edge, at) =>
      edge[end] === node.id && !edge.is_side ? [figures.edges[at] ?? null] : []);
    const sum = (rates) => (!rates.length || rates.includes(null) ? null : rates.reduce((a, b) => a + b, 0));
    const sent = all("source");
    const rates = { in: sum(all("target")), out: node.passing === "splits" ? sum(sent) : sent[0] ?? null };
    return Object.entries(rates).flatMap(([way, rate]) => (rate === null ? [] : [`${rateText(rate)} ${way}`])).join(", ");
  };
  const topicText = (name, short = false) => {
    const found = figures.topics[name];
    if (!found) return "";
    const rate = found.rate === null ? [] : [`${number(found.rate)}/s`];
    const lag = found.lag === null || (short && !found.lag) ? [] : [`lag ${number(found.lag)}`];
    return [...rate, ...lag].join(" · ");
  };
  const partText = (name, isFolded) => {
    const found = figures.parts[name];
    const steps = isFolded ? [counted(inside(name).length, "step")] : [];
    if (!found) return steps.join(" · ");
    const lag = found.lag ? [`lag ${number(found.lag)}`] : [];
    const idle = found.unowned ? [`${number(found.unowned)} without owner`] : [];
    return [...steps, counted(found.tasks, "task"), ...lag, ...idle].join(" · ");
  };
  const badgeCount = (badge) => badge.steps.reduce((sum, step) => sum + (figures[badge.kind]?.[step] ?? 0), 0);
  const partCount = (kind, part) => {
    const badges = inside(part).flatMap((node) => node.badges.filter((badge) => badge.kind === kind));
    return badgeCount({ kind, steps: [...new Set(badges.flatMap((badge) => badge.steps))] });
  };
  // A badge without records is a small ring; one with records is a pill with their number.
  const placeBadges = (group) => {
    let right = Number(group.dataset.right);
    const top = Number(group.dataset.top);
    for (const pill of group.querySelectorAll(".badge")) {
      const { kind } = pill.badge;
      const ofPart = group.dataset.part !== undefined;
      const count = ofPart ? partCount(kind, group.dataset.part) : badgeCount(pill.badge);
      pill.toggleAttribute("hidden", ofPart && !count);
      if (pill.hasAttribute("hidden")) continue;
      const label = count ? `${kind} ${number(count)}` : "";
      const wide = count ? width(label, 10) + 12 : 9;
      const high = count ? 14 : 9;
      const rect = pill.querySelector("rect");
      for (const [name, value] of Object.entries({ x: right - wide, y: top - high + 4, width: wide, height: high }))
        rect.setAttribute(name, value);
      pill.querySelector("text").setAttribute("x", right - wide / 2);
      pill.querySelector("text").textContent = label;
      pill.classList.toggle("some", Boolean(count));
      right -= wide + 4;
    }
  };
  const refresh = () => {
    for (const edge of svg.querySelectorAll(".edge[data-topic]")) {
      const found = figures.topics[edge.dataset.topic];
      edge.style.strokeWidth = breadth(found?.rate ?? 0);
      const lag = "read" in edge.dataset ? found?.lag : 0;
      for (let n = 0; n < 4; n += 1) edge.classList.toggle(`lag-${n}`, n === level(lag));
      const known = topicText(edge.dataset.topic);
      edge.querySelector("title").textContent = [edge.dataset.topic, known].filter(Boolean).join(": ");
    }
    // Inside a sub-topology rates follow from those of topics, where they do.
    for (const edge of svg.querySelectorAll(".edge[data-number]")) {
      const rate = figures.edges[edge.dataset.number] ?? null;
      edge.style.strokeWidth = breadth(rate ?? 0);
      edge.querySelector("title").textContent = [edge.dataset.label, rateText(rate)].filter(Boolean).join(": ");
    }
    for (const group of svg.querySelectorAll(".node")) {
      const name = group.dataset.part;
      if (name !== undefined) {
        const found = figures.parts[name];
        const known = partText(name, group.classList.contains("folded"));
        svg.querySelector(`.part-head[data-part="${CSS.escape(name)}"] .figures`).textContent = known;
        for (let n = 0; n < 4; n += 1) group.classList.toggle(`lag-${n}`, n === level(found?.lag));
        placeBadges(group);
        group.classList.toggle("failing", Boolean(found?.failing || found?.unowned));
        group.setAttribute("aria-label", `sub-topology ${name}: ${known}`);
        continue;
      }
      const node = nodes.get(group.dataset.key);
      const known = node.kind === "topic" ? topicText(node.name) : "";
      if (node.kind === "topic") group.querySelector(".figures").textContent = known;
      const notes = [];
      placeBadges(group);
      for (const badge of node.badges) {
        const count = badgeCount(badge);
        notes.push(badge.text + (count ? `: ${number(count)}` : ""));
      }
      const stores = node.stores.length ? [`keeps ${node.stores.join(", ")}`] : [];
      group.setAttribute("aria-label", [`${node.kind} ${node.name}`, known, ...stores, ...notes].filter(Boolean).join("; "));
    }
    if (selected) explain(selected);
  };

  // ---- The panel about a box

  const list = (items) => html("ul", "", {}, ...items.map((item) => html("li", "", {}, ...[item].flat())));
  const link = (target, label) => html("a", label, { href: target });
  const entry = (name, ...content) =>
    content.length ? [html("dt", name), html("dd", "", {}, ...content)] : [];
  const tasksOf = (part) => {
    const found = figures.parts[part];
    const known = found ? partText(part, false) : "tasks";
    return link(`/tasks?part=${encodeURIComponent(part)}`, known);
  };
  const passing = (ids, isRead) => {
    const seen = new Map();
    for (const edge of data.edges) {
      const own = isRead ? edge.target : edge.source;
      if (edge.topic && ids.has(own)) seen.set(edge.topic, topicText(edge.topic));
    }
    return [...seen].map(([name, known]) => [link(`/positions#${encodeURIComponent(name)}`, name), known ? `: ${known}` : ""]);
  };
  const explain = (key) => {
    const part = key.startsWith("part:") ? key.slice(5) : null;
    const node = nodes.get(key);
    const ids = new Set(part === null ? [key] : inside(part).map((one) => one.id));
    const facts = html("dl");
    const add = (...content) => facts.append(...entry(...content));
    if (part !== null) {
      add("Tasks", tasksOf(part));
      add("Steps", list(inside(part).map((one) => one.label)));
    } else if (node.kind === "step") {
      add("Step", html("code", node.name));
      if (stepText(node)) add("Now", stepText(node));
      const functions = node.functions.map((one) => [
        html("code", one.name), ...(one.file ? [html("br"), `${one.file}:${one.line}`] : []),
      ]);
      if (functions.length) add("Functions", list(functions));
      if (node.stores.length)
        add("Stores", list(node.stores.map((store) => link(`/state?store=${encodeURIComponent(store)}`, store))));
      add("Sub-topology", node.part);
      add("Tasks", tasksOf(node.part));
    } else {
      const users = (from, to) => [...new Set(data.edges.filter((edge) => edge[from] === key).map((edge) => {
        const other = nodes.get(edge[to]);
        return other.part ? `${other.part}: ${other.label}` : other.label;
      }))];
      add("Now", topicText(node.name) || "not known yet");
      const [readers, writers] = [users("source", "target"), users("target", "source")];
      if (writers.length) add("Written by", list(writers));
      if (readers.length) add("Read by", list(readers));
      add("More", link(node.kind === "table" ? "/positions" : `/positions#${encodeURIComponent(node.name)}`, "positions"));
    }
    if (part !== null || node.kind === "step") {
      const [reads, writes] = [passing(ids, true), passing(ids, false)];
      if (reads.length) add("Reads", list(reads));
      if (writes.length) add("Writes", list(writes));
    }
    for (const badge of node?.badges ?? []) {
      const count = badgeCount(badge);
      const told = badge.text + (count ? `: ${number(count)}` : "");
      add({ dead: "Errors", late: "Late", retry: "Retries" }[badge.kind], badge.link ? link(badge.link, told) : told);
    }
    const close = html("button", "Close", { type: "button" });
    close.addEventListener("click", () => select(null));
    const title = html("h2", part ?? node.label, { id: "panel-title" });
    panel.replaceChildren(html("div", "", { class: "panel-head" }, title, close), facts);
  };
  const mark = () => {
    svg.querySelectorAll(".selected").forEach((one) => one.classList.remove("selected"));
    if (selected) svg.querySelector(`[data-key="${CSS.escape(selected)}"]`)?.classList.add("selected");
  };
  const select = (key) => {
    const before = selected;
    selected = key;
    panel.hidden = key === null;
    mark();
    if (key !== null) explain(key);
    else if (before) svg.querySelector(`[data-key="${CSS.escape(before)}"]`)?.focus();
    if (key !== null && isNarrow()) panel.scrollIntoView({ block: "nearest" });
  };

  // ---- Controls

  const remember = () => sessionStorage.setItem("folded", JSON.stringify(folded && [...folded]));
  const chosen = JSON.parse(sessionStorage.getItem("folded") ?? "null");
  if (chosen) folded = new Set(chosen.filter((name) => data.parts.includes(name)));
  const controls = {
    "zoom-in": () => zoom(1.25),
    "zoom-out": () => zoom(0.8),
    fit: () => show(fit(drawn)),
    fold: () => { folded = new Set(data.parts); remember(); arrange(); },
    unfold: () => { folded = new Set(); remember(); arrange(); },
  };
  for (const [id, action] of Object.entries(controls)) document.getElementById(id).addEventListener("click", action);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName)) return;
    const action = { "+": "zoom-in", "-": "zoom-out", 0: "fit" }[event.key];
    if (action) controls[action]();
    else if (event.key === "Escape" && selected) select(null);
  });
  frame.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const place = frame.getBoundingClientRect();
    zoom(Math.exp(-event.deltaY / 300), event.clientX - place.left, event.clientY - place.top);
  }, { passive: false });
  let held = null;
  frame.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0 && !event.target.closest(".node:not(.part), .fold"))
      held = { x: event.clientX + frame.scrollLeft, y: event.clientY + frame.scrollTop };
  });
  addEventListener("pointermove", (event) => {
    if (held) frame.scrollTo(held.x - event.clientX, held.y - event.clientY);
  });
  addEventListener("pointerup", () => { held = null; });
  let pinch = null;
  frame.addEventListener("touchmove", (event) => {
    if (event.touches.length !== 2) return;
    event.preventDefault();
    const [a, b] = event.touches;
    const apart = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
    if (pinch) zoom(apart / pinch);
    pinch = apart;
  }, { passive: false });
  frame.addEventListener("touchend", () => { pinch = null; });
  let waiting = 0;
  let size = "";
  new ResizeObserver(() => {
    const now = `${frame.clientWidth}x${isNarrow() ? 0 : frame.clientHeight}`;
    if (now === size) return;
    size = now;
    clearTimeout(waiting);
    waiting = setTimeout(arrange, 120);
  }).observe(frame);
  const take = () => {
    const found = document.getElementById("figures");
    if (found) figures = JSON.parse(found.textContent);
    refresh();
  };
  document.addEventListener("fresh", take);
  take();
})();
